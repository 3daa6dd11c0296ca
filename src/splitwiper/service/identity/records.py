"""The certificates that an authority issued, and their states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from splitwiper.errors import InputError
from splitwiper.service.identity.names import Kind

Clock = Callable[[], datetime]
State = Literal["valid", "ending", "expired", "not yet valid", "revoked"]
_LONGEST = 36_500


@dataclass(frozen=True)
class Issued:
    """One certificate.

    Attributes:
        kind: the kind of its owner; ``"authority"`` for a CA's own.
        name: the owner's name.
        serial: its serial number, 40 digits in hex.
        authority: the serial number of the CA that signed it.
        not_before: the start of its validity.
        not_after: the end of its validity.
        hosts: a server's names and addresses.
        ends: when a replaced certificate stops being accepted, if earlier than ``not_after``.
        revoked: when it was revoked.
        der: the certificate itself, in DER form.
    """

    kind: Kind
    name: str
    serial: str
    authority: str
    not_before: datetime
    not_after: datetime
    hosts: tuple[str, ...] = ()
    ends: datetime | None = None
    revoked: datetime | None = None
    der: bytes = field(default=b"", repr=False)

    @property
    def is_current(self) -> bool:
        """Whether it is the identity's newest certificate, neither revoked nor replaced."""
        return self.revoked is None and self.ends is None

    def state(self, at: datetime) -> State:
        """Return its state at a given time."""
        if self.revoked is not None:
            return "revoked"
        if at < self.not_before:
            return "not yet valid"
        if at > self.not_after or (self.ends is not None and at >= self.ends):
            return "expired"
        return "ending" if self.ends is not None else "valid"

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def utc_now() -> datetime:
    """Return the time, to the second: certificates have no finer resolution."""
    return datetime.now(UTC).replace(microsecond=0)


def check_days(days: int, *, least: int = 1) -> timedelta:
    """Return a number of days as a time span.

    Raises:
        InputError: it is not a whole number, or out of range.
    """
    if isinstance(days, bool) or not isinstance(days, int) or not least <= days <= _LONGEST:
        raise InputError(f"days {days!r}: give a whole number from {least} to {_LONGEST}.")
    return timedelta(days=days)


def moment(text: str) -> datetime:
    """Parse a stored time."""
    return datetime.fromisoformat(text).astimezone(UTC)
