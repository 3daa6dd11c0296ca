"""The result of one system with one seed: a line of the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from splitwiper_lab.baselines import Cost
from splitwiper_lab.sweeps import CellResult


@dataclass(frozen=True)
class Phase:
    """The outcome of learning or of forgetting.

    Attributes:
        retained: accuracy on all labels except the one to forget, each client on its own test rows; None if there are
            no such rows.
        forgotten: accuracy on the label to forget; None if no remaining client has test rows of it.
        spent: costs by client, without pre-training.
        preparing: costs of pre-training by client, for all N epochs.
        server: the server's costs; in a central system, all costs.
        took_part: clients that had to compute.
    """

    retained: float | None
    forgotten: float | None
    spent: Mapping[str, Cost]
    preparing: Mapping[str, Cost]
    server: Cost
    took_part: tuple[str, ...]

    def cost(self, clients: Sequence[str], *, epochs: float) -> Cost:
        """Return the total cost of some clients, with the share ``epochs`` of their pre-training (1 is all)."""
        total, nothing = Cost(), Cost()
        for name in clients:
            prepared = self.preparing.get(name, nothing)
            total += self.spent.get(name, nothing)
            # pre-training is computing alone: it sends and stores nothing
            total += Cost(seconds=epochs * prepared.seconds, flops=round(epochs * prepared.flops))
        return total

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Phase:
        """Create a phase from plain values."""
        return cls(
            values["retained"],
            values["forgotten"],
            _costs(values["spent"]),
            _costs(values["preparing"]),
            Cost(**values["server"]),
            tuple(values["took_part"]),
        )


@dataclass(frozen=True)
class Record:
    """The result of one system, one unlearning method and one seed.

    Attributes:
        system: the system's name in the table.
        kind: the system's kind.
        unlearning: the name of the unlearning method.
        seed: the root seed.
        requester: the client that requests forgetting.
        epochs: M and N.
        learned: the outcome of learning.
        unlearned: the outcome of forgetting.
        exact: whether the result equals training without the rows, bit for bit.
        proof: why ``exact`` is known.
        away: with one client away: whether forgetting worked, and the error message if not. None if no client was away.
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
    def went_on(self) -> bool:
        """Whether forgetting worked with a client away."""
        return self.away is not None and bool(self.away["went_on"])

    @property
    def key(self) -> tuple[str, str, int]:
        """The identity of the result: system, unlearning method, seed."""
        return self.system, self.unlearning, self.seed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """Create a record from the values of `to_dict`; unknown keys of other versions are ignored."""
        known = {field.name: values[field.name] for field in dataclasses.fields(cls)}
        known["learned"], known["unlearned"] = Phase.from_dict(known["learned"]), Phase.from_dict(known["unlearned"])
        return cls(**known)


def records_of_results(results: Iterable[CellResult]) -> list[Record]:
    """Return the records that results hold."""
    return [Record.from_dict(result.values) for result in results]


def _costs(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Cost]:
    return {name: Cost(**cost) for name, cost in values.items()}
