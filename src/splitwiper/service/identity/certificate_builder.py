"""X.509: certificates of CAs, servers, clients, operators and auditors, and revocation lists."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from splitwiper.errors import IdentityError
from splitwiper.service.identity.names import PRINCIPALS, urn

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

EARLIER = timedelta(minutes=5)
"""How long before their issue certificates become valid, to allow for clocks that differ."""


@dataclass(frozen=True)
class Signer:
    """A CA's certificate and its key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey


def hex_serial(number: int) -> str:
    """Return a serial number in the form used by the index and `Principal`."""
    return f"{number:040x}"


def authority_certificate(
    key: EllipticCurvePrivateKey, *, name: str, now: datetime, span: timedelta
) -> x509.Certificate:
    """Return a self-signed CA certificate. Each CA has a unique name, so that lists and chains are never mixed up."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, name),
            x509.NameAttribute(NameOID.COMMON_NAME, f"SplitWiper CA {secrets.token_hex(8)}"),
        ]
    )
    public = key.public_key()
    builder = _builder(public, subject, subject, now - EARLIER, now + span)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(authority=True), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False)
    return _signed(builder, key)


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

    It expires with the CA's certificate at the latest.

    Raises:
        IdentityError: the CA's own certificate is not valid now.
    """
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    end = by.certificate.not_valid_after_utc
    if not by.certificate.not_valid_before_utc <= now < end:
        raise IdentityError(
            f"the CA's certificate holds from {by.certificate.not_valid_before_utc:%Y-%m-%d} to {end:%Y-%m-%d}, and it "
            f"is {now:%Y-%m-%d}: set the clock right, or make a new one with 'splitwiper certs rotate FOLDER --ca'."
        )
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, kind),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    if kind in PRINCIPALS:
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(urn(kind, name))]
    else:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH
        names = [_host(host) for host in hosts]
    builder = _builder(public, subject, by.certificate.subject, now - EARLIER, min(now + span, end))
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(authority=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(_issuer(by), critical=False)
    return _signed(builder, by.key)


def revocation_list(
    by: Signer, ended: Iterable[tuple[str, datetime]], *, number: int, now: datetime
) -> x509.CertificateRevocationList:
    """Return the serial numbers of certificates that no longer count, with their end dates, signed by their CA.

    The list is valid for as long as the CA: lists are copied by hand, and an expired one would lock everybody out.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    begin, end = by.certificate.not_valid_before_utc, by.certificate.not_valid_after_utc
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(by.certificate.subject)
        .last_update(min(max(now - EARLIER, begin), end - EARLIER))
        .next_update(end)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(_issuer(by), critical=False)
    )
    for serial, when in ended:
        entry = x509.RevokedCertificateBuilder().serial_number(int(serial, 16)).revocation_date(when)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(by.key, SHA256())


def _builder(
    public: EllipticCurvePublicKey, subject: x509.Name, issuer: x509.Name, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives.hashes import SHA256

    return builder.sign(key, SHA256())


def _issuer(by: Signer) -> x509.AuthorityKeyIdentifier:
    from cryptography import x509

    own = by.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _usage(*, authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
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


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
