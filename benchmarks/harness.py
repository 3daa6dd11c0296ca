"""What benchmarks share: results with the machine they were measured on, and processes of their own."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import splitwiper
from benchmarks import suite

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Check:
    """One promise: its target, and what was measured."""

    what: str
    target: str
    measured: str
    met: bool


@dataclass(frozen=True)
class Result:
    """One measurement: the settings it was made with, everything measured, and what it says about promises."""

    parameters: Mapping[str, Any]
    values: Mapping[str, Any]
    checks: Sequence[Check]


def names() -> list[str]:
    """Every benchmark there is."""
    return sorted(module.name for module in pkgutil.iter_modules(suite.__path__))


def load(name: str) -> ModuleType:
    """A benchmark by name."""
    return importlib.import_module(f"benchmarks.suite.{name}")


def title(benchmark: ModuleType) -> str:
    """What it measures, in one line."""
    return (benchmark.__doc__ or "").strip().partition("\n")[0]


def missing(benchmark: ModuleType, *, quick: bool = False) -> str:
    """What it needs that is not here; empty when it can run."""
    return str(benchmark.missing(quick=quick)) if hasattr(benchmark, "missing") else ""


def in_child(name: str, **parameters: Any) -> dict[str, Any]:
    """Run a benchmark's ``child(**parameters)`` in a process of its own, and return what it returns."""
    command = [sys.executable, "-m", "benchmarks", "--child", name, json.dumps(parameters)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"benchmark {name!r}, in a process of its own with {parameters}: exit {done.returncode}.")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def records(name: str, results: Iterable[Result], *, quick: bool, commit: str | None = None) -> list[dict[str, Any]]:
    """Results as they are kept, each with the machine, the versions and the commit."""
    return [
        {
            "name": name,
            "title": title(load(name)),
            "quick": quick,
            **asdict(result),
            "hardware": hardware(),
            "versions": versions(),
            "commit": source(commit),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        for result in results
    ]


def write(folder: Path, name: str, kept: Sequence[Mapping[str, Any]], *, others: bool = False) -> Path:
    """Write a benchmark's results, one JSON line each, in place of its earlier ones.

    Args:
        folder: where.
        name: whose.
        kept: the results.
        others: whether earlier results stay that were measured with other parameters.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    lines = [json.dumps(record) for record in kept]
    if others and path.exists():
        now = [json.loads(line)["parameters"] for line in lines]
        earlier = path.read_text(encoding="utf-8").splitlines()
        lines = [line for line in earlier if json.loads(line)["parameters"] not in now] + lines
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def hardware() -> dict[str, Any]:
    """The machine."""
    return {
        "cpu": _found(r"^model name\s*:\s*(.+)$", "/proc/cpuinfo") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


def versions() -> dict[str, str]:
    """The software."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "splitwiper": splitwiper.__version__,
    }


def source(commit: str | None = None) -> dict[str, Any]:
    """The commit that was measured, and whether files differ from it; None where nobody can tell.

    Args:
        commit: given by the caller, for a copy without a repository.
    """
    head = _git("rev-parse", "HEAD")
    if commit is not None or head is None:
        return {"hash": commit, "dirty": None}
    changed = _git("status", "--porcelain", "--", ".", ":!results") or ""
    return {"hash": head.strip(), "dirty": bool(changed.strip())}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607
    except OSError:
        return None
    return None if done.returncode else done.stdout


def _found(pattern: str, path: str) -> str:
    """The first match in a file of the system, if there is one."""
    try:
        match = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return ""
    return match[1].strip() if match else ""


def status_bytes(field: str) -> int:
    """A size from this process's ``/proc/self/status``, say ``RssAnon`` or ``VmData``."""
    return 1024 * int(_found(rf"^{field}:\s*(\d+) kB$", "/proc/self/status") or 0)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of the line nearest to points, by least squares.

    >>> round(slope([1, 2, 3], [5, 7, 9]), 9)
    2.0
    """
    return float(np.polyfit(x, y, 1)[0])


@contextmanager
def peak_memory(every: float = 0.002) -> Iterator[list[int]]:
    """The largest anonymous memory seen meanwhile, and how often it was looked at."""
    seen, stop = [status_bytes("RssAnon"), 1], threading.Event()

    def look() -> None:
        while not stop.wait(every):
            seen[:] = [max(seen[0], status_bytes("RssAnon")), seen[1] + 1]

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()
