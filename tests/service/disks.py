"""Small disks for tests: memory that is mounted as a file system."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


class Disk:
    """A disk of a few megabytes, that can be filled and emptied."""

    def __init__(self, folder: Path, megabytes: int = 4) -> None:
        folder.mkdir(parents=True)
        self.folder, self._ballast = folder, folder / "ballast"
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True)
        except FileNotFoundError:
            done = None
        if done is None or done.returncode:
            pytest.skip("only root can mount a small disk")

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        self._ballast.unlink()

    def gone(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)
