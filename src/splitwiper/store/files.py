"""Atomic files: a file exists whole or not at all, at whatever instant the process dies.

Every step that makes or replaces a file that counts goes through this module and calls the watcher of `watch` before
and after, so that tests can stop the process, or fill the disk, at each step.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from splitwiper.errors import BusyError, CorruptError, DiskFullError, SplitWiperError
from splitwiper.reading import explained, explaining, opened
from splitwiper.store.process import Process

TEMPORARY = ".tmp-"
_DAY = 86_400
PIECE = 1 << 24
"""Bytes per piece of a digest, see `file_digest`."""
_TRIES = 50
"""Attempts to erase a folder that others write to."""
_watcher: Callable[[str, Path], None] | None = None


@contextmanager
def watch(watcher: Callable[[str, Path], None]) -> Iterator[None]:
    """Call ``watcher("rename:before", path)`` and so on around every step of this module that changes the disk."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


@contextmanager
def step(kind: str, path: Path) -> Iterator[None]:
    """Announce one step, and turn a full disk or a wrong kind of file into an error that says what to do."""
    try:
        if _watcher:
            _watcher(f"{kind}:before", path)
        yield
        if _watcher:
            _watcher(f"{kind}:after", path)
    except OSError as problem:
        if isinstance(problem, SplitWiperError):
            raise
        if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise disk_full(path) from problem
        raise explained(path, problem) from problem


def disk_full(path: Path) -> DiskFullError:
    """Return the error for a full disk."""
    return DiskFullError(
        errno.ENOSPC,
        f"no room left (disk, quota or file size limit) while writing {path}. Nothing acknowledged was lost. Make "
        "room and run the same command again; if it says that the rows are gone already, run settle",
    )


def random_name(stem: str, suffix: str = ".safetensors") -> str:
    """Return a fresh file name. It reveals nothing of the content, so erasing the file leaves no trace."""
    return f"{stem}-{secrets.token_hex(8)}{suffix}"


def owned_name(stem: str) -> str:
    """Return a fresh file name that contains the process that writes the file."""
    me = Process.current()
    return f"{stem}-{me.pid}-{me.started or 0}-{secrets.token_hex(8)}"


@contextmanager
def atomic_file(path: Path, *, mode: int = 0o600, replace: bool = True) -> Iterator[IO[bytes]]:
    """Write a new file at ``path``: temporary file, fsync, rename, fsync of the folder.

    With ``replace=False`` a file that appears meanwhile stays: the first process to create it wins. The folder is
    created if missing, since a copy of a run may lack empty folders.
    """
    make_folder(path.parent)
    temporary = path.with_name(owned_name(TEMPORARY.rstrip("-")))
    try:
        with step("write", path):
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                with step("fsync", path):
                    os.fsync(file.fileno())
        with step("rename", path):
            if replace:
                temporary.replace(path)
            else:
                with suppress(FileExistsError):
                    path.hardlink_to(temporary)
                temporary.unlink()
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):  # a file that cannot be erased now is swept later
            temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Write a whole small file atomically."""
    with atomic_file(path, replace=replace) as file:
        file.write(data)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder durable."""
    with step("fsync-folder", folder):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder durably, accessible only to its owner."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with step("mkdir", path):
        path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)


