"""Fetch published data sets: over HTTPS, verified before unpacking, installed completely or not at all."""

from __future__ import annotations

import errno
import gzip
import hashlib
import http.client
import ipaddress
import os
import shutil
import socket
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

from splitwiper.errors import DataError, DiskFullError, NotFoundError, SplitWiperError
from splitwiper.progress import Progress
from splitwiper_lab.datasets import checksums
from splitwiper_lab.datasets.published import Download, Published

TIMEOUT = 30.0
"""Seconds to wait for a publisher's answer."""
_CHUNK, _MEGABYTE, _DAY = 1 << 18, 10**6, 86_400
_TEMPORARY = ".fetch-"


def fetch(what: Published, *, folder: Path, mirror: str | None = None, progress: Progress | None = None) -> Path:
    """Download a data set, lay it out in a data folder, and return the folder with its files and their checksums.

    The data folder is created if missing. ``mirror`` is the base address of a mirror with the same files; their
    checksums must be the published ones.

    Raises:
        NotFoundError: a file could not be downloaded; the message says how to do it by hand.
        DataError: a file is not the published one.
        DiskFullError: the disk is full.
    """
    base = mirror or what.base
    base += "" if base.endswith("/") else "/"
    with _room(folder) as room:
        staged = room / "set"
        staged.mkdir()
        for offer in what.downloads:
            target = (room if what.packed else staged) / offer.file
            try:
                _download(base + offer.file, offer, target, progress or _silent)
            except SplitWiperError:
                raise
            except (OSError, http.client.HTTPException, ValueError) as problem:  # ValueError: a malformed address
                if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise NotFoundError(
                    f"{base}{offer.file} could not be downloaded ({_reason(problem)}).\n"
                    f"Check the network and try again, or {what.by_hand(folder)}"
                ) from problem
        if what.packed:
            _unpack(what, room / what.downloads[0].file, staged)
        checksums.write(what, staged)
        return _install(staged, folder / what.folder)


@contextmanager
def _room(folder: Path) -> Iterator[Path]:
    """Create a temporary folder inside the data folder, and remove those of fetches that died."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{_TEMPORARY}*"):
            if _abandoned(old):
                shutil.rmtree(old, ignore_errors=True)
        mine = f"{_TEMPORARY}{socket.gethostname()}-{os.getpid()}-"
        with tempfile.TemporaryDirectory(prefix=mine, dir=folder, ignore_cleanup_errors=True) as room:
            yield Path(room)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                errno.ENOSPC, f"no room left in {folder}; nothing was changed. Make room and fetch again"
            ) from problem
        raise


def _abandoned(room: Path) -> bool:
    """Return whether the fetch that made this folder died here, or the folder, perhaps another host's, is a day old."""
    host, _, rest = room.name.removeprefix(_TEMPORARY).rpartition("-")[0].rpartition("-")
    if host == socket.gethostname() and rest.isdecimal():
        try:
            os.kill(int(rest), 0)
        except (ProcessLookupError, OverflowError):
            return True
        except OSError:  # another user's process
            pass
    with suppress(FileNotFoundError):
        return time.time() - room.stat().st_mtime > _DAY
    return False


