"""The consensus over a link: the server relays sealed turns that it can neither read, forge, reorder nor replay.

Every message is bound to its place, its sender and the hash of all messages before it. A server that shows clients
different talks, or drops messages, is noticed: what follows cannot be opened, or does not come.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from splitwiper.errors import ConfigError, CorruptError, DataError
from splitwiper.masking.consensus import MOST_TURNS, Consensus, Participant, Turn
from splitwiper.masking.sealing import GroupKey
from splitwiper.wire import Label, Posted
from splitwiper.wire.labels import in_order


class Board(Protocol):
    """The part of a link that carries talks."""

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Put a message at a place."""
        ...

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Messages from a place on."""
        ...


class Talk:
    """A talk about labels as one member of the group follows it."""

    def __init__(self, board: Board, key: GroupKey, version: int) -> None:
        self._board, self._key = board, key
        self._topic = f"labels/{version}"
        self._heard = hashlib.sha256(key.federation.encode())
        self._pool: set[Label] = set()
        self._done: set[str] = set()
        self._next = 0
        self.roster: tuple[str, ...] = ()
        self.transcript: list[Turn] = []

    def listen(self) -> None:
        """Take in what was said since.

        Raises:
            CorruptError: a message cannot be opened, or comes out of turn.
        """
        for message in self._board.posted(self._topic, len(self.transcript)):
            try:
                said = self._key.open(message.body, *self._bound(message.sender, message.place))
            except CorruptError as problem:
                raise CorruptError(
                    f"message {message.place} of the talk about labels, from {message.sender!r}, cannot be read: "
                    f"{message.sender!r} or this client has another invitation secret, or the server altered the talk."
                ) from problem
            self._take(message.sender, message.place, said)
            self._heard.update(message.body)

    def _take(self, sender: str, place: int, said: Any) -> None:
        self.roster = self.roster or tuple(said["roster"])
        if place != len(self.transcript) or sender != self._speaker(self.roster):
            raise CorruptError(f"message {place} of the talk about labels, from {sender!r}, is out of turn.")
        turn = Turn(sender, tuple(Label.parse(text) for text in said["added"]), bool(said["done"]))
        self.transcript.append(turn)
        self._pool |= set(turn.added)
        if turn.done:
            self._done.add(sender)
        while len(self._done) < len(self.roster):  # whose turn it is next: `next_speaker`, from where it stands
            self._next = (self._next + 1) % len(self.roster)
            if self.roster[self._next] not in self._done:
                break

    def _speaker(self, roster: Sequence[str]) -> str | None:
        return None if self._done and len(self._done) == len(roster) else roster[self._next]

    def speak(self, participant: Participant, roster: Sequence[str]) -> bool:
        """Say what there is to say, if it is this participant's turn.

        Args:
            participant: who speaks.
            roster: who takes part, where nobody has spoken yet.
        """
        self.listen()
        if self._speaker(self.roster or roster) != participant.client:
            return False
        if len(self.transcript) >= MOST_TURNS * len(self.roster or roster):
            raise ConfigError("no consensus on labels was reached: raise masking.add and masking.finish.")
        turn, place = participant.speak(self._pool), len(self.transcript)
        said: dict[str, Any] = {"added": [label.text for label in turn.added], "done": turn.done}
        if not place:  # who takes part is said once
            said["roster"] = list(roster)
        body = self._key.seal(said, *self._bound(participant.client, place))
        try:
            self._board.post(participant.client, self._topic, place, body)
        except DataError:  # another process spoke in this client's name meanwhile
            self.listen()
            return False
        self.listen()
        return True

    @property
    def consensus(self) -> Consensus | None:
        """What was agreed on, once everybody is done."""
        if not self.roster or self._speaker(self.roster) is not None:
            return None
        return Consensus(in_order(self._pool), tuple(self.transcript))

    def _bound(self, sender: str, place: int) -> tuple[str, str, int, bytes]:
        return self._topic, sender, place, self._heard.digest()
