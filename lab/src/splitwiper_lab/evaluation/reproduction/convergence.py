"""Convergence (an appendix of the paper): accuracy after every epoch, and the share of answers that still change."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from splitwiper.data.rows import as_rows
from splitwiper.federation import Federation
from splitwiper.federation.retrace import Answers, Traced
from splitwiper_lab.baselines import Network, Problem
from splitwiper_lab.baselines.starting import starts
from splitwiper_lab.evaluation.comparison import System, read_comparison
from splitwiper_lab.evaluation.comparison.splitwiper import config_of
from splitwiper_lab.evaluation.reproduction.experiment import Condition
from splitwiper_lab.evaluation.reproduction.work import Bench, work_of
from splitwiper_lab.workloads import Workload


def converge(
    condition: Condition, systems: Sequence[Mapping[str, Any]], seed: int, bench: Bench
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each system's curves."""
    work = work_of(condition, seed, bench)
    problem = Problem.of_workload(work)
    known = starts(problem, "pretrained")
    for system in read_comparison({"systems": list(systems)}).systems:
        if bench.progress:
            bench.progress(f"{system.name}: learning", 0, 1)
        if system.framework is None:
            found = _ours(work, system, bench.scratch)
        else:
            found = _traced(lambda watch, s=system: s.framework.learn(problem, known=known, watch=watch), work)
        yield (
            system.name,
            {
                "accuracy": [one.evaluation.accuracy for one in found],
                "changed": [one.changed for one in found],
                "rows": found[-1].evaluation.overall.rows,
            },
        )


def _ours(work: Workload, system: System, scratch: Path) -> Sequence[Traced]:
    with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=scratch) as folder:
        federation = Federation(Path(folder) / "run", config=config_of(work, system))
        federation.learn(work.train, tasks=work.tasks)
        return federation.retrace(work.test)


def _traced(learn: Any, work: Workload) -> list[Traced]:
    found: list[Traced] = []
    before: Answers | None = None

    def watch(network: Network) -> None:
        nonlocal before
        now = {name: _answers(network, name, work) for name in sorted(work.test)}
        found.append(Traced.of(now, before))
        before = now

    learn(watch)
    return found


def _answers(network: Network, client: str, work: Workload) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    rows = as_rows(work.test[client], task=work.tasks.get(client, ""))
    return tuple(rows.labels), tuple(network.predict(client, rows.packed))
