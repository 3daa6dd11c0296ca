"""An authority's index: one JSON line for each event, chained by hashes and signed by the CA.

The first line is a header with the format's version. Every other line has the previous line's hash and a signature, so
the last signature vouches for all lines. A change is one atomic write of the whole file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from splitwiper.errors import FormatError, InputError, NotFoundError, nearest
from splitwiper.service.identity.certificate_builder import Signer, serial_of
from splitwiper.service.identity.folders import damaged, read_lines, to_line, write_lines
from splitwiper.service.identity.names import Kind
from splitwiper.service.identity.records import Issued, moment

FORMAT, VERSION = "splitwiper-authority", 1
INDEX = "index.jsonl"
_SERIAL = re.compile(r"[0-9a-f]{8,40}")
_SIGNATURE = ec.ECDSA(SHA256())
Event = dict[str, Any]


class Journal:
    """Everything that an authority did.

    Attributes:
        name: the authority's name.
        issued: every certificate by serial number, in order of issue.
    """

    def __init__(self, path: Path, lines: list[str]) -> None:
        self.path = path
        self.name: str = json.loads(lines[0])["name"]
        self.issued: dict[str, Issued] = {}
        self._lines = lines
        for _, event in self._events():
            self._apply(event)

    @classmethod
    def start(cls, path: Path, name: str, now: datetime) -> Journal:
        """Return the index of an authority that has done nothing yet, without writing it."""
        heading = {"format": FORMAT, "version": VERSION, "name": name, "created": now.isoformat()}
        return cls(path, [to_line(heading)])

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Read and verify the index on disk.

        Raises:
            NotFoundError: there is none.
            CorruptError: it was altered.
            FormatError: a newer version wrote it.
        """
        if not path.is_file():
            raise NotFoundError(
                f"there is no certificate authority in {path.parent.parent}: name its folder, or make one with "
                "'splitwiper certs init FOLDER --name NAME --host HOST'."
            )
        lines = read_lines(path, form=FORMAT, version=VERSION)
        try:
            found = cls(path, lines)
            found._verify()
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise damaged(path, f"a line is not what was written ({problem})") from problem
        return found

    def __len__(self) -> int:
        return len(self._lines) - 1

    @property
    def authority(self) -> Issued:
        """The CA's own certificate."""
        return next(one for one in self.issued.values() if one.kind == "authority")

    def identity(self, kind: Kind, name: str) -> list[Issued]:
        """Return all certificates of one identity, newest last."""
        return [one for one in self.issued.values() if (one.kind, one.name) == (kind, name)]

    def find(self, which: str, kind: Kind | None = None) -> list[Issued]:
        """Return all certificates of an identity by its name, or one by 8 or more first digits of its serial number.

        Raises:
            NotFoundError: there is none.
            InputError: it may mean several identities, or the CA itself.
        """
        named: list[Issued] = []
        numbered: list[Issued] = []
        known: set[str] = set()
        for one in self.issued.values():
            if one.kind == "authority" or kind not in (None, one.kind):
                continue
            known.add(one.name)
            if one.name == which:
                named.append(one)
            if _SERIAL.fullmatch(which) and one.serial.startswith(which):
                numbered.append(one)
        if len({(one.kind, one.name) for one in named}) + len(numbered) > 1:
            listed = ", ".join(sorted({f"{one} ({one.serial[:16]})" for one in [*named, *numbered]}))
            raise InputError(
                f"{which!r} may mean {listed}: say which with --kind (kind=), or give more of a serial number."
            )
        if named or numbered:
            return named or numbered
        if which in self.issued:
            raise InputError(f"{which!r} is the CA: to replace it, make another one, as docs/how-to/own-pki.md says.")
        raise NotFoundError(
            f"no {kind or 'identity'} is called {which!r}, and no serial number begins so."
            f"{nearest(which, sorted(known))} 'splitwiper certs list FOLDER' shows all."
        )

    def append(self, *events: Event, by: Signer) -> None:
        """Record events, all or none, and apply them."""
        if not events:
            return
        lines = list(self._lines)
        for event in events:
            line = event | {"previous": _digest(lines[-1]), "by": by.serial}
            signature = by.key.sign(to_line(line).encode(), _SIGNATURE)
            line["signature"] = base64.b64encode(signature).decode()
            lines.append(to_line(line))
        write_lines(self.path, lines)
        self._lines = lines
        for event in events:
            self._apply(event)

    def _events(self) -> Iterator[tuple[str, Event]]:
        for line in self._lines[1:]:
            yield line, json.loads(line)

    def _verify(self) -> None:
        before, line, event = self._lines[0], "", Event()
        for number, (line, event) in enumerate(self._events(), start=2):
            # spelled again and compared: a line has one spelling, so no byte of it can change unnoticed
            if event["previous"] != _digest(before) or to_line(event) != line:
                raise damaged(self.path, f"line {number - 1} or line {number} was altered, or one between them removed")
            before = line
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
            if event["kind"] == "authority" and any(one.kind == "authority" for one in self.issued.values()):
                raise FormatError(
                    f"{self.path} has a second CA, and this version knows one: make another authority, as "
                    "docs/how-to/own-pki.md says."
                )
            self.issued[serial] = _issued(event)
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


def ending(what: str, one: Issued, *, now: datetime, **more: str) -> Event:
    """Return the event for a certificate that was revoked or superseded."""
    return {"event": what, "at": now.isoformat(), "serial": one.serial} | more


def _issued(event: Mapping[str, Any]) -> Issued:
    return Issued(
        kind=event["kind"],
        name=event["name"],
        serial=event["serial"],
        authority=event["authority"],
        not_before=moment(event["not_before"]),
        not_after=moment(event["not_after"]),
        hosts=tuple(event.get("hosts", ())),
        der=base64.b64decode(event["certificate"]),
    )


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()
