"""The consensus over a link: the server relays sealed turns that it can neither read, forge, reorder nor replay.

Every message is bound to its place, its sender and the hash of all messages before it. A server that shows clients
different talks, or drops messages, is noticed: what follows cannot be opened, or does not come.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from splitwiper.errors import CorruptError, DataError
from splitwiper.masking.consensus import Consensus, Conversation, Participant, Turn
from splitwiper.masking.sealing import GroupKey
from splitwiper.wire import Label, Posted


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
        self._said: Conversation | None = None
        """None until somebody spoke."""

    @property
    def roster(self) -> tuple[str, ...]:
        """Who takes part; empty until somebody spoke."""
        return self._said.roster if self._said else ()

    def listen(self) -> None:
        """Take in what was said since.

        Raises:
            CorruptError: a message cannot be opened, or comes out of turn.
        """
        for message in self._board.posted(self._topic, self._place):
            try:
                said = self._key.open(message.body, *self._bound(message.sender, message.place))
            except CorruptError as problem:
                raise CorruptError(
                    f"message {message.place} of the talk about labels, from {message.sender!r}, cannot be read: "
                    f"{message.sender!r} or this client has another invitation secret, or the server altered the talk."
                ) from problem
            self._take(message.sender, message.place, said)
            self._heard.update(message.body)

    @property
    def _place(self) -> int:
        return len(self._said.turns) if self._said else 0

    def _take(self, sender: str, place: int, said: Any) -> None:
        talk = self._said or Conversation(said["roster"])
        if place != len(talk.turns) or sender != talk.speaker:
            raise CorruptError(f"message {place} of the talk about labels, from {sender!r}, is out of turn.")
        talk.take(Turn(sender, tuple(Label.parse(text) for text in said["added"]), bool(said["done"])))
        self._said = talk

    def speak(self, participant: Participant, roster: Sequence[str]) -> bool:
        """Say what there is to say, if it is this participant's turn.

        Args:
            participant: who speaks.
            roster: who takes part, where nobody has spoken yet.
        """
        self.listen()
        talk = self._said or Conversation(roster)
        if talk.speaker != participant.client:
            return False
        talk.check_length()
        turn, place = participant.speak(talk.pool), len(talk.turns)
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
        return self._said.consensus if self._said else None

    def _bound(self, sender: str, place: int) -> tuple[str, str, int, bytes]:
        return self._topic, sender, place, self._heard.digest()
