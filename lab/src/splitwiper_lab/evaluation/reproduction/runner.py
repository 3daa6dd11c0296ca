"""Measure cells of an experiment: one function for each kind of measurement."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from splitwiper.config import Config, Masking, from_dict
from splitwiper.data.rows import as_rows
from splitwiper.federation import Federation
from splitwiper.federation.retrace import Answers, Traced
from splitwiper_lab.attacks import Evidence, ServerView, Truth, measure
from splitwiper_lab.attacks.code_groups import birch_means, kmeans_means
from splitwiper_lab.attacks.measuring import labels_present
from splitwiper_lab.baselines import Framework, Network, Problem
from splitwiper_lab.baselines.starting import Start, starts
from splitwiper_lab.evaluation.comparison import compared, read_comparison, stage
from splitwiper_lab.evaluation.comparison.splitwiper import config_of
from splitwiper_lab.evaluation.reproduction.cells import systems_of
from splitwiper_lab.evaluation.reproduction.experiment import Condition, Experiment
from splitwiper_lab.evaluation.reproduction.work import Bench, work_of
from splitwiper_lab.sweeps import Cell
from splitwiper_lab.workloads import Workload

Systems = Sequence[Mapping[str, Any]]
Values = Iterator[tuple[str, dict[str, Any]]]
"""The name of each system, and what was measured of it."""


@dataclass(frozen=True)
class ExperimentMeasure:
    """Measures cells of an experiment that have the same condition and seed; for `splitwiper_lab.sweeps.sweep`."""

    experiment: Experiment
    bench: Bench

    def __call__(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Yield each cell with its values."""
        condition = self.experiment.condition(cells[0].condition)
        wanted = {cell.system: cell for cell in cells}
        systems = [one.settings for one in systems_of(self.experiment, condition) if one.name in wanted]
        measure_kind = MEASURES[self.experiment.kind]
        for system, values in measure_kind(condition, systems, cells[0].seed, self.bench):
            yield wanted[system], values


def compare(condition: Condition, systems: Systems, seed: int, bench: Bench) -> Values:
    """Measure accuracy, costs, and membership inference, as `splitwiper compare` does."""
    comparison = read_comparison({**condition.settings, "systems": list(systems)})
    at = stage(work_of(condition, seed, bench), comparison, bench.progress, scratch=bench.scratch)
    for record in compared(at, comparison):
        yield record.system, record.to_dict()


def cluster(condition: Condition, systems: Systems, seed: int, bench: Bench) -> Values:
    """Let a curious server cluster masked labels by k-means and BIRCH (Section 6.4, and BIRCH in an appendix)."""
    work = work_of(condition, seed, bench)
    for system in read_comparison({"systems": list(systems)}).systems:
        bench.tell(f"{system.name}: learning")
        with _federation(config_of(work, system), bench) as federation:
            federation.learn(work.train, tasks=work.tasks)
            view, truth = ServerView.of(federation.path / "server", federation.halves), Truth.of(federation)
            evidence = Evidence(view, device=work.config.server.device, seed=seed)
            labels = labels_present(truth, view)
            attacks = []
            # each attack once without side information, and once knowing the number of labels
            for attack, known_labels in product((kmeans_means, birch_means), (None, labels)):
                for finding in attack(evidence, known_labels):
                    result = measure(finding, truth, view)
                    scores = {"perfect": result.perfect, "inclusive": result.inclusive}
                    named = {"attack": result.attack, "knows": result.knows}
                    attacks.append({**named, **scores, "estimated": result.labels_estimated})
        yield system.name, {"labels": labels, "outputs": view.outputs, "attacks": attacks}


def consensus(condition: Condition, systems: Systems, seed: int, bench: Bench) -> Values:
    """Time and count the messages of several agreements on labels (Algorithm 3), over a real server's relay."""
    work, repeats = work_of(condition, seed, bench), int(condition.settings.get("repeats", 5))
    for system in systems:
        settings = dict(system)
        name = str(settings.pop("name"))
        masking = from_dict(Masking, settings, where="systems.")
        # with seeded keys every agreement would be the same one
        client = dataclasses.replace(work.config.client, masking=masking, keys="random")
        with _federation(dataclasses.replace(work.config, client=client), bench) as federation:
            first = federation.learn(work.train, tasks=work.tasks).agreement
            agreements = [first] if first else []  # plain labels need no agreement
            for _ in range(repeats - 1):
                agreements.append(federation.rekey())
            labels = len(federation.labels)
        yield (
            name,
            {
                "clients": len(work.train),
                "labels": labels,
                "seconds": [agreement.seconds for agreement in agreements],
                "messages": [agreement.messages for agreement in agreements],
            },
        )


def converge(condition: Condition, systems: Systems, seed: int, bench: Bench) -> Values:
    """Measure accuracy after every epoch, and the share of answers that still change (an appendix of the paper)."""
    work = work_of(condition, seed, bench)
    problem = Problem.of_workload(work)
    known = starts(problem, "pretrained")
    for system in read_comparison({"systems": list(systems)}).systems:
        bench.tell(f"{system.name}: learning")
        if system.framework is None:
            with _federation(config_of(work, system), bench) as federation:
                federation.learn(work.train, tasks=work.tasks)
                epochs = list(federation.retrace(work.test))
        else:
            epochs = _traced(system.framework, problem, known, work)
        yield (
            system.name,
            {
                "accuracy": [epoch.evaluation.accuracy for epoch in epochs],
                "changed": [epoch.changed for epoch in epochs],
                "rows": epochs[-1].evaluation.overall.rows,
            },
        )


def _traced(framework: Framework, problem: Problem, known: Mapping[str, Start], work: Workload) -> list[Traced]:
    """Train a baseline, and answer all test rows after every epoch."""
    epochs: list[Traced] = []
    before: Answers | None = None

    def watch(network: Network) -> None:
        nonlocal before
        answers = {}
        for client in sorted(work.test):
            rows = as_rows(work.test[client], task=work.tasks.get(client, ""))
            answers[client] = tuple(rows.labels), tuple(network.predict(client, rows.packed))
        epochs.append(Traced.of(answers, before))
        before = answers

    framework.learn(problem, known=known, watch=watch)
    return epochs


@contextmanager
def _federation(config: Config, bench: Bench) -> Iterator[Federation]:
    """Create a federation whose folder is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=bench.scratch) as folder:
        yield Federation(Path(folder) / "run", config=config, progress=bench.progress)


MEASURES: dict[str, Callable[[Condition, Systems, int, Bench], Values]] = {
    "compare": compare,
    "cluster": cluster,
    "converge": converge,
    "consensus": consensus,
}
"""Measurement functions, by kind."""
