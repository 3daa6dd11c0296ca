"""What one system did with one seed: a line of the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from splitwiper_lab.baselines import Cost


@dataclass(frozen=True)
class Phase:
    """Learning, or forgetting.

    Attributes:
        retained: accuracy on all labels but the one to forget, each client on its own test rows; None where no such
            rows are left.
        forgotten: accuracy on that label; None where no client is left that has such test rows.
        spent: by client, without pre-training.
        preparing: by client, pre-training: all N epochs of it.
        server: what the server spent; in a central system, all of it.
        took_part: clients that had to work.
    """

    retained: float | None
    forgotten: float | None
    spent: Mapping[str, Cost]
    preparing: Mapping[str, Cost]
    server: Cost
    took_part: tuple[str, ...]

    def cost(self, clients: Sequence[str], *, epochs: float) -> Cost:
        """What some clients spent together, with so much of their pre-training (1 is all of it)."""
        total = sum((self.spent.get(name, Cost()) for name in clients), Cost())
        for name in clients:
            prepared = self.preparing.get(name, Cost())
            total += Cost(seconds=epochs * prepared.seconds, flops=round(epochs * prepared.flops))
        return total

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Phase:
        """A phase from plain values."""
        return cls(
            values["retained"],
            values["forgotten"],
            {name: Cost(**cost) for name, cost in values["spent"].items()},
            {name: Cost(**cost) for name, cost in values["preparing"].items()},
            Cost(**values["server"]),
            tuple(values["took_part"]),
        )


@dataclass(frozen=True)
class Record:
    """One system, one way to forget, one seed.

    Attributes:
        system: its name in the table.
        kind: what it is.
        unlearning: how it forgets.
        seed: of everything.
        requester: the client that forgets.
        epochs: M and N.
        learned: learning.
        unlearned: forgetting.
        exact: whether what is left is, bit for bit, what training without the rows gives.
        proof: how that is known.
        away: with a client away: whether forgetting goes on, and what is said if not. None where nobody was away.
        membership: results of membership inference.
    """

    system: str
    kind: str
    unlearning: str
    seed: int
    requester: str
    epochs: Mapping[str, int]
    learned: Phase
    unlearned: Phase
    exact: bool
    proof: str
    away: Mapping[str, Any] | None = None
    membership: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes it one of its kind."""
        return self.system, self.unlearning, self.seed

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """A record from `to_dict`'s values; what other versions wrote besides is left out."""
        known = {f.name: values[f.name] for f in dataclasses.fields(cls)}
        phases = {name: Phase.from_dict(values[name]) for name in ("learned", "unlearned")}
        return cls(**{**known, **phases})
