"""An authority's index: what it issued, as one JSON line for each event, chained by hashes and signed by the CA.

The first line is a header with the format's version. Every other line has the previous line's hash and a signature, so
the last signature vouches for all lines. A change is one atomic write of the whole file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from splitwiper.errors import FormatError, InputError, NotFoundError, nearest
from splitwiper.service.identity.certificate_builder import Signer, serial_of
from splitwiper.service.identity.folders import damaged, read_lines, to_line, write_lines
from splitwiper.service.identity.names import PRINCIPALS, Kind

FORMAT, VERSION = "splitwiper-authority", 1
INDEX = "index.jsonl"
_SERIAL = re.compile(r"[0-9a-f]{8,40}")
_SIGNATURE = ec.ECDSA(SHA256())
Event = dict[str, Any]
Clock = Callable[[], datetime]
State = Literal["valid", "ending", "expired", "not yet valid", "revoked"]
_LONGEST = 36_500


@dataclass(frozen=True)
class Issued:
    """One certificate.

    Attributes:
        kind: the kind of its owner, called ``name``; ``"authority"`` for a CA's own.
        serial: its serial number, 40 digits in hex.
        authority: the serial number of the CA that signed it.
        hosts: a server's names and addresses.
        ends: when a replaced certificate stops being accepted, if earlier than ``not_after``.
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
    """Return a number of days as a time span; `InputError` if it is not a whole number, or out of range."""
    if isinstance(days, bool) or not isinstance(days, int) or not least <= days <= _LONGEST:
        raise InputError(f"days {days!r}: give a whole number from {least} to {_LONGEST}.")
    return timedelta(days=days)


def moment(text: str) -> datetime:
    """Parse a stored time."""
    return datetime.fromisoformat(text).astimezone(UTC)


