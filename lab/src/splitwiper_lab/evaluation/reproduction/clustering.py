"""Clustering of masked labels by a curious server (Section 6.4, and BIRCH in an appendix)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from splitwiper.federation import Federation
from splitwiper_lab.attacks import Evidence, ServerView, Truth, measure
from splitwiper_lab.attacks.code_groups import birch_means, kmeans_means
from splitwiper_lab.attacks.measuring import labels_present
from splitwiper_lab.evaluation.comparison import read_comparison
from splitwiper_lab.evaluation.comparison.splitwiper import config_of
from splitwiper_lab.evaluation.reproduction.experiment import Condition
from splitwiper_lab.evaluation.reproduction.work import Bench, work_of


def cluster(
    condition: Condition, systems: Sequence[Mapping[str, Any]], seed: int, bench: Bench
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure k-means and BIRCH against each way of hiding labels, with the number of labels and without."""
    work = work_of(condition, seed, bench)
    for system in read_comparison({"systems": list(systems)}).systems:
        if bench.progress:
            bench.progress(f"{system.name}: learning", 0, 1)
        with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=bench.scratch) as folder:
            run = Path(folder) / "run"
            federation = Federation(run, config=config_of(work, system), progress=bench.progress)
            federation.learn(work.train, tasks=work.tasks)
            view, truth = ServerView.of(run / "server", federation.halves), Truth.of(federation)
            evidence = Evidence(view, device=work.config.server.device, seed=seed)
            labels = labels_present(truth, view)
            found = []
            for attack, told in product((kmeans_means, birch_means), (None, labels)):
                found += [measure(finding, truth, view) for finding in attack(evidence, told)]
        yield (
            system.name,
            {
                "labels": labels,
                "outputs": view.outputs,
                "attacks": [
                    {
                        "attack": one.attack,
                        "knows": one.knows,
                        "perfect": one.perfect,
                        "inclusive": one.inclusive,
                        "estimated": one.labels_estimated,
                    }
                    for one in found
                ],
            },
        )
