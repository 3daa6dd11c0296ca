"""Which certificates are believed, and what is said of the others."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from service.identity.tls import away, der_of, signer_of
from splitwiper.errors import CorruptError, IdentityError, NotFoundError
from splitwiper.service.identity import Authority, Principal, Trust
from splitwiper.service.identity import trust as trust_module
from splitwiper.service.identity.certificate_builder import Signer, new_key
from splitwiper.service.identity.index import utc_now

CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])


def forged(by: Signer, *names: str, usage: x509.ExtendedKeyUsage | None = CLIENT, ca: bool = False) -> bytes:
    """A certificate that an authority would not make."""
    key = new_key().public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forged")]))
        .issuer_name(by.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(utc_now() - timedelta(minutes=1))
        .not_valid_after(utc_now() + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.certificate.public_key()), critical=False)
    )
    if names:
        stated = [x509.UniformResourceIdentifier(name) for name in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(stated), critical=False)
    if usage is not None:
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(by.key, SHA256()).public_bytes(Encoding.DER)


def test_principals(certs: Path, north: Path, authority: Authority) -> None:
    trust = Trust(certs / "server")
    found = {one.name: one for one in authority.listed()}
    assert trust.principal(der_of(north)) == Principal("client", "north", found["north"].serial)
    assert trust.principal(der_of(certs / "operators" / "anna")) == Principal("operator", "anna", found["anna"].serial)
    assert str(Principal("client", "north")) == "client 'north'"
    assert trust.principal(forged(signer_of(authority), "urn:splitwiper:client:x")).name == "x"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ((), "states 0 identities"),
        (("urn:splitwiper:client:a", "urn:splitwiper:client:b"), "states 2 identities"),
        (("urn:splitwiper:client:a", "urn:splitwiper:operator:a"), "states 2 identities"),
        (("urn:splitwiper:client:a", "https://example.org/"), "states 2 identities"),
        (("urn:splitwiper:client:../a",), "neither a client, an operator nor"),
        (("urn:splitwiper:client:a/b",), "neither a client, an operator nor"),
        (("urn:splitwiper:client:",), "neither a client, an operator nor"),
        (("urn:splitwiper:client:a\n",), "neither a client, an operator nor"),
        (("urn:splitwiper:client:a\0b",), "neither a client, an operator nor"),
        (("urn:splitwiper:server:a",), "neither a client, an operator nor"),
        (("URN:splitwiper:operator:a",), "neither a client, an operator nor"),
        ((f"urn:splitwiper:client:{'a' * 65}",), "neither a client, an operator nor"),
    ],
)
def test_identities(certs: Path, authority: Authority, names: tuple[str, ...], why: str) -> None:
    with pytest.raises(IdentityError, match=why):
        Trust(certs / "server").principal(forged(signer_of(authority), *names))


def test_usages(certs: Path, authority: Authority) -> None:
    trust, by, name = Trust(certs / "server"), signer_of(authority), "urn:splitwiper:client:north"
    with pytest.raises(IdentityError, match="is a server's"):
        trust.principal(der_of(certs / "server"))
    with pytest.raises(IdentityError, match="no clientAuth"):
        trust.principal(forged(by, name, usage=None))
    with pytest.raises(IdentityError, match="no clientAuth"):
        trust.principal(forged(by, name, usage=x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])))
    with pytest.raises(IdentityError, match="does not verify"):
        trust.principal(forged(by, name, ca=True))
    with pytest.raises(IdentityError, match="no clientAuth"):
        trust.principal(by.certificate.public_bytes(Encoding.DER))


def test_other_authorities(certs: Path, authority: Authority, other: Authority) -> None:
    trust, mine, theirs = Trust(certs / "server"), signer_of(authority), signer_of(other)
    with pytest.raises(IdentityError, match=r"was not signed by a CA that this server trusts"):
        trust.principal(der_of(other.folder / "clients" / "north"))
    posing = Signer(mine.certificate, theirs.key)
    with pytest.raises(IdentityError, match="was not signed"):
        trust.principal(forged(posing, "urn:splitwiper:operator:anna"))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forged")])
    with pytest.raises(IdentityError, match="was not signed"):
        trust.principal(_selfmade(name))


def _selfmade(name: x509.Name) -> bytes:
    key = new_key()
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, utc_now(), utc_now() + timedelta(days=1))
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


def test_what_is_no_certificate(certs: Path, north: Path) -> None:
    trust, der = Trust(certs / "server"), der_of(north)
    for nothing in (None, b""):
        with pytest.raises(IdentityError, match="no certificate was shown"):
            trust.principal(nothing)
    for garbage in (b"x", der[:-1], der + b"\0", os.urandom(300)):
        with pytest.raises(IdentityError, match="cannot be read"):
            trust.principal(garbage)
    for place in range(0, len(der), 7):
        altered = der[:place] + bytes([der[place] ^ 1]) + der[place + 1 :]
        with pytest.raises(IdentityError):
            trust.principal(altered)


def test_clocks(certs: Path, north: Path) -> None:
    der = der_of(north)
    made = x509.load_der_x509_certificate(der).not_valid_before_utc + timedelta(minutes=5)
    trust = Trust(certs / "server")
    for when in (timedelta(minutes=-4), timedelta(0), timedelta(days=364)):
        assert trust.principal(der, at=made + when).name == "north"
    for when, why in (
        (-timedelta(minutes=9), "is not valid before .*set the clocks"),
        (timedelta(days=366), "expired"),
    ):
        with pytest.raises(IdentityError, match=why):
            trust.principal(der, at=made + when)
    with pytest.raises(IdentityError, match="expired"):
        Trust(certs / "server", clock=away(days=500)).principal(der)


def test_a_ca_that_expired(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "ward", days=10)
    authority.issue_client("north")
    (one,) = [one for one in authority.listed() if one.kind == "client"]
    assert one.not_after == authority.listed()[0].not_after, "it ends with its CA"
    with pytest.raises(IdentityError, match="expired"):
        Trust(tmp_path / "server").principal(der_of(tmp_path / "clients" / "north"), at=utc_now() + timedelta(days=11))
    with pytest.raises(IdentityError, match=r"the CA's certificate holds from .* certs init"):
        Authority(tmp_path, clock=away(days=11)).issue_client("south")


def test_clocks_that_jump_back_do_not_undo_a_revocation(certs: Path, north: Path, authority: Authority) -> None:
    der = der_of(north)
    made = x509.load_der_x509_certificate(der).not_valid_before_utc + timedelta(minutes=5)
    authority.revoke("north")
    for when in (timedelta(minutes=-4), timedelta(0)):
        with pytest.raises(IdentityError, match="was revoked"):
            Trust(certs / "server").principal(der, at=made + when)


def test_the_end_of_an_overlap(certs: Path, north: Path, authority: Authority) -> None:
    old = der_of(north)
    authority.rotate("north", overlap=timedelta(days=7))
    trust = Trust(certs / "server")
    assert trust.principal(old, at=utc_now() + timedelta(days=6)).name == "north"
    with pytest.raises(IdentityError, match="was replaced, and accepted until"):
        trust.principal(old, at=utc_now() + timedelta(days=8))
    assert trust.principal(der_of(north), at=utc_now() + timedelta(days=8)).name == "north"
    Authority(certs, clock=away(days=8)).issue_client("south")  # what ended is on the list of revoked ones by now
    with pytest.raises(IdentityError, match="was revoked"):
        trust.principal(old, at=utc_now() + timedelta(days=8))


def test_files_are_read_again_only_when_they_change(
    certs: Path, north: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust, der, loads = Trust(certs / "server"), der_of(north), []
    monkeypatch.setattr(trust._believed, "_load", lambda: loads.append(1) or trust._load())
    for _ in range(3):
        trust.principal(der)
    assert loads == []
    authority.revoke("north")
    for _ in range(3):
        with pytest.raises(IdentityError, match="was revoked"):
            trust.principal(der)
    assert loads == [1]
    for _ in range(50):
        trust.principal(der_of(certs / "operators" / "anna"))
    assert loads == [1]


def test_a_signature_is_verified_once_and_times_and_revocations_always(
    certs: Path, north: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust, der, verified = Trust(certs / "server"), der_of(north), list[str]()
    verify = trust_module._verify
    monkeypatch.setattr(trust_module, "_verify", lambda *given: verified.append(given[2]) or verify(*given))
    for _ in range(3):
        assert trust.principal(der).name == "north"
    assert len(verified) == 1
    with pytest.raises(IdentityError, match="expired"):
        trust.principal(der, at=utc_now() + timedelta(days=5000))
    with pytest.raises(IdentityError, match="is not valid before"):
        trust.principal(der, at=utc_now() - timedelta(days=5000))
    (certs / "server" / "ca.pem").touch()  # another file: everything is verified again
    assert trust.principal(der).name == "north" and len(verified) == 2
    authority.revoke("north")
    with pytest.raises(IdentityError, match="was revoked"):
        trust.principal(der)


def test_certificates_are_not_remembered_without_limit(
    certs: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_module, "_REMEMBERED", 2)
    trust, signer = Trust(certs / "server"), signer_of(authority)
    for number in range(5):
        shown = forged(signer, f"urn:splitwiper:client:client-{number}")
        assert trust.principal(shown).name == f"client-{number}"
        assert len(trust._believed.value()._known) <= 2


def test_damage_lets_nobody_in(certs: Path, north: Path, other: Authority) -> None:
    der, server = der_of(north), certs / "server"
    trust = Trust(server)
    for name in ("ca.pem", "revoked.pem", "superseded.pem"):
        whole = (server / name).read_bytes()
        for damage in (whole[: len(whole) // 2], b"", (other.folder / "server" / "key.pem").read_bytes()):
            (server / name).write_bytes(damage)
            with pytest.raises(CorruptError, match=name):
                trust.principal(der)
        (server / name).write_bytes(whole)
        assert trust.principal(der).name == "north"
    for name in ("ca.pem", "revoked.pem"):
        (server / name).rename(server / "elsewhere")
        with pytest.raises(NotFoundError, match=f"no {name} in"):
            trust.principal(der)
        (server / "elsewhere").rename(server / name)
    (server / "revoked.pem").write_bytes((other.folder / "server" / "revoked.pem").read_bytes())
    with pytest.raises(NotFoundError, match="append that CA's revocation list"):
        trust.principal(der)


def test_a_list_that_the_ca_did_not_sign(certs: Path, authority: Authority, other: Authority) -> None:
    from splitwiper.service.identity.certificate_builder import revocation_list

    posing = Signer(signer_of(authority).certificate, signer_of(other).key)
    wrong = revocation_list(posing, [], number=99, now=utc_now()).public_bytes(Encoding.PEM)
    (certs / "server" / "revoked.pem").write_bytes(wrong)
    with pytest.raises(CorruptError, match="did not sign its list"):
        Trust(certs / "server")