class Journal:
    """Everything that an authority did; ``issued`` has every certificate by serial number, in order of issue."""

    def __init__(self, path: Path, lines: list[str]) -> None:
        self.path = path
        self.name: str = json.loads(lines[0])["name"]
        self.issued: dict[str, Issued] = {}
        self._lines = lines
        for line in lines[1:]:
            self._apply(json.loads(line))

    @classmethod
    def start(cls, path: Path, name: str, now: datetime) -> Journal:
        """Return the index of an authority that has done nothing yet, without writing it."""
        heading = {"format": FORMAT, "version": VERSION, "name": name, "created": now.isoformat()}
        return cls(path, [to_line(heading)])

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Read and verify the index on disk; see `Authority` for what it raises."""
        if not path.is_file():
            raise NotFoundError(
                f"there is no certificate authority in {path.parent.parent}: name its folder, or make one with "
                "'splitwiper certs init FOLDER --name NAME --host HOST'."
            )
        lines = read_lines(path, form=FORMAT, version=VERSION)
        try:
            journal = cls(path, lines)
            journal._verify()
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise damaged(path, f"a line is not what was written ({problem})") from problem
        return journal

    def __len__(self) -> int:
        return len(self._lines) - 1

    @property
    def authority(self) -> Issued:
        """The CA's own certificate."""
        return next(issued for issued in self.issued.values() if issued.kind == "authority")

    def names(self, kind: Kind | None = None) -> set[str]:
        """Return the names of all identities of a kind, or of every kind but the CA's."""
        kinds = {kind} if kind else {"server", *PRINCIPALS}
        return {issued.name for issued in self.issued.values() if issued.kind in kinds}

    def current(self, kind: Kind, name: str) -> list[Issued]:
        """Return the certificates of one identity that were neither revoked nor replaced, newest last."""
        current = []
        for issued in self.issued.values():
            if (issued.kind, issued.name) == (kind, name) and issued.is_current:
                current.append(issued)
        return current

    def find(self, which: str, kind: Kind | None = None) -> list[Issued]:
        """Return all certificates of an identity by its name, or one by 8 or more first digits of its serial number.

        Raises:
            NotFoundError: there is none.
            InputError: it may mean several identities, or the CA itself.
        """
        named: list[Issued] = []
        numbered: list[Issued] = []
        for issued in self.issued.values():
            if issued.kind == "authority" or kind not in (None, issued.kind):
                continue
            if issued.name == which:
                named.append(issued)
            if _SERIAL.fullmatch(which) and issued.serial.startswith(which):
                numbered.append(issued)
        # a name may also be the beginning of another certificate's serial number
        if len(set(map(str, named))) + len(numbered) > 1:
            listed = sorted({f"{issued} ({issued.serial[:16]})" for issued in [*named, *numbered]})
            raise InputError(
                f"{which!r} may mean {', '.join(listed)}: say which with --kind (kind=), or give more of a serial "
                "number."
            )
        if named or numbered:
            return named or numbered
        if which in self.issued:
            raise InputError(f"{which!r} is the CA: to replace it, make another one, as docs/how-to/own-pki.md says.")
        raise NotFoundError(
            f"no {kind or 'identity'} is called {which!r}, and no serial number begins so."
            f"{nearest(which, sorted(self.names(kind)))} 'splitwiper certs list FOLDER' shows all."
        )

    def append(self, *events: Event, by: Signer) -> None:
        """Record events, all or none, and apply them."""
        if not events:
            return
        lines = list(self._lines)
        for event in events:
            signed = event | {"previous": _digest(lines[-1]), "by": by.serial}
            signature = base64.b64encode(by.key.sign(to_line(signed).encode(), _SIGNATURE)).decode()
            lines.append(to_line(signed | {"signature": signature}))
        # one atomic write: of a rotation, both events are recorded or neither
        write_lines(self.path, lines)
        self._lines = lines
        for event in events:
            self._apply(event)

    def _verify(self) -> None:
        event = Event()
        for number, (before, line) in enumerate(pairwise(self._lines), start=1):
            event = json.loads(line)
            # spelled again and compared: a line has one spelling, so no byte of it can change unnoticed
            if event["previous"] != _digest(before) or to_line(event) != line:
                raise damaged(self.path, f"line {number} or line {number + 1} was altered, or one between them removed")
        if not event:
            raise damaged(self.path, "everything after its heading is missing")
        # every line has the hash of the one before it, so the signature of the last line covers all of them
        signature, key = base64.b64decode(event.pop("signature")), self.certificate(event["by"]).public_key()
        try:
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise InvalidSignature
            key.verify(signature, to_line(event).encode(), _SIGNATURE)
        except InvalidSignature:
            raise damaged(self.path, f"the CA did not sign line {len(self._lines)}") from None

    def certificate(self, serial: str) -> x509.Certificate:
        """Return a certificate by its serial number."""
        return x509.load_der_x509_certificate(self.issued[serial].der)

    def _apply(self, event: Event) -> None:
        what, serial = event["event"], event.get("serial", "")
        if what == "issued":
            if event["kind"] == "authority" and self.names("authority"):
                raise FormatError(
                    f"{self.path} has a second CA, and this version knows one: make another authority, as "
                    "docs/how-to/own-pki.md says."
                )
            self.issued[serial] = Issued(
                kind=event["kind"],
                name=event["name"],
                serial=serial,
                authority=event["authority"],
                not_before=moment(event["not_before"]),
                not_after=moment(event["not_after"]),
                hosts=tuple(event.get("hosts", ())),
                der=base64.b64decode(event["certificate"]),
            )
        elif what == "revoked":
            self.issued[serial] = replace(self.issued[serial], revoked=moment(event["at"]))
        elif what == "superseded":
            self.issued[serial] = replace(self.issued[serial], ends=moment(event["ends"]))
        else:
            raise FormatError(f"{self.path} has an event {what!r}, which this version does not know: upgrade.")


def issuing(
    certificate: x509.Certificate, *, kind: Kind, name: str, authority: str, now: datetime, hosts: Sequence[str] = ()
) -> Event:
    """Return the event for a new certificate, signed by the CA with the serial number ``authority``."""
    event = {
        "event": "issued",
        "at": now.isoformat(),
        "kind": kind,
        "name": name,
        "serial": serial_of(certificate),
        "authority": authority,
        "not_before": certificate.not_valid_before_utc.isoformat(),
        "not_after": certificate.not_valid_after_utc.isoformat(),
        "certificate": base64.b64encode(certificate.public_bytes(Encoding.DER)).decode(),
    }
    return event | {"hosts": list(hosts)} if hosts else event


def ending(kind: str, issued: Issued, *, now: datetime, **more: str) -> Event:
    """Return the event for a certificate that was revoked or superseded."""
    return {"event": kind, "at": now.isoformat(), "serial": issued.serial} | more


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()
