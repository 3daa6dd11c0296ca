"""Baselines from other packages: what a system must do to be compared, and how it is found.

A system of one's own is a class whose objects `learn` from a `Problem`; the result is a `LearnedBaseline`. A way to
train a split network is a subclass of `splitwiper_lab.baselines.Framework`, which then also forgets by every method;
a way to forget is a subclass of `splitwiper_lab.baselines.unlearning.Method`. A configuration names each by its import
path, ``package.module:Name``, or by an entry point:

=============================  ===================================================
``splitwiper_lab.systems``     a baseline or a framework: ``kind`` of a system
``splitwiper_lab.unlearning``  an unlearning method: ``unlearning`` of a system
=============================  ===================================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from splitwiper.data.rows import Data, as_rows
from splitwiper.errors import ConfigError, TrainingError
from splitwiper.extensions import extensions, load, make, origin, path_of
from splitwiper.federation.evaluate import Evaluation, score
from splitwiper.training.loop import OnEpoch
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper_lab.baselines.meters import Cost
from splitwiper_lab.baselines.problem import Forgetting, Problem

SYSTEMS = "splitwiper_lab.systems"
UNLEARNING = "splitwiper_lab.unlearning"


@dataclass(frozen=True)
class BaselineCosts:
    """What an operation cost, by party.

    Attributes:
        spent: each client's costs.
        server: the server's costs; in a central system, all costs.
        took_part: clients that had to compute or be contacted.
    """

    spent: Mapping[str, Cost]
    server: Cost
    took_part: tuple[str, ...]


class LearnedBaseline(Protocol):
    """A trained system. Nothing that is asked of it changes it."""

    @property
    def costs(self) -> BaselineCosts:
        """What the operation cost that made it: learning, or forgetting."""
        ...

    def labels(self, client: str) -> tuple[Label, ...]:
        """Return the labels that a client's answers are about."""
        ...

    def posteriors(self, client: str, inputs: Any) -> Array:
        """Return the probability of each label for each input (rows × labels) of the client that asks.

        Inputs are an array, or a tuple or dict of arrays if the network takes several.
        """
        ...

    def unlearn(
        self, forgetting: Forgetting, *, present: Collection[str], on_epoch: OnEpoch | None = None
    ) -> LearnedBaseline:
        """Return the system after forgetting rows of its problem. Only clients that are ``present`` can be reached.

        It may call ``on_epoch`` after each epoch, with its number, the number of epochs, and the loss.

        Raises:
            AbsentClientError: a client that must take part cannot be reached.
        """
        ...


class Baseline(Protocol):
    """A system that SplitWiper can be compared with; made from the settings in ``args``, by keyword."""

    def learn(self, problem: Problem, *, on_epoch: OnEpoch | None = None) -> LearnedBaseline:
        """Train on all rows of all clients.

        Everything random must follow from ``problem.config.seed``, so that the laboratory can train again without the
        forgotten rows, and compare: only then is a system called exact.
        """
        ...


def is_outside(group: str, name: str) -> bool:
    """Return whether a name is an import path, or an entry point of a group."""
    return ":" in name or name in extensions(group)


def made(group: str, name: str, settings: Mapping[str, Any], *, what: str, **given: Any) -> tuple[Any, str]:
    """Return an object from outside, and the text of its origin, which changes with its code and settings.

    ``name`` is an entry point of the group, or an import path, and ``what`` the name of the method that it must have;
    ``given`` are further keywords, besides the settings.

    Raises:
        ConfigError: it cannot be imported, does not take the settings, or is something else.
    """
    path = path_of(group, name)
    if not isinstance(load(path), type):
        raise ConfigError(f"{name!r} is not a class; name one whose objects have a method {what!r}.")
    part = make(path, settings, **given)
    if not callable(getattr(part, what, None)):
        raise ConfigError(f"{name!r} has no method {what!r}, so it cannot be used here.")
    return part, str(origin(path, settings))


def checked(name: str, learned: LearnedBaseline, problem: Problem) -> LearnedBaseline:
    """Check what a baseline returned, so that mistakes are reported where they are made.

    Raises:
        TrainingError: something is missing or wrong.
    """
    try:
        costs = learned.costs
        if set(costs.spent) != set(problem.clients) or not set(costs.took_part) <= set(costs.spent):
            raise TypeError(f"costs are of {sorted(costs.spent)}, and clients are {sorted(problem.clients)}")
        for cost in (*costs.spent.values(), costs.server):
            if not isinstance(cost, Cost):
                raise TypeError("costs must be splitwiper_lab.baselines.Cost")
    except (AttributeError, TypeError, ValueError) as problem_found:
        raise TrainingError(f"{name} returned no learned baseline: {problem_found}.") from problem_found
    return learned


def answers(name: str, learned: LearnedBaseline, client: str, inputs: Any) -> Array:
    """Return a baseline's posteriors, checked.

    Raises:
        TrainingError: they are not probabilities of its labels.
    """
    labels = learned.labels(client)
    chances = np.asarray(learned.posteriors(client, inputs), dtype=np.float64)  # rows × labels
    if chances.ndim != 2 or chances.shape[1] != len(labels) or not np.isfinite(chances).all() or (chances < 0).any():
        raise TrainingError(
            f"{name} answers {client!r} with an array {chances.shape} that is not rows × {len(labels)} probabilities."
        )
    return chances


def evaluate(name: str, learned: LearnedBaseline, tests: Mapping[str, Data], tasks: Mapping[str, str]) -> Evaluation:
    """Score a baseline on each client's test rows."""
    scores = {}
    for client, data in tests.items():
        rows = as_rows(data, task=tasks.get(client, ""))
        best = answers(name, learned, client, rows.packed).argmax(axis=1)
        scores[client] = score(rows.labels, list(map(learned.labels(client).__getitem__, best)))
    return Evaluation(scores)


def same_answers(
    name: str, one: LearnedBaseline, other: LearnedBaseline, tests: Mapping[str, Data], tasks: Mapping[str, str]
) -> bool:
    """Return whether two baselines answer all test rows with the same bits."""
    for client, data in tests.items():
        inputs = as_rows(data, task=tasks.get(client, "")).packed
        if one.labels(client) != other.labels(client):
            return False
        if not np.array_equal(answers(name, one, client, inputs), answers(name, other, client, inputs)):
            return False
    return True
