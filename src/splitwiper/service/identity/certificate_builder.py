"""X.509: private keys, certificates of CAs, servers, clients, operators and auditors, and revocation lists."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from splitwiper.errors import CorruptError, IdentityError, InputError
from splitwiper.service.identity.names import PRINCIPALS, urn
from splitwiper.store.keys import check_private

EARLIER = timedelta(minutes=5)
"""How long before their issue certificates become valid, to allow for clocks that differ."""
PASSPHRASE = "SPLITWIPER_CA_PASSPHRASE"  # noqa: S105
"""The environment variable with the passphrase of the CA's keys."""
REMEDY = "replace it with 'splitwiper certs rotate' if somebody may have"
"""What to do about a private key that others could read."""
_LEAST = 16


@dataclass(frozen=True)
class Signer:
    """A CA's certificate and its key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    @property
    def serial(self) -> str:
        """The serial number of the CA's certificate."""
        return serial_of(self.certificate)


def serial_of(certificate: x509.Certificate) -> str:
    """Return a serial number in the form used by the index and `Principal`: 40 hexadecimal digits."""
    return f"{certificate.serial_number:040x}"


def authority_certificate(
    key: EllipticCurvePrivateKey, *, name: str, now: datetime, span: timedelta
) -> x509.Certificate:
    """Return a self-signed CA certificate. Each CA has a unique name, so that lists and chains are never mixed up."""
    own = x509.NameAttribute(NameOID.COMMON_NAME, f"SplitWiper CA {secrets.token_hex(8)}")
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, name), own])
    return _signed(key, key.public_key(), subject, subject, now - EARLIER, now + span, authority=True)


def leaf_certificate(
    by: Signer,
    public: EllipticCurvePublicKey,
    *,
    kind: str,
    name: str,
    hosts: Iterable[str] = (),
    now: datetime,
    span: timedelta,
) -> x509.Certificate:
    """Return a certificate for a server (with its hosts), or for a client, operator or auditor (with its identity).

    It expires with the CA's certificate at the latest. If that is not valid now, `IdentityError` is raised.
    """
    begin, end = by.certificate.not_valid_before_utc, by.certificate.not_valid_after_utc
    if not begin <= now < end:
        raise IdentityError(
            f"the CA's certificate holds from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, and it is {now:%Y-%m-%d}: set the "
            "clock right, or make another CA with 'splitwiper certs init'."
        )
    unit = x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, kind)
    subject = x509.Name([unit, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    if kind in PRINCIPALS:
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(urn(kind, name))]
    else:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH
        names = [_host(host) for host in hosts]
    more = (x509.ExtendedKeyUsage([purpose]), x509.SubjectAlternativeName(names))
    # a certificate that outlived its CA's would fail for a reason that its own dates do not show
    until = min(now + span, end)
    return _signed(by.key, public, subject, by.certificate.subject, now - EARLIER, until, *more, authority=False)


def revocation_list(
    by: Signer, ended: Iterable[tuple[str, datetime]], *, number: int, now: datetime
) -> x509.CertificateRevocationList:
    """Return the serial numbers of certificates that no longer count, with their end dates, signed by their CA.

    The list is valid for as long as the CA: lists are copied by hand, and an expired one would lock everybody out.
    """
    begin, end = by.certificate.not_valid_before_utc, by.certificate.not_valid_after_utc
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(by.certificate.subject)
        .last_update(min(max(now - EARLIER, begin), end - EARLIER))
        .next_update(end)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key()), critical=False)
    )
    for serial, when in ended:
        entry = x509.RevokedCertificateBuilder().serial_number(int(serial, 16)).revocation_date(when)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(by.key, SHA256())


def _signed(
    by: EllipticCurvePrivateKey,
    public: EllipticCurvePublicKey,
    subject: x509.Name,
    issuer: x509.Name,
    begin: datetime,
    end: datetime,
    *more: x509.ExtensionType,
    authority: bool,
) -> x509.Certificate:
    """Return a certificate with the extensions that all have, and more."""
    usage = x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        # no CA below this one: servers look for the issuer of a certificate among the CAs that they trust
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
    )
    for extension in more:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(by, SHA256())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def new_key() -> EllipticCurvePrivateKey:
    """Return a fresh key on the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def passphrase(given: str | None) -> bytes | None:
    """Return the given passphrase, or the environment's; ``None`` if there is none."""
    text = given if given is not None else os.environ.get(PASSPHRASE, "")
    return text.encode() or None


def check_passphrase(secret: bytes | None) -> None:
    """Refuse a guessable passphrase for a new key, because the file's format slows guessing only a little."""
    if secret is not None and len(secret) < _LEAST:
        raise InputError(
            f"the passphrase in {PASSPHRASE} has {len(secret)} bytes and must have at least {_LEAST}: make one with "
            "'openssl rand -base64 24', or unset the variable to keep the CA's key without one."
        )


def key_pem(key: EllipticCurvePrivateKey, *, secret: bytes | None = None) -> bytes:
    """Return a private key as PKCS #8, encrypted if there is a passphrase."""
    how = form.NoEncryption() if secret is None else form.BestAvailableEncryption(secret)
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, how)


def read_key(path: Path, *, secret: bytes | None) -> EllipticCurvePrivateKey:
    """Return a CA's private key; `IdentityError` if the passphrase is wrong, or others may read the file."""
    check_private(path, remedy=REMEDY)
    # after the check of its rights: a key that others may read is refused, whatever is in it
    data = path.read_bytes()
    locked = b"ENCRYPTED PRIVATE KEY" in data
    if locked and secret is None:
        raise IdentityError(f"the key {path} is encrypted: put its passphrase into {PASSPHRASE}.")
    try:
        key = form.load_pem_private_key(data, secret if locked else None)
    except (ValueError, TypeError) as problem:
        if locked and b"-----END" in data:
            raise IdentityError(f"the passphrase in {PASSPHRASE} does not open {path}: give the right one.") from None
        raise CorruptError(f"{path} is not a private key ({problem}): restore it from a backup.") from problem
    if not isinstance(key, EllipticCurvePrivateKey):
        raise CorruptError(f"{path} holds a key of another kind: restore it from a backup.")
    return key
