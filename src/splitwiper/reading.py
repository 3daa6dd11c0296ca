"""Read files that somebody may have replaced by a folder, a link or a pipe.

Only regular files are read, so nothing waits for a pipe's other end, and errors of the operating system become
errors of ours that name the path and the remedy. A missing file stays a `FileNotFoundError`: the caller knows what
that means.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from splitwiper.errors import CorruptError, SplitWiperError, StoreError

_FLAGS = os.O_RDONLY | os.O_NONBLOCK  # so that opening a pipe does not wait for its other end
_REPLACED = {errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO}
"""Errors that mean that something else is in place of a file or a folder."""


def explained(path: Path, problem: OSError) -> StoreError:
    """Return the error that describes what is wrong with a file or folder, and the remedy."""
    if problem.errno in _REPLACED:
        return CorruptError(
            f"{path} is not as SplitWiper left it ({problem.strerror}): it, or a folder above it, was "
            "replaced by something else. Move that away, or restore a backup, and run the same command again."
        )
    return StoreError(
        f"{path} cannot be read or written ({problem}): check the disk (free space, quotas, permissions), and run "
        "the same command again."
    )


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turn the operating system's errors about a file or folder, except a missing one, into `StoreError`s of ours."""
    try:
        yield
    except (FileNotFoundError, SplitWiperError):
        raise
    except OSError as problem:
        raise explained(path, problem) from problem


def check_regular(path: Path) -> os.stat_result:
    """Check that a path leads to a regular file, and return its status."""
    with explaining(path):
        status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path)
    return status


def _not_regular(path: Path) -> CorruptError:
    return CorruptError(f"{path} is not a regular file: move it away, and restore the file from a backup.")


@contextmanager
def opened(path: Path, *, links: bool = True) -> Iterator[IO[bytes]]:
    """Open a regular file for reading, and refuse a folder, a pipe or the like.

    Forbid ``links`` for files that are erased one day: the bytes would stay in the link's target.
    """
    with explaining(path):
        if not links and path.is_symlink():
            raise CorruptError(
                f"{path} is a link: erasing it would leave the bytes where it leads to. Put the file itself in its "
                "place."
            )
        # O_NOFOLLOW and fstat look at the file that is opened, whatever replaced it since it was looked at by name
        descriptor = os.open(path, _FLAGS | (0 if links else os.O_NOFOLLOW))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _not_regular(path)
        with os.fdopen(descriptor, "rb") as file:
            yield file


def read_bytes(path: Path, *, links: bool = True) -> bytes:
    """Return the content of a regular file; arguments and errors are those of `opened`."""
    with opened(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _memory():  # a sparse file can have any size
            raise CorruptError(f"{path} has {size} bytes, more than memory can hold: restore a backup.")
        return file.read()


def _memory() -> int:
    """Return the bytes of this machine's memory; if unknown, more than any file has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return sys.maxsize


def is_there(path: Path) -> bool:
    """Return whether something exists at a path; False also for an invalid path."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True
