"""Verifying a client certificate and identifying its owner, as a server does for every request."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from splitwiper.errors import IdentityError, NotFoundError
from splitwiper.service.identity import folders
from splitwiper.service.identity.certificate_builder import serial_of
from splitwiper.service.identity.folders import CA, CERTIFICATE, REVOKED, SUPERSEDED, Reloaded, certificates
from splitwiper.service.identity.index import Clock, utc_now
from splitwiper.service.identity.names import Principal, PrincipalKind, stated

_UNREADABLE = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What reading an invalid or unusual certificate may raise."""
_REMEMBERED = 4096
"""Verified certificates that are kept in memory."""


@dataclass(frozen=True)
class _TrustedCA:
    """A trusted CA, and the end dates of certificates that it revoked or superseded, by serial number."""

    certificate: x509.Certificate
    revoked: dict[int, datetime]
    ends: dict[int, datetime]


@dataclass(frozen=True)
class _Verified:
    """A certificate whose signature, path, purpose and identity were verified, which no later moment changes."""

    certificate: x509.Certificate
    issuer: _TrustedCA
    owner: Principal
    who: str
    """The certificate and its owner, for messages."""


class _Authorities:
    """The trusted CAs, and the certificates that were verified with them: each is shown again with every call."""

    def __init__(self, believed: Sequence[_TrustedCA]) -> None:
        self._believed = believed
        self._known: dict[bytes, _Verified] = {}

    def read(self, der: bytes) -> _Verified:
        """Verify everything about a certificate that does not depend on the time; errors are as in `principal`."""
        if (known := self._known.get(der)) is not None:
            return known
        leaf = x509.load_der_x509_certificate(der)
        issuer = self._issuer(leaf)
        _check_usage(leaf)
        kind, name = _identity(leaf)
        who = f"the certificate {serial_of(leaf)[:16]} of {kind} {name!r}"
        _verify(leaf, issuer.certificate, who)
        # only certificates of trusted CAs get here, so nobody else can empty the memory
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        return self._known.setdefault(der, _Verified(leaf, issuer, Principal(kind, name, serial_of(leaf)), who))

    def _issuer(self, leaf: x509.Certificate) -> _TrustedCA:
        for authority in self._believed:
            # two CAs may have one name: the signature decides
            with suppress(InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
                leaf.verify_directly_issued_by(authority.certificate)
                return authority
        raise IdentityError(
            f"the certificate {serial_of(leaf)[:16]} ({leaf.subject.rfc4514_string()}) was not signed "
            "by a CA that this server trusts: use one that this server's operator issued."
        )


class Trust:
    """The CAs that a server trusts, with their revocations.

    Changed files are reloaded, so a revocation takes effect from the next check on. While they cannot be read, nobody
    is trusted. Times and revocations are checked each time; signatures once, as verifying one takes a fifth of a call.

    Raises:
        NotFoundError: a file of the server's folder is missing.
        CorruptError: a file is damaged, or a CA did not sign its list.
    """

    def __init__(self, folder: str | Path, *, clock: Clock = utc_now) -> None:
        self.folder, self._clock = Path(folder), clock
        self._files = [self.folder / name for name in (CA, REVOKED, SUPERSEDED)]
        self._believed = Reloaded(self._load, *self._files)
        # read once now, so that a server with unusable files does not start
        self._believed.value()

    def principal(self, der: bytes | None, *, at: datetime | None = None) -> Principal:
        """Return the owner of a certificate.

        Args:
            der: the certificate whose key the peer of a TLS connection proved to hold.
            at: the time to judge at; now by default.

        Raises:
            IdentityError: it is not trusted; the message says why.
            NotFoundError, CorruptError: files of the folder are missing or damaged; nobody is trusted meanwhile.
        """
        if not der:
            raise IdentityError("no certificate was shown: connect with certificate.pem and key.pem of your folder.")
        try:
            known = self._believed.value().read(der)
        except _UNREADABLE as problem:
            raise IdentityError(f"the certificate cannot be read ({problem}): ask for a new one.") from problem
        leaf, issuer, when = known.certificate, known.issuer, at or self._clock()
        _check_times(leaf, issuer.certificate, when)
        if leaf.serial_number in issuer.revoked:
            raise IdentityError(f"{known.who} was revoked: ask the server's operator for a new one.")
        ends = issuer.ends.get(leaf.serial_number)
        if ends is not None and ends <= when:
            raise IdentityError(f"{known.who} was replaced, and accepted until {ends:%Y-%m-%d %H:%M}: use the new one.")
        return known.owner

    def _load(self) -> _Authorities:
        bundle, revoked, superseded = self._files
        believed = []
        for certificate in folders.certificates(bundle):
            # a CA without a list is refused: deleting the list would take back every revocation
            if (dates := _listed(certificate, revoked)) is None:
                raise NotFoundError(
                    f"{revoked} has no list of the CA {certificate.subject.rfc4514_string()}, which {bundle} trusts: "
                    "append that CA's revocation list, which may be empty."
                )
            ends = _listed(certificate, superseded) if superseded.is_file() else None
            believed.append(_TrustedCA(certificate, dates, ends or {}))
        return _Authorities(believed)


def _listed(authority: x509.Certificate, path: Path) -> dict[int, datetime] | None:
    """Return serial numbers and dates on a CA's lists in a file; ``None`` if it has no list there."""
    dates: dict[int, datetime] | None = None
    for revocations in folders.revocation_lists(path):
        if revocations.issuer != authority.subject:
            continue
        if not revocations.is_signature_valid(authority.public_key()):  # type: ignore[arg-type]
            raise folders.damaged(path, f"{authority.subject.rfc4514_string()} did not sign its list")
        dates = (dates or {}) | {entry.serial_number: entry.revocation_date_utc for entry in revocations}
    return dates


def _verify(leaf: x509.Certificate, root: x509.Certificate, who: str) -> None:
    """Verify the whole path by the rules of RFC 5280, at a moment when both certificates are valid, if there is one."""
    when = max(leaf.not_valid_before_utc, root.not_valid_before_utc)
    builder = PolicyBuilder().store(Store([root])).time(when).max_chain_depth(0)
    try:
        builder.build_client_verifier().verify(leaf, [])
    except VerificationError as problem:
        raise IdentityError(f"{who} does not verify ({problem}): ask for a new one.") from problem


def _check_times(leaf: x509.Certificate, authority: x509.Certificate, when: datetime) -> None:
    for what, shown in (("the certificate", leaf), ("the CA's certificate", authority)):
        serial, begin, end = serial_of(shown)[:16], shown.not_valid_before_utc, shown.not_valid_after_utc
        if when < begin:
            raise IdentityError(
                f"{what} {serial} is not valid before {begin:%Y-%m-%d %H:%M}, and it is {when:%Y-%m-%d %H:%M} here "
                "(UTC): set the clocks right."
            )
        if when > end:
            raise IdentityError(
                f"{what} {serial} expired {end:%Y-%m-%d %H:%M} (UTC): ask for a new one, made by 'splitwiper certs "
                "rotate'."
            )


def _check_usage(leaf: x509.Certificate) -> None:
    serial = serial_of(leaf)[:16]
    try:
        usages = set(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        usages = set()
    if ExtendedKeyUsageOID.CLIENT_AUTH in usages:
        return
    if ExtendedKeyUsageOID.SERVER_AUTH in usages:
        raise IdentityError(f"the certificate {serial} is a server's: use one of a client or an operator.")
    raise IdentityError(f"the certificate {serial} is not meant for clients (no clientAuth): ask for one that is.")


def _identity(leaf: x509.Certificate) -> tuple[PrincipalKind, str]:
    serial = serial_of(leaf)[:16]
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        urns = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        urns = []
    # with two identities, the reader of the log and the reader of the certificate could see different ones
    if len(urns) != 1:
        raise IdentityError(f"the certificate {serial} states {len(urns)} identities, not one: ask for a new one.")
    if (identity := stated(urns[0])) is None:
        raise IdentityError(
            f"the certificate {serial} states {urns[0]!r}, which is neither a client, an operator nor an "
            "auditor: ask for a new one."
        )
    return identity


def identity_in(folder: Path) -> tuple[PrincipalKind, str] | None:
    """Return kind and name in a folder's certificate; None if it states no client, operator or auditor."""
    leaf, *_ = certificates(folder / CERTIFICATE)
    try:
        return _identity(leaf)
    except IdentityError:
        return None
