"""Membership inference on the systems of a comparison: same rows and shadows, each compared with a retrained model."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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
        numbers: dict[bytes, int] = {}
        groups = []  # for each row, the number of its inputs among all different ones
        for digest in Sample(_inputs(rows.inputs, rows.call), rows.labels).digests:
            groups.append(numbers.setdefault(digest, len(numbers)))
        order = Stream(work.config.seed, "compare/shadow", name).permutation(len(numbers))
        cut = round(share * len(order))
        if not 0 < cut < len(order):  # both sides need a row
            raise ConfigError(
                f"compare.membership.shadow = {share:g} of the {len(order)} rows of {name!r} is {cut} rows."
            )
        mine = np.isin(groups, order[:cut])
        taken[name], kept[name] = _taken(*data, np.flatnonzero(mine)), _taken(*data, np.flatnonzero(~mine))
    return dataclasses.replace(work, train=kept), taken


def _taken(inputs: Any, labels: Any, rows: Array) -> Part:
    if isinstance(inputs, Mapping):
        return {name: column[rows] for name, column in inputs.items()}, np.asarray(labels)[rows]
    return inputs[rows], np.asarray(labels)[rows]


class Attacker:
    """An attacker with shadows trained on its own rows, and the candidates it judges."""

    def __init__(
        self, work: Workload, problem: Problem, forgetting: Forgetting, own: Mapping[str, Part], comparison: Comparison
    ) -> None:
        self._seed, held = work.config.seed, problem.clients[forgetting.client]
        self._unlearned = _first(_sample(held, forgetting.gone), _MOST)
        self._retained = _sample(held, ~forgetting.gone)
        tests = as_rows(work.test[forgetting.client], task=work.tasks.get(forgetting.client, ""))
        every = Sample(_inputs(tests.inputs, tests.call), tests.labels)
        # with other labels, the label alone would tell outsiders from forgotten rows
        self._outsiders = _first(_with_labels(every, set(self._unlearned.labels)), _MOST)
        shadows = shadow_pairs(  # as the systems do: a shadow forgets as much as they
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
        # with the same candidates for every system
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


def _with_labels(rows: Sample, labels: Collection[Label]) -> Sample:
    return rows.take(np.array([place for place, label in enumerate(rows.labels) if label in labels], np.int64))


def _own_rows(own: Mapping[str, Part], work: Workload, comparison: Comparison) -> Sample:
    """Return the attacker's rows; if it knows only some labels, those of these labels."""
    labels: list[Label] = []
    columns: dict[str, list[Array]] = {}
    for name in sorted(own):
        rows = as_rows(own[name], task=work.tasks.get(name, ""))
        labels += rows.labels
        for column, values in rows.inputs.items():
            columns.setdefault(column, []).append(values)
    every = in_order(labels)
    order = Stream(work.config.seed, "compare/known").permutation(len(every))
    # two labels at least: a shadow forgets one of them
    known = {every[place] for place in order[: max(2, math.ceil(comparison.membership.labels * len(every)))]}
    joined = {column: np.concatenate(parts) for column, parts in columns.items()}
    return _with_labels(Sample(_inputs(joined, rows.call), labels), known)


def _trainer(problem: Problem, like: Holding) -> Callable[[Inputs, Sequence[Label], int], tuple[Answers, Any]]:
    """Return a function that trains the unsplit network; its architecture and recipe are public."""

    def train(inputs: Inputs, labels: Sequence[Label], seed: int) -> tuple[Answers, tuple[Label, ...]]:
        named = dict(inputs) if isinstance(inputs, Mapping) else {like.names[0]: inputs}
        rows = as_rows((pack(named, like.call), [label.name for label in labels]), task="")
        weights = train_whole(
            problem,
            # as rows, labels have no task; these keep the one that they have
            [holding("shadow", dataclasses.replace(rows, labels=tuple(labels)), key=b"shadow")],
            stream=Stream(problem.config.seed, "shadow", seed),
            what="a shadow model",
        )
        logits = answering(problem, weights)
        # as doubles: attacks look at the last digits of confident answers
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
        for result in record.membership:
            knows = f"{result['labels']} labels, {result['tasks']} tasks"
            groups.setdefault((record.system, record.unlearning, result["attack"], knows), []).append(result)
    return [_exposure(*key, results) for key, results in groups.items()]


def _exposure(system: str, unlearning: str, attack: str, knows: str, results: Sequence[Mapping[str, Any]]) -> Exposure:
    """Summarise the results of one attack on one system, one for each seed."""
    differences, verdicts = [], Counter[str]()
    for result in results:
        beside = result["comparison"]
        if beside is not None:
            differences.append(beside["difference"])
            # judged by the present rule, whenever it was measured
            verdicts[judged(*beside["interval"])] += 1
    if verdicts.total() == 1:
        verdict = next(iter(verdicts))
    else:
        verdict = ", ".join(f"{word} {times}×" for word, times in verdicts.items())
    low, high = np.mean(list(map(itemgetter("interval"), results)), axis=0).tolist()
    return Exposure(
        system,
        unlearning,
        attack,
        knows,
        SeedSpread.of(map(itemgetter("hit_rate"), results)),
        SeedSpread.of(map(itemgetter("false_positive_rate"), results)),
        SeedSpread.of(map(itemgetter("auc"), results)),
        (low, high),
        SeedSpread.of(differences) if differences else None,
        verdict or "not compared",
    )
