"""One torch thread in all tests, and files in memory: they run side by side on few cores and slow disks.

Tests with many expensive cases are marked ``share(parts)``: each day another part of their cases runs. All of them run
with ``SPLITWIPER_TEST_SHARE=all``, and a case that the command line names always runs. ``SPLITWIPER_TEST_SHARE=3`` runs
a third of all tests. ``SPLITWIPER_TEST_THREADS`` sets torch's threads in the tests' own process; see
scripts/test_matrix.py.
"""

import functools
import gc
import os
import shutil
import tempfile
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
import torch
import typer.main
import typer.testing

torch.set_num_threads(int(os.environ.get("SPLITWIPER_TEST_THREADS", "1")))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start: two that spin slow each other down

# typer makes all commands anew from their functions each time one is called: it takes 0.02 s, and tests call a thousand
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)

_MEMORY, _ROOM = Path("/dev/shm"), 8 << 30
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ["TMPDIR"] = str(_MEMORY)  # for processes that tests start, too; thousands of syncs cost nothing there
    tempfile.tempdir = None

_COMPUTE = ("attacks", "baselines", "federation", "masking", "models", "privacy", "server", "splitting", "wire")
"""Folders of tests that depend on what a processor computes: `make test` runs them under two instruction sets."""
_COMPUTING = tuple(Path(__file__).parent / tests / name for tests in ("tests", "lab/tests") for name in _COMPUTE)

_SHARE = os.environ.get("SPLITWIPER_TEST_SHARE", "1")
# in the environment, so that all worker processes choose the same cases, even around midnight
_DAY = int(os.environ.setdefault("SPLITWIPER_TEST_DAY", str(date.today().toordinal())))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing else where only the tests that compute are asked for."""
    if not config.option.markexpr.startswith("computes"):
        return None
    inside = any(collection_path.is_relative_to(folder) for folder in _COMPUTING)
    above = any(folder.is_relative_to(collection_path) for folder in _COMPUTING)
    return None if inside or above else True


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from going through torch's modules and thousands of tests again and again."""
    gc.freeze()


@functools.cache  # per file: asked anew for each test, this alone takes most of a second
def _computes(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _COMPUTING)


def pytest_itemcollected(item: pytest.Item) -> None:
    if _computes(item.path):
        item.add_marker("computes")


@pytest.hookimpl(trylast=True)  # a share is one of the cases that ``-m`` left, so that no function is left without any
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _SHARE == "all" or any("::" in argument for argument in config.args):
        return
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    counts: Counter[object] = Counter()
    for item in items:
        share = item.get_closest_marker("share")
        # the cases of a marked function are counted by themselves: some of them run on every day
        group = (item.path, getattr(item, "originalname", "")) if share else None
        parts = max(int(_SHARE), share.args[0] if share else 1)
        (chosen if (counts[group] + _DAY) % parts == 0 else others).append(item)
        counts[group] += 1
    items[:] = chosen
    config.hook.pytest_deselected(items=others)
