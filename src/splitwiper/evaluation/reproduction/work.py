"""What measurements work with: data, a place for runs, and the workload of a condition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

from splitwiper.errors import ConfigError, nearest
from splitwiper.evaluation.reproduction.experiment import Condition
from splitwiper.workloads import Workload, workload

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Bench:
    """Where measurements take place.

    Attributes:
        scratch: a folder for runs, which are gone when they were measured.
        data: where data sets lie; None takes the usual place.
        progress: told of long work.
    """

    scratch: Path
    data: Path | None = None
    progress: Progress | None = None


def work_of(condition: Condition, seed: int, bench: Bench) -> Workload:
    """The workload of a condition.

    Raises:
        ConfigError: an argument is not known.
    """
    known = [name for name in signature(workload).parameters if name not in ("seed", "folder")]
    for key in condition.work:
        if key not in known:
            hint = nearest(key, known) or f" Known keys: {', '.join(known)}."
            raise ConfigError(f"condition {condition.name!r}: unknown key 'work.{key}'.{hint}")
    return workload(**condition.work, seed=seed, folder=bench.data)
