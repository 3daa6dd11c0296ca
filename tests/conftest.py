"""One torch thread in all tests, and files in memory: they run side by side on few cores and slow disks."""

import os
import shutil
import tempfile
from pathlib import Path

import torch

torch.set_num_threads(1)

_MEMORY, _ROOM = Path("/dev/shm"), 8 << 30
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ["TMPDIR"] = str(_MEMORY)  # for processes that tests start, too; thousands of syncs cost nothing there
    tempfile.tempdir = None
