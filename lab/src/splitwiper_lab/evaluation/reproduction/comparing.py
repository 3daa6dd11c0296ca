"""Compare systems under one condition: accuracy, costs, and membership inference, as `splitwiper compare` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from splitwiper_lab.evaluation.comparison import compared, read_comparison, stage
from splitwiper_lab.evaluation.reproduction.experiment import Condition
from splitwiper_lab.evaluation.reproduction.work import Bench, work_of


def compare(
    condition: Condition, systems: Sequence[Mapping[str, Any]], seed: int, bench: Bench
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each system's record."""
    comparison = read_comparison({**condition.settings, "systems": list(systems)})
    at = stage(work_of(condition, seed, bench), comparison, bench.progress, scratch=bench.scratch)
    for record in compared(at, comparison):
        yield record.system, record.to_dict()
