"""Note every step that changes the disk in processes that tests start, and kill one of them at a chosen step.

A process that `warm` starts with `FOLDER` in its environment writes the name of each step that it takes to
``FOLDER/ROLE.log`` (see `splitwiper.store.files.watch`). With `DEATH`, the first process of a role that comes to the
n-th step of a name kills itself there with SIGKILL: nothing is cleaned up, no other thread goes on.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER, DEATH = "SPLITWIPER_TEST_STEPS", "SPLITWIPER_TEST_DEATH"
_watching: list[AbstractContextManager[None]] = []


@dataclass(frozen=True)
class Step:
    """The n-th step of a name in a process of a role."""

    role: str
    event: str
    number: int

    def __str__(self) -> str:
        return f"{self.role}: {self.event} #{self.number}"


def environment(folder: Path, death: Step | None = None) -> dict[str, str]:
    """What a process needs in its environment to be watched."""
    return {FOLDER: str(folder), DEATH: json.dumps(asdict(death)) if death else ""}


def taken(folder: Path, role: str) -> list[Step]:
    """All steps that processes of a role have taken."""
    path, counts = folder / f"{role}.log", Counter[str]()
    out = []
    for event in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        counts[event] += 1
        out.append(Step(role, event, counts[event]))
    return out


def died(folder: Path) -> bool:
    """Whether a process has killed itself."""
    return (folder / "died").exists()


def watch(role: str) -> None:
    """Watch the steps of this process from now on, if its environment says so."""
    if not os.environ.get(FOLDER):
        return
    from splitwiper.store import files

    folder = Path(os.environ[FOLDER])
    death = Step(**json.loads(os.environ[DEATH])) if os.environ.get(DEATH) else None
    log = os.open(folder / f"{role}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    counts, lock = Counter[str](), threading.Lock()

    def note(kind: str, path: Path) -> None:
        event = f"{kind} {_same_in_all_runs(path, folder.parent)}"
        with lock:
            counts[event] += 1
            here = Step(role, event, counts[event])
        os.write(log, f"{event}\n".encode())
        if here == death and _first(folder / "died"):
            os.kill(os.getpid(), signal.SIGKILL)

    _watching.append(files.watch(note))  # kept: it ends when it is collected
    _watching[-1].__enter__()


def _first(mark: Path) -> bool:
    try:
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _same_in_all_runs(path: Path, root: Path) -> str:
    """Return a path without the parts that are random, or made from something random."""
    name = str(path.absolute().relative_to(root.absolute()) if path.is_absolute() else path)
    return re.sub(r"[0-9]+-[0-9]+-[0-9a-f]{16}|[0-9a-f]{16,}", "*", name)
