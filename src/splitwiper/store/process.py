"""Processes that hold a lease: their identity, and whether they can still be alive."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from splitwiper.errors import FormatError


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return a process's start time in ticks since boot; empty if the system does not provide it, or it has ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""  # a zombie counts as ended


def _place() -> str:
    """Return the host, its boot and the process namespace: the scope in which a process number is unique."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return f"{platform.node()} {_read('/proc/sys/kernel/random/boot_id')} {namespace}"


@dataclass(frozen=True)
class Process:
    """A process by number, start time and place, so that a reused number is not mistaken for it."""

    pid: int
    started: str
    place: str

    @classmethod
    def current(cls) -> Process:
        """Return this process."""
        return cls(os.getpid(), _started(os.getpid()), _place())

    @property
    def text(self) -> str:
        """The process as stored text."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Process:
        """Parse a process from its text, or raise `FormatError`."""
        try:
            process = cls(**json.loads(text))
        except (ValueError, TypeError, RecursionError) as problem:
            raise FormatError(f"{text!r} does not name a process ({problem}).") from problem
        if type(process.pid) is not int or not isinstance(process.started, str) or not isinstance(process.place, str):
            raise FormatError(f"{text!r} does not name a process: it has a number, a start and a place.")
        return process

    def is_here(self) -> bool:
        """Return whether that process and this one see the same process numbers."""
        return self.place == _place()

    def may_be_alive(self) -> bool:
        """Return False only if it is certainly gone: in the same scope, its number is unused or belongs to another."""
        if not self.is_here():
            return True
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):  # no system has numbers that large
            return False
        except PermissionError:
            pass
        return _started(self.pid) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {next(iter(self.place.split()), 'an unknown machine')}"