@contextmanager
def locked(path: Path, *, busy: str | None = None) -> Iterator[None]:
    """Lock a file, or a folder (created if missing), against other processes, at most until this one ends.

    If another process holds the lock, wait for it, or with ``busy`` raise a `BusyError` with that message.
    """
    if not path.exists():
        make_folder(path)
    # The lock is on the file or folder itself. A lock file, as other libraries use, would be a stray in a folder whose
    # files are all accounted for, and would have to outlive them: who erases it lets two processes hold "the" lock.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            raise BusyError(str(busy)) from None
        yield
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Move a finished file into place, durably."""
    make_folder(target.parent)
    with step("rename", target):
        source.replace(target)
    sync_folder(target.parent)


def adopt(source: Path, target: Path) -> None:
    """Take over a finished file: by a hard link if both paths are on one disk, else by a copy."""
    make_folder(target.parent)
    try:
        with step("link", target):
            if source.is_symlink():  # a hard link to the link would leave the bytes where they are
                raise OSError(errno.EXDEV, "a link cannot be adopted")
            target.hardlink_to(source)
    except OSError as problem:
        if isinstance(problem, DiskFullError):
            raise
        with opened(source) as incoming, atomic_file(target) as file:
            shutil.copyfileobj(incoming, file, 1 << 20)
    else:
        sync_folder(target.parent)


def erase(path: Path) -> None:
    """Remove a file durably. A missing file is fine, and so is an empty folder in its place.

    A folder with content, or a link, is refused with a `CorruptError`: the content would remain.
    """
    with step("unlink", path):
        if path.is_symlink() and path.exists():
            raise CorruptError(
                f"{path} is a link to {path.readlink()}: erasing it would leave the bytes there. Remove both, and run "
                "the same command again."
            )
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    if path.parent.is_dir():
        sync_folder(path.parent)


def erase_folder(folder: Path) -> None:
    """Remove a folder of files durably, and the files first. A missing one is fine, and so is a file in its place.

    Processes that are just ending may still write to it for a moment, so it is tried for some seconds.
    """
    for left in reversed(range(_TRIES)):
        is_folder = folder.is_dir() and not folder.is_symlink()
        try:
            for path in sorted(folder.iterdir()) if is_folder else ():
                erase(path)
            erase(folder)
            return
        except OSError:
            if not (is_folder and left):
                raise
            time.sleep(0.1)


def listed(folder: Path) -> list[Path]:
    """Return the finished files and folders in a folder, sorted; none if the folder does not exist."""
    with explaining(folder):
        if not folder.is_dir():
            return []
        return [path for path in sorted(folder.iterdir()) if not path.name.startswith(TEMPORARY)]


def sizes(folder: Path) -> dict[str, int]:
    """Return the size of everything in a folder by name; what another process erases meanwhile is left out."""
    found: dict[str, int] = {}
    with explaining(folder):
        paths = list(folder.iterdir()) if folder.is_dir() else []
    for path in paths:
        with suppress(FileNotFoundError):
            found[path.name] = path.lstat().st_size
    return found


def sweep(folder: Path, keep: set[str]) -> list[str]:
    """Erase everything in a folder except the names to keep: superseded and unfinished files."""
    with explaining(folder):
        strays = {path.name for path in folder.iterdir()} - keep if folder.is_dir() else set()
    for name in sorted(strays):
        erase(folder / name)
    return sorted(strays)


def sweep_abandoned(folder: Path, *, stem: str = "") -> None:
    """Erase what has a name that starts with ``stem`` and no process writes any more, see `is_abandoned`."""
    with explaining(folder):
        paths = sorted(folder.glob(f"{stem}*"))
    for path in filter(is_abandoned, paths):
        erase_folder(path)


def is_abandoned(path: Path) -> bool:
    """Return whether the process in a name of `owned_name` is gone; for other names, whether the file is a day old."""
    _, *owner = path.name.split("-")
    if len(owner) == 3 and owner[0].isdecimal():
        return not Process(int(owner[0]), owner[1].removeprefix("0"), Process.current().place).may_be_alive()
    try:
        with explaining(path):
            # a dangling link is nobody's work; and another process may erase the file at any moment
            return not path.exists() or time.time() - path.lstat().st_mtime >= _DAY
    except FileNotFoundError:
        return True


def file_digest(path: Path, *, known: Mapping[int, bytes] | None = None) -> str:
    """Return a file's digest in hex: the SHA-256 of the SHA-256s of its pieces, which are computed in parallel.

    Args:
        path: the file; a link, a folder, a pipe or the like is refused.
        known: digests of some pieces by number, computed earlier from the same bytes.
    """
    given = known or {}
    with opened(path, links=False) as file:
        size = os.fstat(file.fileno()).st_size
    numbers = range(-(-max(1, size) // PIECE))

    def piece(number: int) -> bytes:
        if number in given:
            return given[number]
        with opened(path, links=False) as file:
            file.seek(number * PIECE)
            value, left = hashlib.sha256(), PIECE
            while left and (chunk := file.read(min(left, 1 << 20))):
                value.update(chunk)
                left -= len(chunk)
        return value.digest()

    if sum(number not in given for number in numbers) < 2:
        return hashlib.sha256(b"".join(map(piece, numbers))).hexdigest()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as readers:
        return hashlib.sha256(b"".join(readers.map(piece, numbers))).hexdigest()


def digest_of(file: IO[bytes]) -> str:
    """Return the digest of an open file, equal to `file_digest` of the same bytes under a name."""
    file.seek(0)
    digests, piece = b"", file.read(PIECE)  # an empty file is one empty piece
    while piece or not digests:
        digests += hashlib.sha256(piece).digest()
        piece = file.read(PIECE)
    return hashlib.sha256(digests).hexdigest()
