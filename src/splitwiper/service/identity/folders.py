"""Small identity files: JSON lines with a version, PEM bundles, and rereading after changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from cryptography import x509

from splitwiper.errors import CorruptError, FormatError, NotFoundError
from splitwiper.service.certificate.canonical import dumps
from splitwiper.store.files import write_bytes

AUTHORITY = "authority"
CA, CERTIFICATE, KEY = "ca.pem", "certificate.pem", "key.pem"
REVOKED, SUPERSEDED, TOKENS = "revoked.pem", "superseded.pem", "tokens.jsonl"
Stamp = tuple[tuple[int, int, int] | None, ...]
_Value = TypeVar("_Value")


def stamp(*paths: Path) -> Stamp:
    """Return a value that differs after any of the files has changed."""
    stamps = list[tuple[int, int, int] | None]()
    for path in paths:
        try:
            state = path.stat()
        except FileNotFoundError:
            stamps.append(None)
        else:
            # the inode too: files are replaced by renaming, and two writes may fall into one tick of the clock
            stamps.append((state.st_mtime_ns, state.st_size, state.st_ino))
    return tuple(stamps)


class Reloaded(Generic[_Value]):
    """A value that ``load`` reads from files, and reads again after they changed.

    While the files cannot be read, there is no value: each call tries again, and raises the error.
    """

    def __init__(self, load: Callable[[], _Value], *paths: Path) -> None:
        self._load, self._paths = load, paths
        self._lock = threading.Lock()
        self._read: tuple[Stamp, _Value] | None = None

    def value(self) -> _Value:
        """Return the value as the files have it now."""
        with self._lock:
            now = stamp(*self._paths)
            if self._read is None or self._read[0] != now:
                self._read = None  # first: if loading fails, the old value must not count any longer
                self._read = now, self._load()
            return self._read[1]


def to_line(value: Mapping[str, Any]) -> str:
    """Return a record as one JSON line, without the newline."""
    return dumps(value).decode("ascii")


def read_lines(path: Path, *, form: str, version: int) -> list[str]:
    """Return the lines of a file, its header first; `CorruptError` if damaged, `FormatError` if of a newer version."""
    text = path.read_bytes().decode("utf-8", "replace")
    lines = text.split("\n")
    if lines.pop():  # every line that was written whole ends with a newline
        raise damaged(path, f"line {len(lines) + 1} was cut short")
    try:
        heading = json.loads(lines[0])
        name, number = heading["format"], heading["version"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise damaged(path, "line 1 is not its heading") from None
    if name != form:
        raise damaged(path, f"it is a file of format {name!r}, not {form!r}")
    if not isinstance(number, int) or number > version:
        raise FormatError(f"{path} has version {number!r} of its format, and {version} is the newest known: upgrade.")
    return lines


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Replace a file's contents with these lines, atomically."""
    write_bytes(path, "".join(f"{line}\n" for line in lines).encode())


def write_changed(path: Path, data: bytes) -> None:
    """Write a file unless it already has this content."""
    if not path.is_file() or path.read_bytes() != data:
        write_bytes(path, data)


def damaged(path: Path, how: str) -> CorruptError:
    """Return the error for a damaged file."""
    return CorruptError(f"{path} is damaged: {how}. Restore it from a backup, or copy it again from where it was made.")


def read_pem(path: Path) -> bytes:
    """Return the bytes of a file in a folder that was handed out, or raise `NotFoundError`."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no {path.name} in {path.parent}: copy the whole folder that 'splitwiper certs' made."
        ) from None


def certificates(path: Path) -> list[x509.Certificate]:
    """Return the certificates in a PEM file, at least one; `NotFoundError` or `CorruptError` if there is none."""
    try:
        return x509.load_pem_x509_certificates(read_pem(path))
    except ValueError as problem:
        raise damaged(path, f"no certificate can be read from it ({problem})") from problem


def revocation_lists(path: Path) -> list[x509.CertificateRevocationList]:
    """Return the revocation lists in a PEM file; `NotFoundError` or `CorruptError` if there is none."""
    ending = b"-----END X509 CRL-----"
    *blocks, rest = read_pem(path).split(ending)
    try:
        if rest.strip() or not blocks:
            raise ValueError("it was cut short")
        return [x509.load_pem_x509_crl(block + ending + b"\n") for block in blocks]
    except ValueError as problem:
        raise damaged(path, f"no revocation list can be read from it ({problem})") from problem
