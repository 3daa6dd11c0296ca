"""Secure label consensus (Algorithm 3, first part): clients agree on all labels without laying their own sets open.

In its turn a client that is not done adds, with probability λ1, at most µ of its labels that the pool lacks, and says,
with probability λ2, that it is done if the pool holds all of its own. The printed algorithm has two slips, mended here:
the last test is of the client's own set (it reads 𝕐_j), and a client that lacks nothing adds nothing (the printed one
chooses at least one label from an empty set).

What the group learns: who added which label, and when somebody said it was done. So a label that a client added is
certainly its own, and one that was added after it was done certainly is not. Of every other label nothing is certain: a
client may hold what another added before it, or not (`told_by`). The server relays sealed messages and learns neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from random import Random

from splitwiper.config import Masking
from splitwiper.errors import ConfigError, DataError
from splitwiper.wire import Label
from splitwiper.wire.labels import in_order

MOST_TURNS = 100_000
"""Turns per client after which nobody waits any longer. With the least probabilities that settings allow, the chance
of needing half as many is below 10^-200."""


@dataclass(frozen=True)
class Turn:
    """What one client tells the group in its turn."""

    client: str
    added: tuple[Label, ...] = ()
    done: bool = False


class Participant:
    """One client's side: its own labels, and what it says in its turns. Nobody else sees the set."""

    def __init__(self, client: str, own: AbstractSet[Label], manner: Masking, draw: Random) -> None:
        if not own:
            raise DataError(f"client {client!r} has no labels to agree on; leave it out until it has rows.")
        self.client = client
        self._own, self._manner, self._draw = frozenset(own), manner, draw

    def speak(self, pool: AbstractSet[Label]) -> Turn:
        """The client's next turn, given the pool as the group sees it."""
        added: list[Label] = []
        lacking = in_order(self._own - pool)
        if lacking and self._draw.random() < self._manner.add:
            count = self._draw.randint(1, min(len(lacking), self._manner.most))
            added = self._draw.sample(lacking, count)
        complete = self._own <= pool | set(added)
        return Turn(self.client, tuple(added), complete and self._draw.random() < self._manner.finish)


@dataclass(frozen=True)
class Consensus:
    """What the group agreed on, and everything that was said."""

    labels: tuple[Label, ...]
    transcript: tuple[Turn, ...]


def next_speaker(roster: Sequence[str], transcript: Sequence[Turn]) -> str | None:
    """Whose turn it is: clients speak one after another, those that are done no longer; None when all are."""
    done = {turn.client for turn in transcript if turn.done}
    last = roster.index(transcript[-1].client) if transcript else -1
    for step in range(1, len(roster) + 1):
        name = roster[(last + step) % len(roster)]
        if name not in done:
            return name
    return None


def pool_of(transcript: Sequence[Turn]) -> set[Label]:
    """The labels that were added so far."""
    return {label for turn in transcript for label in turn.added}


def agree(participants: Sequence[Participant]) -> Consensus:
    """Let participants speak in turn until all are done, without a relay.

    Raises:
        ConfigError: it did not end.
    """
    by_name = {p.client: p for p in participants}
    transcript: list[Turn] = []
    while (name := next_speaker(list(by_name), transcript)) is not None:
        if len(transcript) >= MOST_TURNS * len(by_name):
            raise ConfigError("no consensus on labels was reached: raise masking.add and masking.finish.")
        transcript.append(by_name[name].speak(pool_of(transcript)))
    return Consensus(in_order(pool_of(transcript)), tuple(transcript))


def told_by(transcript: Sequence[Turn], client: str) -> Mapping[Label, bool]:
    """What a transcript proves about one client: True for labels it holds, False for labels it does not."""
    out: dict[Label, bool] = {}
    finished = False
    for turn in transcript:
        for label in turn.added:
            if turn.client == client:
                out[label] = True
            elif finished:
                out[label] = False
        finished = finished or (turn.client == client and turn.done)
    return out
