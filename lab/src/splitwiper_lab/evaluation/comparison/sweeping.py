"""A comparison as a sweep: its conditions, its cells, and how some of them are measured."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splitwiper.config import config_digest
from splitwiper.progress import Progress
from splitwiper_lab.evaluation.comparison.membership import exposures
from splitwiper_lab.evaluation.comparison.record import Record
from splitwiper_lab.evaluation.comparison.running import Key, compared
from splitwiper_lab.evaluation.comparison.settings import Comparison
from splitwiper_lab.evaluation.comparison.stage import stage
from splitwiper_lab.evaluation.comparison.summary import summary
from splitwiper_lab.sweeps import Cell, CellResult, machines
from splitwiper_lab.sweeps.cells import comparison_cell
from splitwiper_lab.workloads import Workload


def conditions(title: str, work: Workload, comparison: Comparison) -> dict[str, Any]:
    """Return the conditions of a comparison; results under other conditions are not mixed with these."""
    about: dict[str, Any] = {
        "title": title,
        "level": comparison.level,
        "forgets": f"{'everything' if comparison.level == 'client' else work.forget} at {work.owner}",
        "clients": len(work.train),
        "rows": sum(len(labels) for _, labels in work.train.values()),
        "M": work.config.server.epochs,
        "N": work.config.client.epochs,
        "bandwidth": comparison.bandwidth,
        "codec": work.config.client.codec,
    }
    if comparison.level == "sample":
        about["delta"] = comparison.delta
    if comparison.absent:
        about["absent"] = comparison.absent
    if comparison.membership.shadow:  # so that results without an attacker stay valid
        about["membership"] = dataclasses.asdict(comparison.membership)
    return {**about, "settings": config_digest(work.config, seed=0)[:16], "data": _content(work)}


def _content(work: Workload) -> str:
    """Return a digest of all clients' rows: the same settings on other data are another comparison."""
    out = hashlib.sha256()
    for part in (work.train, work.test):
        for name in sorted(part):
            inputs, labels = part[name]
            columns = inputs if isinstance(inputs, Mapping) else {"": inputs}
            out.update(f"{name} {work.tasks.get(name, '')} {list(map(str, labels))}".encode())
            for column in sorted(columns):
                out.update(np.ascontiguousarray(columns[column]).data)
    return out.hexdigest()[:16]


def comparison_cells(about: Mapping[str, Any], comparison: Comparison, seeds: Iterable[int]) -> dict[Cell, Key]:
    """Return every cell of a comparison, with the key of the record that is measured for it."""
    keys = {}
    for seed in seeds:
        for system in comparison.systems:
            for way, settings in system.ways.items():
                keys[comparison_cell(about, system.name, way, seed, settings)] = (system.name, way, seed)
    return keys


def check_record(result: CellResult) -> None:
    """Check that a result can be shown.

    Raises:
        KeyError: something is missing; or TypeError, ValueError, AttributeError: something is wrong.
    """
    record = Record.from_dict(result.values)
    summary([record], bandwidth=1e8)
    exposures([record])
    machines([result])


@dataclass(frozen=True)
class ComparisonMeasure:
    """Measures cells of one seed, for `splitwiper_lab.sweeps.sweep`."""

    read: Callable[[int], Workload]
    comparison: Comparison
    keys: Mapping[Cell, Key]
    progress: Progress | None = None
    scratch: Path | None = None

    def __call__(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Yield each cell with its record."""
        wanted = {self.keys[cell]: cell for cell in cells}  # all cells have one seed, so they share the stage
        at = stage(self.read(cells[0].seed), self.comparison, self.progress, scratch=self.scratch)
        for record in compared(at, self.comparison, only=wanted):
            yield wanted[record.key], record.to_dict()
