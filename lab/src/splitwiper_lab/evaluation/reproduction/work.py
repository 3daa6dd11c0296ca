"""What measurements need: data, a folder for runs, and the workload of a condition."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

from splitwiper.errors import ConfigError, check_keys
from splitwiper.progress import Progress
from splitwiper.seeding import digest
from splitwiper.store.files import owned_name
from splitwiper.store.process import Process
from splitwiper_lab.evaluation.reproduction.experiment import Condition
from splitwiper_lab.workloads import Workload, workload


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a folder for runs, and remove it at the end. Folders of killed measurements are removed too."""
    place, here = Path(tempfile.gettempdir()), Process.current().place
    stem = f"splitwiper-reproduce-{digest(here)[:8]}"  # other machines may share it, with other pids
    for left in place.glob(f"{stem}-*-*-*"):
        number, started = left.name.removeprefix(f"{stem}-").split("-")[:2]
        # the time it was started tells a process from a later one with the same number
        # another measurement may be using its folder now
        if number.isdigit() and not Process(int(number), started.removeprefix("0"), here).may_be_alive():
            shutil.rmtree(left, ignore_errors=True)
    folder = place / owned_name(stem)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Bench:
    """The folders and the progress callback of measurements."""

    scratch: Path
    data: Path | None = None
    progress: Progress | None = None

    def tell(self, step: str) -> None:
        """Say which step begins."""
        if self.progress:
            self.progress(step, 0, 1)


def work_of(condition: Condition, seed: int, bench: Bench) -> Workload:
    """Return the workload of a condition.

    Raises:
        ConfigError: an argument is not known.
    """
    known = [name for name in signature(workload).parameters if name not in ("seed", "folder")]
    try:
        check_keys(condition.work, known, where="work.")
    except ConfigError as problem:
        raise ConfigError(f"condition {condition.name!r}: {problem}") from problem
    return workload(**condition.work, seed=seed, folder=bench.data)
