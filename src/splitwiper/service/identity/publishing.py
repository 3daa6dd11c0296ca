"""Putting an authority's certificates and lists where servers and clients take them from."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from splitwiper.errors import CorruptError, SplitWiperError
from splitwiper.service.identity import folders
from splitwiper.service.identity.folders import AUTHORITY, CA, CERTIFICATE, KEY, REVOKED, SUPERSEDED
from splitwiper.service.identity.journal import Journal
from splitwiper.service.identity.minting import Signer, hex_serial, revocation_list
from splitwiper.service.identity.names import PRINCIPALS, SERVER, Kind
from splitwiper.store.files import TEMPORARY, erase, make_folder, move, sweep_abandoned, write_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

NEXT = "next-"
"""Files that count from the moment the index knows their certificate."""


def folder_of(root: Path, kind: Kind, name: str) -> Path:
    """Where what one party needs is put together."""
    if kind == "authority":
        return root / AUTHORITY
    return root / SERVER if kind == "server" else root / f"{kind}s" / name


def stage(folder: Path, key: EllipticCurvePrivateKey, certificate: Certificate) -> None:
    """Put a new key and certificate beside those that hold until the index knows them."""
    from cryptography.hazmat.primitives.serialization import Encoding

    from splitwiper.service.identity.keys import key_pem

    make_folder(folder)
    write_bytes(folder / f"{NEXT}{KEY}", key_pem(key))
    write_bytes(folder / f"{NEXT}{CERTIFICATE}", certificate.public_bytes(Encoding.PEM))


def finish(root: Path, journal: Journal) -> None:
    """Put staged files in place whose certificate the index knows, erase the others, and what was never finished."""
    for folder in (root / AUTHORITY, *_handed_out(root)):
        sweep_abandoned(folder, stem=TEMPORARY)
        key, certificate = folder / f"{NEXT}{KEY}", folder / f"{NEXT}{CERTIFICATE}"
        if certificate.is_file() and _is_known(certificate, journal):
            if key.is_file():
                move(key, folder / KEY)
            move(certificate, folder / CERTIFICATE)
        for leftover in (certificate, key):
            if leftover.is_file():
                erase(leftover)
        with suppress(OSError):  # of somebody who never got a certificate; all others have files
            folder.rmdir()


def publish(root: Path, journal: Journal, signers: list[Signer], now: datetime) -> None:
    """Write bundle and lists as the index has them: to the server's folder, and the bundle to everybody's."""
    from cryptography.hazmat.primitives.serialization import Encoding

    own, server = root / AUTHORITY, root / SERVER
    make_folder(server)
    bundle = b"".join(s.certificate.public_bytes(Encoding.PEM) for s in reversed(signers))
    if _number(own) < len(journal):
        revoked = {one.serial: one.revoked for one in journal.issued.values() if one.revoked}
        ends = {one.serial: one.ends for one in journal.issued.values() if one.ends}
        revoked |= {serial: when for serial, when in ends.items() if when <= now and serial not in revoked}
        for file, dates in ((SUPERSEDED, ends), (REVOKED, revoked)):
            write_bytes(own / file, _lists(journal, signers, dates, now))
    lists = [(server / file, (own / file).read_bytes()) for file in (REVOKED, SUPERSEDED)]
    old = (server / CA).read_bytes() if (server / CA).is_file() else b""
    bundles = [
        (folder / CA, bundle) for folder in _handed_out(root) if (folder / CERTIFICATE).is_file() or folder == server
    ]
    # a server that reads between two of these writes must find a list for every CA it trusts
    for path, data in bundles + lists if len(bundle) < len(old) else lists + bundles:
        folders.write_changed(path, data)


def whole_index(root: Path, path: Path) -> Journal:
    """The index, if it is not older than the lists made from it. Others may add to it meanwhile.

    Raises:
        CorruptError: it is older.
    """
    journal = Journal.read(path)
    number = _number(root / AUTHORITY)
    with suppress(SplitWiperError):  # what is wrong with the server's copy is put right with the next change
        number = max(number, _number(root / SERVER, journal))
    if number > len(journal):
        journal = Journal.read(path)  # an entry and its list may have come since it was read; entries never go
    if number > len(journal):
        raise CorruptError(
            f"{journal.path} has {len(journal)} entries, and a revocation list in {root} was made from {number}: the "
            "end is missing, or it is from an old backup. Restore the newest one; certificates that were revoked since "
            "would be accepted again."
        )
    return journal


def _handed_out(root: Path) -> list[Path]:
    """The folders of servers, clients, operators and auditors that are still here."""
    places = [root / SERVER, *(place for kind in PRINCIPALS for place in (root / f"{kind}s").glob("*"))]
    return [place for place in sorted(places) if place.is_dir()]


def _is_known(path: Path, journal: Journal) -> bool:
    (certificate,) = folders.certificates(path)
    known = journal.issued.get(hex_serial(certificate.serial_number))
    return known is not None and known.is_current


def _lists(journal: Journal, signers: list[Signer], dates: dict[str, datetime], now: datetime) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    out = b""
    for signer in reversed(signers):
        own = hex_serial(signer.certificate.serial_number)
        mine = [(serial, when) for serial, when in dates.items() if journal.issued[serial].authority == own]
        out += revocation_list(signer, mine, number=len(journal), now=now).public_bytes(Encoding.PEM)
    return out


def _number(folder: Path, journal: Journal | None = None) -> int:
    """How many entries of the index the lists in a folder were made from; 0 where there is none.

    With an index, lists of other authorities, which an operator may have added, are left out.
    """
    from cryptography import x509

    if not (folder / REVOKED).is_file():
        return 0
    found = folders.revocation_lists(folder / REVOKED)
    if journal is not None:
        own = [journal.certificate(one.serial).subject for one in journal.authorities]
        found = [one for one in found if one.issuer in own]
    return max((one.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number for one in found), default=0)
