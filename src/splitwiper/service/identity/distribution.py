"""Publishing an authority's certificates and lists to the folders of servers and clients."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from splitwiper.errors import CorruptError, SplitWiperError
from splitwiper.service.identity import folders
from splitwiper.service.identity.certificate_builder import Signer, key_pem, revocation_list, serial_of
from splitwiper.service.identity.folders import AUTHORITY, CA, CERTIFICATE, KEY, REVOKED, SUPERSEDED
from splitwiper.service.identity.index import INDEX, Journal
from splitwiper.service.identity.names import PRINCIPALS, SERVER, Kind
from splitwiper.store.files import TEMPORARY, erase, make_folder, move, sweep_abandoned, write_bytes

NEXT = "next-"
"""Prefix of staged files, which take effect once the index knows their certificate."""


def folder_of(root: Path, kind: Kind, name: str) -> Path:
    """Return the folder with everything that one party needs."""
    if kind == "authority":
        return root / AUTHORITY
    return root / SERVER if kind == "server" else root / f"{kind}s" / name


def stage(folder: Path, key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    """Write a new key and certificate next to the current ones, until the index knows the certificate."""
    make_folder(folder)
    write_bytes(folder / f"{NEXT}{KEY}", key_pem(key))
    write_bytes(folder / f"{NEXT}{CERTIFICATE}", certificate.public_bytes(Encoding.PEM))


def finish(root: Path, journal: Journal) -> None:
    """Install staged files whose certificate the index knows; erase other staged files and unfinished writes."""
    for folder in (root / AUTHORITY, *_handed_out(root)):
        sweep_abandoned(folder, stem=TEMPORARY)
        key, certificate = folder / f"{NEXT}{KEY}", folder / f"{NEXT}{CERTIFICATE}"
        # the index is the commit point: what it knows takes effect, everything else never happened
        if certificate.is_file() and _is_known(certificate, journal):
            if key.is_file():
                move(key, folder / KEY)
            move(certificate, folder / CERTIFICATE)
        for leftover in (certificate, key):
            if leftover.is_file():
                erase(leftover)
        with suppress(OSError):  # the folder of a party that never got a certificate; all others contain files
            folder.rmdir()


def publish(root: Path, journal: Journal, signer: Signer, now: datetime) -> None:
    """Write the CA's certificate to all folders, and the revocation lists to the server's, as the index has them."""
    own, server = root / AUTHORITY, root / SERVER
    make_folder(server)
    # numbered by the length of the index, so that an index older than a list is noticed
    if _number(own, journal) < len(journal):
        revoked: dict[str, datetime] = {}
        ends: dict[str, datetime] = {}
        for issued in journal.issued.values():
            if issued.ends is not None:
                ends[issued.serial] = issued.ends
            if issued.revoked is not None:
                revoked[issued.serial] = issued.revoked
            elif issued.ends is not None and issued.ends <= now:
                revoked[issued.serial] = issued.ends
        for file, dates in ((SUPERSEDED, ends), (REVOKED, revoked)):
            made = revocation_list(signer, dates.items(), number=len(journal), now=now)
            write_bytes(own / file, made.public_bytes(Encoding.PEM))
    # made once for each entry of the index and kept with it: signing them again would change their bytes
    # and before the CA's certificate: a server that reads in between must find a list for every CA that it trusts
    for file in (REVOKED, SUPERSEDED):
        folders.write_changed(server / file, (own / file).read_bytes())
    for folder in _handed_out(root):
        if folder == server or (folder / CERTIFICATE).is_file():
            folders.write_changed(folder / CA, signer.certificate.public_bytes(Encoding.PEM))


def whole_index(root: Path) -> Journal:
    """Return the index, after checking that it is not older than the lists made from it (`CorruptError`)."""
    path = root / AUTHORITY / INDEX
    journal = Journal.read(path)
    number = _number(root / AUTHORITY, journal)
    with suppress(SplitWiperError):  # damage to the server's copy is repaired by the next change
        number = max(number, _number(root / SERVER, journal))
    if number > len(journal):
        journal = Journal.read(path)  # both may have grown since the first read; entries never go
    if number > len(journal):
        raise CorruptError(
            f"{journal.path} has {len(journal)} entries, and a revocation list in {root} was made from {number}: the "
            "end is missing, or it is from an old backup. Restore the newest one; certificates that were revoked since "
            "would be accepted again."
        )
    return journal


def _handed_out(root: Path) -> list[Path]:
    """Return the folders of servers, clients, operators and auditors that are still on this machine."""
    places = [root / SERVER]
    for kind in PRINCIPALS:
        places += (root / f"{kind}s").glob("*")
    return sorted(filter(Path.is_dir, places))


def _is_known(path: Path, journal: Journal) -> bool:
    (certificate,) = folders.certificates(path)
    known = journal.issued.get(serial_of(certificate))
    return known is not None and known.is_current


def _number(folder: Path, journal: Journal) -> int:
    """Return the number of index entries that the lists in a folder were made from; 0 if there are no lists."""
    if not (folder / REVOKED).is_file():
        return 0
    own, newest = journal.certificate(journal.authority.serial).subject, 0
    for revocations in folders.revocation_lists(folder / REVOKED):
        if revocations.issuer == own:  # an operator may have added lists of other authorities
            newest = max(newest, revocations.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number)
    return newest
