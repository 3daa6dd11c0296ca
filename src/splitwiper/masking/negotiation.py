"""The consensus over a link: the server relays sealed turns that it can neither read, forge, reorder nor replay.

Every message is bound to its sequence number, its sender and the hash of all messages before it. So a server that shows
clients different negotiations, or drops messages, is noticed: the messages that follow cannot be opened or do not come.

Where strangers can post, a message begins with a lock that only the group can open, so that any group member that
learns a negotiation was abandoned can have it erased, and nobody else can. The message that abandons it stays, and can
be read after those before it are gone. It names clients, and no labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from splitwiper.errors import CorruptError, DataError
from splitwiper.masking.codebook import settings_text
from splitwiper.masking.consensus import Consensus, Conversation, Participant, Turn
from splitwiper.masking.sealing import GroupKey
from splitwiper.wire import Label, Posted, lock_of

# Bound into the message that abandons a negotiation, in place of the hash of all messages before it.
_GIVEN_UP = b"given up"


class MessageRelay(Protocol):
    """The part of a link that carries negotiations."""

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Post a message at a sequence number."""
        ...

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Return messages from a sequence number on."""
        ...


class Negotiation:
    """A negotiation about labels as one member of the group follows it.

    Args:
        relay: the relay, as clients reach it.
        key: the group's key.
        version: the version of the codebook under negotiation.
        strangers: whether clients outside the group can post on the relay. Their messages must stop nobody: a message
            that cannot be read is then skipped, and noted in `unread`, and the group's messages carry locks. Otherwise
            a message that cannot be read is an error.
    """

    def __init__(self, relay: MessageRelay, key: GroupKey, version: int, *, strangers: bool = False) -> None:
        self._relay, self._key, self._strangers = relay, key, strangers
        self.version, self.topic = version, f"labels/{version}"
        self.proof = key.derive("erase", self.topic)
        """Has the server erase the negotiation: only the group can derive it."""
        self._lock = lock_of(self.proof) if strangers else b""
        self._heard = self._nothing()
        self._place = 0  # the first sequence number that was not read yet
        self._last: int | None = None  # that of the last message that was read
        self._conversation: Conversation | None = None  # None until the first turn
        self.unread: dict[str, int] = {}
        """Senders whose latest message could not be read, with its sequence number."""
        self.masking = ""
        """The settings that the codebook will be made with, known after the first turn."""
        self.successors: tuple[str, ...] = ()
        """The participants of the next negotiation, if this one was abandoned."""

    @property
    def roster(self) -> tuple[str, ...]:
        """The participants; empty before the first turn."""
        return self._conversation.roster if self._conversation else ()

    @property
    def speaker(self) -> str | None:
        """The client whose turn it is; None before the first turn, and when all are done."""
        return self._conversation.speaker if self._conversation else None

    @property
    def turns(self) -> int:
        """The number of turns so far."""
        return len(self._conversation.turns) if self._conversation else 0

    @property
    def silent(self) -> tuple[str, ...]:
        """The participants that have not taken a turn yet."""
        return tuple(name for name in self.roster if not self.spoken(name))

    def spoken(self, client: str) -> int:
        """Return how many turns a client has taken."""
        return sum(turn.client == client for turn in self._conversation.turns) if self._conversation else 0

    def listen(self) -> None:
        """Read the messages posted since the last call.

        Raises:
            CorruptError: a message cannot be opened, or comes out of turn.
        """
        for message in self._relay.posted(self.topic, self._place):
            if message.body:
                self._hear(message)
            self._place = message.place + 1

    def _hear(self, message: Posted) -> None:
        try:
            contents = self._opened(message)
        except CorruptError as problem:
            if not self._strangers:
                raise CorruptError(unreadable(message.sender, message.place)) from problem
            self.unread[message.sender] = message.place
            return
        self._take(message.sender, message.place, contents)
        self._heard.update(message.body)
        self._last = message.place
        self.unread.pop(message.sender, None)

    def _opened(self, message: Posted) -> Any:
        """Open a message, bound to all messages before it.

        Two kinds of message do not depend on those: one that abandons the negotiation, and one that restarts it because
        all earlier messages expired and were erased.

        Raises:
            CorruptError: it cannot be opened.
        """
        where, body = (self.topic, message.sender, message.place), message.body.removeprefix(self._lock)
        for bound in (self._heard.digest(), _GIVEN_UP):
            with suppress(CorruptError):
                return self._key.open(body, *where, bound)
        contents = self._key.open(body, *where, self._nothing().digest())
        if self.consensus is not None:
            raise CorruptError("a negotiation that has ended cannot be restarted.")
        self._forget()
        return contents

    def _forget(self) -> None:
        self._conversation, self._heard, self.masking = None, self._nothing(), ""

    def _nothing(self) -> hashlib._Hash:
        """Return the running hash before the first message, which covers only the federation's id."""
        return hashlib.sha256(self._key.federation.encode())

    def _take(self, sender: str, place: int, contents: Any) -> None:
        try:
            if "successors" in contents:
                self._leave(contents["successors"])
                return
            conversation = self._conversation or Conversation(_names(contents["roster"]))
            turn = Turn(sender, tuple(map(Label.parse, contents["added"])), bool(contents["done"]))
        except (KeyError, TypeError, ValueError) as problem:
            raise CorruptError(
                f"message {place} of the negotiation about labels, from {sender!r}, has an unknown form: "
                "another program wrote it."
            ) from problem
        if self.successors or sender != conversation.speaker:
            raise CorruptError(f"message {place} of the negotiation about labels, from {sender!r}, is out of turn.")
        conversation.take(turn)
        self._conversation, self.masking = conversation, self.masking or str(contents.get("masking", ""))

    def _leave(self, successors: Any) -> None:
        if self.consensus is None:  # a finished agreement stands
            self.successors = self.successors or _names(successors)

    def speak(self, participant: Participant, roster: Sequence[str]) -> bool:
        """Post this participant's turn, if it is next.

        Args:
            participant: the participant.
            roster: the participants, used before the first turn.

        Returns:
            Whether a turn was posted.
        """
        self.listen()
        conversation = self._conversation or Conversation(roster)
        if conversation.speaker != participant.client or self.successors:
            return False
        if self._is_gone():  # this process was suspended so long that the negotiation was erased: read it all again
            self._forget()
            self._place, self._last = 0, None
            return self.speak(participant, roster)
        conversation.check_length()
        turn = participant.speak(conversation.pool)
        contents: dict[str, Any] = {"added": [label.text for label in turn.added], "done": turn.done}
        if self._conversation is None:  # the first turn names the participants and the settings
            contents |= {"roster": list(roster), "masking": settings_text(participant.manner)}
        where = (self.topic, participant.client, self._place)
        body = self._lock + self._key.seal(contents, *where, self._heard.digest())
        return self._post(participant.client, body)

    def _is_gone(self) -> bool:
        """Return whether the last message that was read has been erased since."""
        if not self._strangers or self._last is None:
            return False
        there = self._relay.posted(self.topic, self._last)
        return not there or not there[0].body

    def give_up(self, client: str, successors: Sequence[str]) -> None:
        """Abandon this negotiation, and name the participants of the next one.

        A sequence number is used once, so this is posted either before the last turn or after it. After it, the
        agreement stands.
        """
        self.listen()
        while self.consensus is None and not self.successors:
            where = (self.topic, client, self._place)
            self._post(client, self._key.seal({"successors": list(successors)}, *where, _GIVEN_UP))

    def _post(self, client: str, body: bytes) -> bool:
        """Post a message, unless another came first: from a stranger, or another process in this client's name."""
        place = self._place
        try:
            self._relay.post(client, self.topic, place, body)
        except DataError:
            self.listen()
            if self._place == place:  # no other message came first, so this one was refused
                raise
            return False
        self.listen()
        return True

    @property
    def consensus(self) -> Consensus | None:
        """The agreed labels once everybody is done, else None."""
        return self._conversation.consensus if self._conversation else None


def unreadable(sender: str, place: int) -> str:
    """Return the error message for a message that cannot be read."""
    return (
        f"message {place} of the negotiation about labels, from {sender!r}, cannot be read: {sender!r} or this "
        "client has another invitation secret, or the server altered a message."
    )


def _names(given: Any) -> tuple[str, ...]:
    """Parse a roster from a message.

    Raises:
        ValueError: it is not a list of names.
    """
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        raise ValueError("not a list of names")
    return tuple(given)
