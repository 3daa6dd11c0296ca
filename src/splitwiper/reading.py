"""Reading files that somebody may have put something else in place of: a folder, a link, a pipe.

Only regular files are read, so nothing waits for a pipe's other end, and what the operating system says becomes an
error of ours that names the path and the remedy. A file that is not there stays a `FileNotFoundError`: what that means,
the caller knows.
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

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_REPLACED = {errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO}
"""What is told where something else lies in place of a file or a folder."""


def explained(path: Path, problem: OSError) -> StoreError:
    """Return the error that says what is wrong with a file or folder, and what to do."""
    if problem.errno in _REPLACED:
        return CorruptError(
            f"{path} is not as SplitWiper left it ({problem.strerror}): something else lies in its place, or in that "
            "of the folder it is in. Move that away, or restore a backup, and run the same command again."
        )
    return StoreError(
        f"{path} cannot be read or written ({problem}): see to the disk and the permissions, and run the same command "
        "again."
    )


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turn what the operating system says of a file or folder into an error that says what to do.

    Raises:
        FileNotFoundError: it is not there.
        CorruptError: something else lies in its place.
        StoreError: it cannot be read or written.
    """
    try:
        yield
    except (FileNotFoundError, SplitWiperError):
        raise
    except OSError as problem:
        raise explained(path, problem) from problem


def check_regular(path: Path) -> os.stat_result:
    """Check that a path leads to a regular file, and return what the system knows of it.

    Raises:
        FileNotFoundError: it is not there.
        CorruptError: it is something else.
    """
    with explaining(path):
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise _not_regular(path)
    return found


def _not_regular(path: Path) -> CorruptError:
    return CorruptError(f"{path} is not a regular file: move it away, and restore the file from a backup.")


@contextmanager
def opened(path: Path, *, links: bool = True) -> Iterator[IO[bytes]]:
    """Open a regular file for reading.

    Args:
        path: the file.
        links: follow a link. A file that is erased one day may not be one: the bytes would stay where it leads to.

    Raises:
        FileNotFoundError: it is not there.
        CorruptError: it is a folder, a pipe or the like, or a link where there may be none.
        StoreError: it cannot be read.
    """
    with explaining(path):
        if not links and path.is_symlink():
            raise CorruptError(
                f"{path} is a link: erasing it would leave the bytes where it leads to. Put the file itself in its "
                "place."
            )
        descriptor = os.open(path, _FLAGS | (0 if links else getattr(os, "O_NOFOLLOW", 0)))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _not_regular(path)
        with os.fdopen(descriptor, "rb") as file:
            yield file


def read_bytes(path: Path, *, links: bool = True) -> bytes:
    """Return what a regular file holds; arguments and errors are those of `opened`."""
    with opened(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _memory():  # a file with holes has any size that somebody gives it
            raise CorruptError(f"{path} has {size} bytes, more than memory can hold: restore a backup.")
        return file.read()


def _memory() -> int:
    """Bytes of this machine's memory; more than any file has where that cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def is_there(path: Path) -> bool:
    """Whether there is something at a path; false also for what cannot be a path at all."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True
