"""Fetch published data sets: over https, checked before anything is unpacked, put in place whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import http.client
import ipaddress
import shutil
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from splitwiper.data import checksums
from splitwiper.data.published import Download, Published
from splitwiper.data.unpack import unpack
from splitwiper.errors import DataError, DiskFullError, NotFoundError

Progress = Callable[[str, int, int], None]
"""Called with what is being done, and how many of how many megabytes are."""
TIMEOUT = 30.0
"""Seconds a publisher may stay silent."""
_CHUNK, _MEGABYTE, _DAY = 1 << 18, 10**6, 86_400
_TEMPORARY = ".fetch-"


def fetch(what: Published, *, folder: Path, mirror: str | None = None, progress: Progress | None = None) -> Path:
    """Download a data set and lay it out in a data folder.

    Args:
        what: the set.
        folder: the data folder; made if it is not there.
        mirror: a base address that offers the same files; their checksums must be the published ones.
        progress: hears of progress.

    Returns:
        The folder with its files and a record of their checksums.

    Raises:
        NotFoundError: a file could not be downloaded; the message says how to do it by hand.
        DataError: what came is not what was published.
        DiskFullError: there is no room.
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
            except (OSError, http.client.HTTPException) as problem:
                if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise NotFoundError(
                    f"{base}{offer.file} could not be downloaded ({_reason(problem)}). Check the network and try "
                    f"again, or by hand: {what.by_hand(folder)}"
                ) from problem
        if what.packed:
            unpack(what, room / what.downloads[0].file, staged)
        checksums.write(what, staged)
        return _install(staged, folder / what.folder)


@contextmanager
def _room(folder: Path) -> Iterator[Path]:
    """A temporary folder inside the data folder; what fetches that died left behind a day ago is removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{_TEMPORARY}*"):
            if time.time() - old.stat().st_mtime > _DAY:
                shutil.rmtree(old, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=folder, ignore_cleanup_errors=True) as room:
            yield Path(room)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                errno.ENOSPC, f"no room left in {folder}; nothing was changed. Make room and fetch again"
            ) from problem
        raise


def _download(address: str, offer: Download, target: Path, progress: Progress) -> None:
    """Stream a file to disk and compare its size and checksums with the published ones."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    done, total = 0, max(1, round(offer.size / _MEGABYTE))
    progress(f"fetching {offer.file} (MB)", 0, total)
    with _open(address) as reply, target.open("wb") as file:
        while done <= offer.size and (chunk := reply.read(_CHUNK)):
            file.write(chunk)
            md5.update(chunk)
            sha256.update(chunk)
            done += len(chunk)
            progress(f"fetching {offer.file} (MB)", min(done // _MEGABYTE, total), total)
    if done != offer.size:
        got = "more than that" if done > offer.size else f"{done:,}"
        raise DataError(
            f"{address} gave {got} instead of {offer.size:,} bytes; nothing was kept. Fetch it again, and if that does "
            "not help the address now offers something else: use a mirror."
        )
    if (md5.hexdigest(), sha256.hexdigest()) != (offer.md5, offer.sha256):
        raise DataError(
            f"{address} has the MD5 {md5.hexdigest()} instead of the published {offer.md5} (SHA-256 {offer.sha256}); "
            "nothing was kept. Fetch it again, and if that does not help do not trust the address: use a mirror."
        )


def _open(address: str) -> IO[bytes]:
    _secure(address)
    request = urllib.request.Request(address, headers={"User-Agent": "splitwiper"})  # noqa: S310 - _secure looked at it
    reply: IO[bytes] = urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT)
    return reply


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but never out of https."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        """Look at the address before it is followed."""
        try:
            _secure(newurl)
        except DataError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _secure(address: str) -> None:
    """Refuse what is not https, but for this machine itself."""
    try:
        parts = urllib.parse.urlsplit(address)
    except ValueError as problem:
        raise DataError(f"{address} is not an address ({problem}).") from problem
    here = parts.hostname == "localhost"
    with suppress(ValueError):
        here = here or ipaddress.ip_address(parts.hostname or "").is_loopback
    if parts.scheme != "https" and not (parts.scheme == "http" and here):
        raise DataError(f"{address} is not an https address; data sets are fetched over https only.")


def _install(staged: Path, place: Path) -> Path:
    """Put finished files in place: the folder at once where there is none, else file by file, the record last."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        with suppress(OSError):  # somebody else made it meanwhile
            return staged.rename(place)
    (place / checksums.NAME).unlink(missing_ok=True)
    for file in sorted(staged.iterdir(), key=lambda path: path.name == checksums.NAME):
        file.replace(place / file.name)
    return place


def _reason(problem: Exception) -> str:
    if isinstance(problem, urllib.error.HTTPError):
        problem.close()
        return f"the server answers {problem.code} {problem.reason}"
    if isinstance(problem, urllib.error.URLError):
        problem = problem.reason if isinstance(problem.reason, Exception) else problem
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


def _silent(what: str, done: int, total: int) -> None:
    """Hear of progress and say nothing."""
