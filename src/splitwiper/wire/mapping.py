"""Files mapped into memory without a descriptor each.

Python's own ``mmap``, and so ``np.memmap``, keeps a descriptor open for as long as the map lives. A server that trains
on a thousand shards would need thousands of them, where a process may usually open 1,024 files.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_FAILED = ctypes.c_void_p(-1).value


def mapped(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Map a file into memory, read only; the map is released with the last array that refers to it."""
    size = path.stat().st_size
    return np.asarray(_Map(path, size)) if size else np.empty(0, np.uint8)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


class _Map:
    """Holds a map while an array refers to it."""

    def __init__(self, path: Path, size: int) -> None:
        self._unmap = _libc().munmap  # still available while Python shuts down
        self._size = size
        self._at: int | None = None
        descriptor = os.open(path, os.O_RDONLY)
        try:
            at = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        finally:
            os.close(descriptor)  # the map stays valid without it
        if at == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, f"{os.strerror(number)}: {path} cannot be mapped into memory")
        self._at = at
        # NumPy keeps this object alive as the array's base, and with it the map
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (at, True)}

    def __del__(self) -> None:
        if self._at is not None:
            self._unmap(self._at, self._size)
