"""Membership inference on the systems of a comparison: same rows and shadows, each compared with a retrained model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from splitwiper.data.rows import as_rows, pack
from splitwiper.errors import ConfigError
from splitwiper.seeding import Stream
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper.wire.labels import in_order
from splitwiper_lab.attacks.membership import Answers, Inputs, Judges, Model, ModelPair, Sample, judged, shadow_pairs
from splitwiper_lab.baselines import Forgetting, Problem
from splitwiper_lab.baselines.problem import Holding, holding
from splitwiper_lab.baselines.whole import answering, train_whole
from splitwiper_lab.datasets.published import Part
from splitwiper_lab.evaluation.comparison.record import Record
from splitwiper_lab.evaluation.comparison.settings import Comparison
from splitwiper_lab.evaluation.comparison.summary import SeedSpread
from splitwiper_lab.workloads import Workload

_MOST = 1000
"""The most rows of either kind that attacks use."""


def check_attackable(work: Workload, comparison: Comparison) -> None:
    """Refuse a comparison that membership inference cannot be run on, before anything is trained.

    Raises:
        ConfigError: the client leaves, or has no test rows of the label.
    """
    if comparison.level == "client":
        raise ConfigError("compare.membership: a client that leaves has no model to ask; take class or sample.")
    labels = list(work.test[work.owner][1]) if work.owner in work.test else []
    if work.forget not in labels:
        raise ConfigError(
            f"compare.membership: {work.owner!r} has no test rows of {work.forget!r}, with which forgotten rows are "
            "compared; give it some."
        )


def withheld(work: Workload, share: float) -> tuple[Workload, dict[str, Part]]:
    """Split off a share of every client's training rows for the attacker; return the rest, and those rows."""
    kept, taken = {}, {}
    for name, data in work.train.items():
        rows = as_rows(data, task="")
        # rows with the same inputs stay together: the attacker must have no row that the systems also have
        digests = Sample(_inputs(rows.inputs, rows.call), rows.labels).digests
        number = {digest: place for place, digest in enumerate(dict.fromkeys(digests))}
        order = Stream(work.config.seed, "compare/shadow", name).permutation(len(number))
        cut = round(share * len(order))
        if not 0 < cut < len(order):
            raise ConfigError(
                f"compare.membership.shadow = {share:g} of the {len(order)} rows of {name!r} is {cut} rows."
            )
        mine = np.isin([number[digest] for digest in digests], order[:cut])
        taken[name], kept[name] = _taken(*data, np.flatnonzero(mine)), _taken(*data, np.flatnonzero(~mine))
    return dataclasses.replace(work, train=kept), taken


def _taken(inputs: Any, labels: Any, rows: Array) -> Part:
    chosen = {k: v[rows] for k, v in inputs.items()} if isinstance(inputs, Mapping) else inputs[rows]
    return chosen, np.asarray(labels)[rows]


class Attacker:
    """An attacker with shadows trained on its own rows, and the candidates it judges.

    Args:
        work: the data that the systems learn from.
        problem: the same data, in canonical order.
        forgetting: the rows that the systems forget.
        own: the attacker's rows, by client.
        comparison: the comparison, which says how much the attacker knows.
    """

    def __init__(
        self,
        work: Workload,
        problem: Problem,
        forgetting: Forgetting,
        own: Mapping[str, Part],
        comparison: Comparison,
    ) -> None:
        self._seed, held = work.config.seed, problem.clients[forgetting.client]
        self._unlearned = _first(_sample(held, forgetting.gone), _MOST)
        self._retained = _sample(held, ~forgetting.gone)
        labels = set(self._unlearned.labels)
        tests = as_rows(work.test[forgetting.client], task=work.tasks.get(forgetting.client, ""))
        there = np.array([label in labels for label in tests.labels], bool)
        every = Sample(_inputs(tests.inputs, tests.call), tests.labels)
        self._outsiders = _first(every.take(np.flatnonzero(there)), _MOST)
        shadows = shadow_pairs(
            _own_rows(own, work, comparison),
            _trainer(problem, held),
            forget="class" if forgetting.level == "class" else "part",
            count=comparison.membership.shadows,
            share=comparison.delta if forgetting.level == "sample" else 0.5,
            seed=self._seed,
        )
        self._judges = Judges(shadows, seed=self._seed)

    def attack(self, before: Model, after: Model, retrained: Model) -> list[dict[str, Any]]:
        """Run every attack on one system, and again with a retrained model in place of the one that forgot."""
        pair = ModelPair(before, after, self._unlearned, self._outsiders, self._retained)
        return [outcome.to_dict() for outcome in self._judges(pair, reference=retrained)]


