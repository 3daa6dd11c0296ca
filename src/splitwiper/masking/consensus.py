"""Secure label consensus (Algorithm 3, first part): clients agree on all labels without revealing their own sets.

Clients take turns. A client that is not done adds, with probability λ1, at most µ of its labels that the pool lacks; if
the pool then holds all of its labels, it declares itself done with probability λ2. The printed algorithm has two slips,
fixed here: the last test is of the client's own set (it reads 𝕐_j), and a client that lacks nothing adds nothing (the
printed one chooses at least one label from an empty set).

What the group learns: who added which label, and when each client declared itself done. So a label that a client added
is certainly its own, and one that was added after the client was done certainly is not. Nothing is certain about any
other label: the client may or may not hold a label that another added first. The server relays sealed
messages and learns neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from random import Random

from splitwiper.config import Masking
from splitwiper.errors import ConfigError, DataError
from splitwiper.wire import Label
from splitwiper.wire.labels import in_order

# Turns per client after which the negotiation is abandoned. With the lowest probabilities that settings allow, the
# chance of needing half as many is below 10^-200.
MOST_TURNS = 100_000


@dataclass(frozen=True)
class Turn:
    """One client's message to the group in its turn."""

    client: str
    added: tuple[Label, ...] = ()
    done: bool = False


class Participant:
    """One client's side: its own labels, and its turns. Nobody else sees the set."""

    def __init__(self, client: str, own: AbstractSet[Label], manner: Masking, draw: Random) -> None:
        if not own:
            raise DataError(f"client {client!r} has no labels to agree on; leave it out until it has rows.")
        self.client = client
        self._own, self.manner, self._draw = frozenset(own), manner, draw

    def speak(self, pool: AbstractSet[Label]) -> Turn:
        """Return the client's next turn, given the pool as the group sees it."""
        added: list[Label] = []
        lacking = in_order(self._own - pool)
        if lacking and self._draw.random() < self.manner.add:
            count = self._draw.randint(1, min(len(lacking), self.manner.most))
            added = self._draw.sample(lacking, count)
        complete = self._own <= pool | set(added)
        return Turn(self.client, tuple(added), complete and self._draw.random() < self.manner.finish)


@dataclass(frozen=True)
class Consensus:
    """The agreed labels, and the transcript of all turns."""

    labels: tuple[Label, ...]
    transcript: tuple[Turn, ...]


class Conversation:
    """The turns so far and the next speaker: clients speak in rotation, skipping those that are done."""

    def __init__(self, roster: Sequence[str]) -> None:
        self.roster = tuple(roster)
        self.turns: list[Turn] = []
        self.pool: set[Label] = set()
        self._done: set[str] = set()
        self._next = 0

    @property
    def speaker(self) -> str | None:
        """The client whose turn it is; None when all are done."""
        return self.roster[self._next] if len(self._done) < len(self.roster) else None

    def take(self, turn: Turn) -> None:
        """Record the speaker's turn and advance to the next client that is not done."""
        self.turns.append(turn)
        self.pool.update(turn.added)
        if turn.done:
            self._done.add(turn.client)
        while len(self._done) < len(self.roster):
            self._next = (self._next + 1) % len(self.roster)
            if self.roster[self._next] not in self._done:
                break

    def check_length(self) -> None:
        """Refuse to continue a negotiation that does not end.

        Raises:
            ConfigError: the limit of turns is reached.
        """
        if len(self.turns) >= MOST_TURNS * len(self.roster):
            raise ConfigError("no consensus on labels was reached: raise masking.add and masking.finish.")

    @property
    def consensus(self) -> Consensus | None:
        """The agreed labels once everybody is done, else None."""
        return None if self.speaker is not None else Consensus(in_order(self.pool), tuple(self.turns))


def agree(participants: Sequence[Participant]) -> Consensus:
    """Run the negotiation in one process, without a relay.

    Raises:
        ConfigError: it does not end.
    """
    by_name = {participant.client: participant for participant in participants}
    conversation = Conversation(list(by_name))
    while (consensus := conversation.consensus) is None:
        conversation.check_length()
        conversation.take(by_name[conversation.speaker or ""].speak(conversation.pool))
    return consensus
