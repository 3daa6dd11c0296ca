"""One torch thread in all tests, and files in memory: they run side by side on few cores and slow disks.

`SPLITWIPER_TEST_THREADS` gives the tests' own process another number of threads; see scripts/test_matrix.py.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch

torch.set_num_threads(int(os.environ.get("SPLITWIPER_TEST_THREADS", "1")))

_MEMORY, _ROOM = Path("/dev/shm"), 8 << 30
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ["TMPDIR"] = str(_MEMORY)  # for processes that tests start, too; thousands of syncs cost nothing there
    tempfile.tempdir = None

_COMPUTE = ("attacks", "baselines", "federation", "masking", "models", "privacy", "server", "splitting", "wire")
"""Folders of tests that depend on what a processor computes: `make test` runs them under two instruction sets."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = tuple(Path(__file__).parent / tests / name for tests in ("tests", "lab/tests") for name in _COMPUTE)
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in folders):
            item.add_marker("computes")