def _download(address: str, offer: Download, target: Path, progress: Progress) -> None:
    """Stream a file to disk and compare its size and SHA-256 with the published ones."""
    sha256 = hashlib.sha256()
    done, total = 0, max(1, round(offer.size / _MEGABYTE))
    progress(f"fetching {offer.file} (MB)", 0, total)
    with _open(address) as reply, target.open("wb") as file:
        while done <= offer.size and (chunk := reply.read(_CHUNK)):
            file.write(chunk)
            sha256.update(chunk)
            done += len(chunk)
            progress(f"fetching {offer.file} (MB)", min(done // _MEGABYTE, total), total)
    if done != offer.size:
        got = "more than that" if done > offer.size else f"{done:,}"
        raise DataError(
            f"{address} gave {got} instead of {offer.size:,} bytes; nothing was kept. Fetch it again, and if that does "
            "not help the address now offers something else: use a mirror."
        )
    if sha256.hexdigest() != offer.sha256:
        raise DataError(
            f"{address} has the SHA-256 {sha256.hexdigest()} instead of the published {offer.sha256}; nothing was "
            "kept. Fetch it again, and if that does not help do not trust the address: use a mirror."
        )


def _open(address: str) -> IO[bytes]:
    _secure(address)
    request = urllib.request.Request(address, headers={"User-Agent": "splitwiper"})  # noqa: S310 - _secure looked at it
    reply: IO[bytes] = urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT)
    return reply


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from HTTPS to another scheme."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        """Check the address before following it."""
        try:
            _secure(newurl)
        except DataError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _secure(address: str) -> None:
    """Refuse addresses that are not HTTPS, except on this machine."""
    try:
        parts = urllib.parse.urlsplit(address)
        _ = parts.port, (parts.hostname or "").encode("idna")  # both are validated only on access
    except ValueError as problem:
        raise DataError(f"{address} is not an address ({problem}); write it as https://host/folder/.") from problem
    here = parts.hostname == "localhost"
    with suppress(ValueError):
        here = here or ipaddress.ip_address(parts.hostname or "").is_loopback
    if parts.scheme != "https" and not (parts.scheme == "http" and here):
        raise DataError(f"{address} is not an https address; data sets are fetched over https only.")
    if not parts.hostname:
        raise DataError(f"{address} is not an address (it names no host); write it as https://host/folder/.")


def _unpack(what: Published, archive: Path, target: Path) -> None:
    """Write the set's files from a ``.tar.gz`` archive into ``target``, ignoring all other members.

    Names are compared, never used as paths: nothing can be written elsewhere.

    Raises:
        DataError: a name leaves the archive's folder, or a file is duplicated, a link, too large, or missing.
    """
    wanted = {f"{what.folder}/{file}": file for file in what.files}
    found: set[str] = set()
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or "\\" in member.name:
                    raise _refused(archive, f"it holds {member.name!r}, a path out of its own folder")
                file = wanted.get(str(name))
                if file is None:
                    continue
                if not member.isreg() or file in found or member.size > what.limit:
                    why = "there twice" if file in found else "not a plain file" if not member.isreg() else "too large"
                    raise _refused(archive, f"{member.name!r} is {why}")
                found.add(file)
                stream = tar.extractfile(member)
                with (target / file).open("wb") as out:
                    if stream is not None:
                        shutil.copyfileobj(stream, out)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise _refused(archive, f"it is not a whole archive ({problem})") from problem
    if missing := sorted(set(what.files) - found):
        raise _refused(archive, f"{missing[0]!r} is not in it")


def _refused(archive: Path, why: str) -> DataError:
    return DataError(f"{archive.name} is refused: {why}. Nothing was kept: fetch it again, or use a mirror.")


def _install(staged: Path, place: Path) -> Path:
    """Install finished files: rename the whole folder if there is none yet, else replace file by file, the record last.

    An unpacked file next to its fetched ``.gz`` is removed: readers would prefer it, and it may be the damaged one.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        with suppress(OSError):  # another process created it meanwhile
            return staged.rename(place)
    (place / checksums.NAME).unlink(missing_ok=True)
    for file in sorted(staged.iterdir(), key=lambda path: path.name == checksums.NAME):
        file.replace(place / file.name)
        if file.suffix == ".gz":
            (place / file.stem).unlink(missing_ok=True)
    return place


def _reason(problem: Exception) -> str:
    if isinstance(problem, urllib.error.HTTPError):
        problem.close()
        return f"the server answers {problem.code} {problem.reason}"
    if isinstance(problem, urllib.error.URLError):
        problem = problem.reason if isinstance(problem.reason, Exception) else problem
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


def _silent(what: str, done: int, total: int, /, loss: float | None = None) -> None:
    """Ignore progress."""