def _sample(held: Holding, keep: Array) -> Sample:
    chosen = held.kept(keep)
    columns = {name: np.asarray(chosen.shard.columns[name]) for name in chosen.names}
    return Sample(_inputs(columns, held.call), tuple(chosen.labels[code] for code in chosen.shard.codes))


def _inputs(columns: Mapping[str, Array], call: str) -> Inputs:
    return columns if call != "one" else next(iter(columns.values()))


def _first(rows: Sample, most: int) -> Sample:
    return rows.take(np.arange(min(most, len(rows))))


def _own_rows(own: Mapping[str, Part], work: Workload, comparison: Comparison) -> Sample:
    """Return the attacker's rows; if it knows only some labels, those of these labels."""
    parts = [as_rows(own[name], task=work.tasks.get(name, "")) for name in sorted(own)]
    labels = [label for part in parts for label in part.labels]
    columns = {k: np.concatenate([part.inputs[k] for part in parts]) for k in parts[0].inputs}
    every = in_order(labels)
    order = Stream(work.config.seed, "compare/known").permutation(len(every))
    known = {every[place] for place in order[: max(2, math.ceil(comparison.membership.labels * len(every)))]}
    rows = Sample(_inputs(columns, parts[0].call), labels)
    return rows.take(np.array([place for place, label in enumerate(labels) if label in known], np.int64))


def _trainer(problem: Problem, like: Holding) -> Callable[[Inputs, Sequence[Label], int], tuple[Answers, Any]]:
    """Return a function that trains the unsplit network; its architecture and recipe are public."""

    def train(inputs: Inputs, labels: Sequence[Label], seed: int) -> tuple[Answers, tuple[Label, ...]]:
        named = dict(inputs) if isinstance(inputs, Mapping) else {like.names[0]: inputs}
        rows = dataclasses.replace(
            as_rows((pack(named, like.call), [x.name for x in labels]), task=""), labels=tuple(labels)
        )
        weights = train_whole(
            problem,
            [holding("shadow", rows, key=b"shadow")],
            stream=Stream(problem.config.seed, "shadow", seed),
            what="a shadow model",
        )

        logits = answering(problem, weights)
        return lambda asked: torch.softmax(logits(asked).double(), dim=1).numpy(), weights.labels

    return train


@dataclass(frozen=True)
class Exposure:
    """One attack on one system, over all seeds."""

    system: str
    unlearning: str
    attack: str
    knows: str
    hit_rate: SeedSpread
    false_positive_rate: SeedSpread
    auc: SeedSpread
    interval: tuple[float, float]
    """The 95 % interval of the area: the means of its lower and upper ends over seeds."""
    difference: SeedSpread | None
    """The difference from the same attack on a retrained model."""
    verdict: str


def exposures(records: Sequence[Record]) -> list[Exposure]:
    """Return the results of all attacks, in the order of systems."""
    groups: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        for found in record.membership:
            knows = f"{found['labels']} labels, {found['tasks']} tasks"
            groups.setdefault((record.system, record.unlearning, found["attack"], knows), []).append(found)
    return [_exposure(*key, group) for key, group in groups.items()]


def _exposure(system: str, unlearning: str, attack: str, knows: str, found: Sequence[Mapping[str, Any]]) -> Exposure:
    beside = [one["comparison"] for one in found if one["comparison"] is not None]
    # judged by the present rule, whenever it was measured
    verdicts: list[str] = [judged(*one["interval"]) for one in beside]
    told = []
    for word in dict.fromkeys(verdicts):
        told.append(word if len(verdicts) == 1 else f"{word} {verdicts.count(word)}×")
    low, high = np.mean([one["interval"] for one in found], axis=0).tolist()
    return Exposure(
        system,
        unlearning,
        attack,
        knows,
        SeedSpread.of(map(itemgetter("hit_rate"), found)),
        SeedSpread.of(map(itemgetter("false_positive_rate"), found)),
        SeedSpread.of(map(itemgetter("auc"), found)),
        (low, high),
        SeedSpread.of(map(itemgetter("difference"), beside)) if beside else None,
        ", ".join(told) or "not compared",
    )
