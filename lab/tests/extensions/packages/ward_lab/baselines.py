"""A system without a network: the nearest rows of all clients answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitwiper.errors import AbsentClientError
from splitwiper.wire import Label
from splitwiper_lab.baselines import BaselineCosts, Cost, Forgetting, Problem


def table_of(inputs: Any) -> np.ndarray:
    """Return inputs as a table of numbers."""
    return np.asarray(inputs, np.float64).reshape(len(inputs), -1)


@dataclass(frozen=True)
class Pool:
    """All clients' rows in one place."""

    problem: Problem
    nearest: int
    costs: BaselineCosts

    def labels(self, client: str) -> tuple[Label, ...]:
        return self.problem.labels

    def posteriors(self, client: str, inputs: Any) -> np.ndarray:
        number = {label: place for place, label in enumerate(self.problem.labels)}
        rows, places = [], []
        for held in self.problem.clients.values():
            (values,) = held.inputs.values()
            rows.append(table_of(values))
            places += [number[held.labels[code]] for code in held.codes]
        known = np.concatenate(rows)
        out = np.zeros((len(inputs), len(number)))
        for place, row in enumerate(table_of(inputs)):
            closest = np.argsort(((known - row) ** 2).sum(axis=1), kind="stable")[: self.nearest]
            np.add.at(out[place], np.array(places)[closest], 1 / self.nearest)
        return out

    def unlearn(self, forgetting: Forgetting, *, present: Collection[str], on_epoch: Any = None) -> Pool:
        if forgetting.client not in present:
            raise AbsentClientError(f"{forgetting.client} has to say which rows.")
        left = self.problem.without(forgetting)
        spent = {name: Cost() for name in left.clients}
        if forgetting.client in spent:
            spent[forgetting.client] = Cost(bytes_up=8 * forgetting.rows, round_trips=1)
        return Pool(left, self.nearest, BaselineCosts(spent, Cost(), tuple(n for n, c in spent.items() if c != Cost())))


class Neighbours:
    """The most common label among the nearest rows."""

    def __init__(self, nearest: int = 3) -> None:
        self._nearest = nearest

    def learn(self, problem: Problem, *, on_epoch: Any = None) -> Pool:
        spent = {}
        for name, held in problem.clients.items():
            sent = sum(values.nbytes for values in held.inputs.values())
            spent[name] = Cost(bytes_up=sent + 4 * len(held), round_trips=1)
        return Pool(problem, self._nearest, BaselineCosts(spent, Cost(), tuple(spent)))


class Remembers(Neighbours):
    """Says that it forgets, and keeps everything."""

    def learn(self, problem: Problem, *, on_epoch: Any = None) -> Pool:
        pool = super().learn(problem, on_epoch=on_epoch)
        return Kept(pool.problem, pool.nearest, pool.costs)


class Kept(Pool):
    """A pool that nothing leaves."""

    def unlearn(self, forgetting: Forgetting, *, present: Collection[str], on_epoch: Any = None) -> Pool:
        return self


class Stranger(Neighbours):
    """Charges clients that do not exist."""

    def learn(self, problem: Problem, *, on_epoch: Any = None) -> Pool:
        return Pool(problem, 1, BaselineCosts({"nobody": Cost()}, Cost(), ()))


class Speechless(Neighbours):
    """Answers with something else than probabilities."""

    def learn(self, problem: Problem, *, on_epoch: Any = None) -> Pool:
        pool = super().learn(problem, on_epoch=on_epoch)
        return Silent(pool.problem, pool.nearest, pool.costs)


class Silent(Pool):
    """A pool whose answers have too few columns."""

    def posteriors(self, client: str, inputs: Any) -> np.ndarray:
        return np.zeros((len(inputs), 1))
