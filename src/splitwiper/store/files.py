"""Atomic files: a file is there whole or not at all, whatever instant the process dies at.

Every step that changes the disk goes through here and announces itself to `watch`, before and after, so that tests
can stop the process, or fill the disk, at each of them.
"""

from __future__ import annotations

import errno
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

from splitwiper.errors import CorruptError, DiskFullError, SplitWiperError
from splitwiper.reading import explained, explaining, opened
from splitwiper.store.process import Process

TEMPORARY = ".tmp-"
_DAY = 86_400
PIECE = 1 << 24
"""Bytes that are digested in one go, see `file_digest`."""
_watcher: Callable[[str, Path], None] | None = None


@contextmanager
def watch(watcher: Callable[[str, Path], None]) -> Iterator[None]:
    """Call ``watcher("rename:before", path)`` and the like around every step that changes the disk."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


@contextmanager
def step(kind: str, path: Path) -> Iterator[None]:
    """Announce one step, and turn a full disk, or what lies where it should not, into an error that says what to do."""
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
    """The error for a full disk."""
    return DiskFullError(
        errno.ENOSPC,
        f"no room left (disk, quota or file size limit) while writing {path}. Nothing acknowledged was lost: make "
        "room and run the same command again (settle, where it was to forget)",
    )


def random_name(stem: str, suffix: str = ".safetensors") -> str:
    """A fresh file name. It says nothing of the content, so nothing stays behind when the file is erased."""
    return f"{stem}-{secrets.token_hex(8)}{suffix}"


def owned_name(stem: str) -> str:
    """A fresh file name that tells which process is writing the file."""
    me = Process.current()
    return f"{stem}-{me.pid}-{me.started or 0}-{secrets.token_hex(8)}"


@contextmanager
def atomic_file(path: Path, *, mode: int = 0o600, replace: bool = True) -> Iterator[IO[bytes]]:
    """Write a new file at ``path``: temporary file, fsync, rename, fsync of the folder.

    With ``replace=False`` a file that is there meanwhile stays: the first process to make it wins. The folder is made
    where a copy of a run came without its empty folders.
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
        with suppress(OSError):  # what cannot be erased now is swept later
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
    """Create a folder, readable by its owner alone, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with step("mkdir", path):
        path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, for which other processes wait; it ends with the process at the latest."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(ImportError):  # not on Windows
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
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
    """Take a finished file in: by a second name where both lie on one disk, else by a copy."""
    make_folder(target.parent)
    try:
        with step("link", target):
            if source.is_symlink():  # a second name for the link would leave the bytes where they are
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
    """Remove a file durably. Removing what is already gone is fine, and so is an empty folder in a file's place.

    Raises:
        CorruptError: there is a folder with something in it, or a link: what it leads to would stay.
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


def listed(folder: Path) -> list[Path]:
    """The finished files and folders in a folder, sorted; none where there is no such folder."""
    with explaining(folder):
        if not folder.is_dir():
            return []
        return [path for path in sorted(folder.iterdir()) if not path.name.startswith(TEMPORARY)]


def sweep(folder: Path, keep: set[str]) -> list[str]:
    """Erase everything in a folder that is not to be kept: what was superseded or never finished."""
    with explaining(folder):
        stray = [path for path in sorted(folder.iterdir()) if path.name not in keep] if folder.is_dir() else []
    for path in stray:
        erase(path)
    return [path.name for path in stray]


def sweep_abandoned(folder: Path, *, stem: str = "") -> None:
    """Erase files of `owned_name` whose process is gone, and unfinished ones of other names a day old.

    Args:
        folder: where to look.
        stem: look at names that start with this alone.
    """
    with explaining(folder):
        found = sorted(folder.glob(f"{stem}*"))
    for path in found:
        if is_abandoned(path):
            erase(path)


def is_abandoned(path: Path) -> bool:
    """Whether the process that a file of `owned_name` names is gone; of other names, whether the file is a day old."""
    _, *owner = path.name.split("-")
    if len(owner) == 3 and owner[0].isdecimal():
        return not Process(int(owner[0]), owner[1].removeprefix("0"), Process.current().place).may_be_alive()
    return not _is_recent(path)


def _is_recent(path: Path) -> bool:
    """Whether a file was changed within a day; one that is gone, or a link to nowhere, was not."""
    try:
        with explaining(path):
            return path.exists() and time.time() - path.lstat().st_mtime < _DAY
    except FileNotFoundError:
        return False


def file_digest(path: Path, *, known: Mapping[int, bytes] | None = None) -> str:
    """A file's digest, in hex: SHA-256 of the SHA-256s of its pieces, which are computed side by side.

    Args:
        path: the file.
        known: digests of some of its pieces, by their number, from who has seen these very bytes.

    Raises:
        FileNotFoundError: it is not there.
        CorruptError: it is no regular file, but a link, a folder, a pipe or the like.
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
    """Return the digest of an open file, which is `file_digest` of the same bytes under a name."""
    file.seek(0)
    return hashlib.sha256(b"".join(hashlib.sha256(piece).digest() for piece in _pieces(file))).hexdigest()


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    yield file.read(PIECE)  # an empty file is one empty piece
    while piece := file.read(PIECE):
        yield piece
