"""The consensus over a link: the server relays sealed turns that it can neither read, forge, reorder nor replay.

Every message is bound to its place, its sender and the hash of all messages before it. A server that shows clients
different talks, or drops messages, is noticed: what follows cannot be opened, or does not come.

Where strangers can speak, a message begins with a lock that the group alone can open, so that a talk which was given up
is erased for whoever of the group hears of it, and for nobody else. The word that gives it up stays, and can be read
when those before it are gone. It names clients, and no labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from splitwiper.config import to_toml
from splitwiper.errors import CorruptError, DataError
from splitwiper.masking.consensus import Consensus, Conversation, Participant, Turn
from splitwiper.masking.sealing import GroupKey
from splitwiper.wire import Label, Posted, lock_of

_GIVEN_UP = b"given up"
"""What the last word of a talk without an end is bound to, instead of all that was said before."""


class Board(Protocol):
    """The part of a link that carries talks."""

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Put a message at a place."""
        ...

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Messages from a place on."""
        ...


class Talk:
    """A talk about labels as one member of the group follows it.

    Args:
        board: what carries it.
        key: the group's.
        version: of the codebook that is talked about.
        strict: whether a message that cannot be read is an error; else it is passed over, and noted in `unread`. Where
            strangers can speak on the board, theirs must stop nobody, and messages have locks.
    """

    def __init__(self, board: Board, key: GroupKey, version: int, *, strict: bool = True) -> None:
        self._board, self._key, self._strict = board, key, strict
        self.version, self.topic = version, f"labels/{version}"
        self.proof = key.derive("erase", self.topic)
        """What has the server erase the talk."""
        self._lock = b"" if strict else lock_of(self.proof)
        self._heard = self._nothing()
        self._place = 0
        """The first place of the board that was not looked at."""
        self._last: int | None = None
        """The place of the last word that was heard."""
        self._said: Conversation | None = None
        """None until somebody spoke."""
        self.unread: dict[str, int] = {}
        """Who said something last that could not be read, and at which place."""
        self.masking = ""
        """The settings that the codebook will be made with, once somebody spoke."""
        self.successors: tuple[str, ...] = ()
        """Who takes part in the next talk, where this one was given up."""

    @property
    def roster(self) -> tuple[str, ...]:
        """Who takes part; empty until somebody spoke."""
        return self._said.roster if self._said else ()

    @property
    def speaker(self) -> str | None:
        """Whose turn it is; None where nobody spoke yet, or all are done."""
        return self._said.speaker if self._said else None

    @property
    def words(self) -> int:
        """How much was said."""
        return len(self._said.turns) if self._said else 0

    @property
    def silent(self) -> tuple[str, ...]:
        """Who takes part and has not said a word yet."""
        return tuple(n for n in self.roster if self._said and all(turn.client != n for turn in self._said.turns))

    def listen(self) -> None:
        """Take in what was said since.

        Raises:
            CorruptError: a message cannot be opened, or comes out of turn.
        """
        for message in self._board.posted(self.topic, self._place):
            if message.body:
                self._hear(message)
            self._place = message.place + 1

    def _hear(self, message: Posted) -> None:
        try:
            said = self._opened(message)
        except CorruptError as problem:
            if self._strict:
                raise CorruptError(unreadable(message.sender, message.place)) from problem
            self.unread[message.sender] = message.place
            return
        self._take(message.sender, message.place, said)
        self._heard.update(message.body)
        self._last = message.place
        self.unread.pop(message.sender, None)

    def _opened(self, message: Posted) -> Any:
        """What a message says, after all that was said before.

        Or without it: where the talk is given up, and where it begins anew because all before was erased as too old.

        Raises:
            CorruptError: it cannot be opened.
        """
        where, body = (self.topic, message.sender, message.place), message.body.removeprefix(self._lock)
        for bound in (self._heard.digest(), _GIVEN_UP):
            with suppress(CorruptError):
                return self._key.open(body, *where, bound)
        said = self._key.open(body, *where, self._nothing().digest())
        if self.consensus is not None:
            raise CorruptError("a talk that has ended does not begin anew.")
        self._forget()
        return said

    def _forget(self) -> None:
        self._said, self._heard, self.masking = None, self._nothing(), ""

    def _nothing(self) -> hashlib._Hash:
        """The digest of what was heard before anybody spoke."""
        return hashlib.sha256(self._key.federation.encode())

    def _take(self, sender: str, place: int, said: Any) -> None:
        try:
            if "successors" in said:
                self._leave(said["successors"])
                return
            talk = self._said or Conversation(_names(said["roster"]))
            turn = Turn(sender, tuple(Label.parse(text) for text in said["added"]), bool(said["done"]))
        except (KeyError, TypeError, ValueError) as problem:
            raise CorruptError(
                f"message {place} of the talk about labels, from {sender!r}, makes no sense: its program is not ours."
            ) from problem
        if self.successors or sender != talk.speaker:
            raise CorruptError(f"message {place} of the talk about labels, from {sender!r}, is out of turn.")
        talk.take(turn)
        self._said, self.masking = talk, self.masking or str(said.get("masking", ""))

    def _leave(self, successors: Any) -> None:
        if self.consensus is None:  # what was agreed on stands
            self.successors = self.successors or _names(successors)

    def speak(self, participant: Participant, roster: Sequence[str]) -> bool:
        """Say what there is to say, if it is this participant's turn.

        Args:
            participant: who speaks.
            roster: who takes part, where nobody has spoken yet.
        """
        self.listen()
        talk = self._said or Conversation(roster)
        if talk.speaker != participant.client or self.successors:
            return False
        if self._is_gone():  # this process was suspended for so long that the talk was erased: hear it all again
            self._forget()
            self._place, self._last = 0, None
            return self.speak(participant, roster)
        talk.check_length()
        turn = participant.speak(talk.pool)
        said: dict[str, Any] = {"added": [label.text for label in turn.added], "done": turn.done}
        if self._said is None:  # who takes part, and by which settings, is said once
            said |= {"roster": list(roster), "masking": to_toml(participant.manner)}
        where = (self.topic, participant.client, self._place)
        return self._say(participant.client, self._lock + self._key.seal(said, *where, self._heard.digest()))

    def _is_gone(self) -> bool:
        """Whether the last word that was heard was erased since."""
        if self._strict or self._last is None:
            return False
        there = self._board.posted(self.topic, self._last)
        return not there or not there[0].body

    def give_up(self, client: str, successors: Sequence[str]) -> None:
        """Say that this talk is over without an end, and who takes part in the next one.

        A place is filled once, so this comes before the last word or after it. After it, what was agreed on stands.
        """
        self.listen()
        while self.consensus is None and not self.successors:
            where = (self.topic, client, self._place)
            self._say(client, self._key.seal({"successors": list(successors)}, *where, _GIVEN_UP))

    def _say(self, client: str, body: bytes) -> bool:
        """Say something, unless somebody else spoke meanwhile: a stranger, or another process in this client's name."""
        place = self._place
        try:
            self._board.post(client, self.topic, place, body)
        except DataError:
            self.listen()
            if self._place == place:  # nobody spoke: it is the word itself that was not taken
                raise
            return False
        self.listen()
        return True

    @property
    def consensus(self) -> Consensus | None:
        """What was agreed on, once everybody is done."""
        return self._said.consensus if self._said else None


def unreadable(sender: str, place: int) -> str:
    """What to say of a message that cannot be read."""
    return (
        f"message {place} of the talk about labels, from {sender!r}, cannot be read: {sender!r} or this client has "
        "another invitation secret, or the server altered the talk."
    )


def _names(given: Any) -> tuple[str, ...]:
    """A roster as it was said.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        raise ValueError("not a list of names")
    return tuple(given)
