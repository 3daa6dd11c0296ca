"""What an authority issues, to whom, and what it refuses."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from service.identity.tls import away, der_of
from splitwiper.data.sources import NAME
from splitwiper.errors import IdentityError, InputError, NotFoundError
from splitwiper.service.identity import Authority, Trust, client_context, server_context
from splitwiper.service.identity.certificate_builder import PASSPHRASE
from splitwiper.service.identity.folders import certificates
from splitwiper.service.identity.index import Journal

SECRET = "correct horse battery staple"


def _extension(certificate: x509.Certificate, kind: type) -> x509.Extension:
    return certificate.extensions.get_extension_for_class(kind)


def test_the_authoritys_certificate(certs: Path) -> None:
    (ca,) = certificates(certs / "server" / "ca.pem")
    assert ca.version is x509.Version.v3
    basic = _extension(ca, x509.BasicConstraints)
    assert basic.critical and basic.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = _extension(ca, x509.KeyUsage)
    assert usage.critical and usage.value.key_cert_sign and usage.value.crl_sign
    assert not usage.value.digital_signature
    assert (ca.not_valid_after_utc - ca.not_valid_before_utc) == timedelta(days=3650, minutes=5)
    assert isinstance(ca.public_key(), EllipticCurvePublicKey) and isinstance(ca.public_key().curve, SECP256R1)


@pytest.mark.parametrize("folder", ["server", "clients/north", "operators/anna"])
def test_the_others_certificates(certs: Path, folder: str) -> None:
    (ca,), (leaf,) = (certificates(certs / folder / name) for name in ("ca.pem", "certificate.pem"))
    leaf.verify_directly_issued_by(ca)
    assert _extension(leaf, x509.BasicConstraints).value == x509.BasicConstraints(ca=False, path_length=None)
    usage = _extension(leaf, x509.KeyUsage)
    assert usage.critical and usage.value.digital_signature and not usage.value.key_cert_sign
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if folder == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
    assert list(_extension(leaf, x509.ExtendedKeyUsage).value) == [purpose]
    issuer = _extension(leaf, x509.AuthorityKeyIdentifier).value
    assert issuer.key_identifier == _extension(ca, x509.SubjectKeyIdentifier).value.digest
    assert _extension(leaf, x509.SubjectKeyIdentifier).value.digest != issuer.key_identifier
    names = [str(name.value) for name in _extension(leaf, x509.SubjectAlternativeName).value]
    kind, _, name = folder.partition("/")
    assert names == (["localhost", "127.0.0.1"] if not name else [f"urn:splitwiper:{kind.removesuffix('s')}:{name}"])
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc) == timedelta(days=365, minutes=5)


def test_validity_can_be_set(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "ward", ["::1"], days=100, server_days=50)
    for one in (authority.issue_client("north", days=1), authority.issue_operator("anna", days=99)):
        days = {"north": 1, "anna": 99}[one.name]
        assert one.not_after - one.not_before == timedelta(days=days, minutes=5)
    assert {one.kind for one in authority.listed()} == {"authority", "server", "client", "operator"}
    for days in (0, -1, 36_501, True, 1.5):
        with pytest.raises(InputError, match="whole number from 1"):
            authority.issue_client("south", days=days)


def test_a_folder_can_be_copied_alone(certs: Path, tmp_path: Path) -> None:
    for folder, files in (
        ("clients/north", {"ca.pem", "certificate.pem", "key.pem"}),
        ("operators/anna", {"ca.pem", "certificate.pem", "key.pem"}),
        ("server", {"ca.pem", "certificate.pem", "key.pem", "revoked.pem", "superseded.pem"}),
    ):
        assert {path.name for path in (certs / folder).iterdir()} == files
    client = shutil.copytree(certs / "clients" / "north", tmp_path / "client")
    server = shutil.copytree(certs / "server", tmp_path / "server")
    keys = [path.read_bytes() for path in (certs / "authority").glob("*.key.pem")]
    for path in (*client.iterdir(), *server.iterdir()):
        assert path.read_bytes() not in keys
    shutil.rmtree(certs)
    client_context(client), server_context(server)
    assert Trust(server).principal(der_of(client)).name == "north"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../north", "a/b", "a\\b", "a b", "-a", ".a", "é", "a\n", "a\0", "a:b", "a" * 65, None, 7]
)
def test_names(authority: Authority, certs: Path, name: object) -> None:
    before = sorted(certs.rglob("*"))
    for issue in (authority.issue_client, authority.issue_operator):
        with pytest.raises(InputError, match=r"name .*1 to 64 letters, digits"):
            issue(name)
    with pytest.raises(InputError, match="authority name"):
        Authority.create(certs / "new", name)
    assert sorted(certs.rglob("*")) == before
    assert not isinstance(name, str) or not NAME.fullmatch(name)


def test_names_that_are_taken(authority: Authority) -> None:
    with pytest.raises(InputError, match=r"'north' has a certificate until .*certs rotate"):
        authority.issue_client("north")
    with pytest.raises(InputError, match="differs from 'north' only in case"):
        authority.issue_client("North")
    authority.issue_operator("north")
    with pytest.raises(InputError, match=r"may mean client 'north' .*operator 'north' .*--kind"):
        authority.revoke("north")
    assert [one.kind for one in authority.revoke("north", kind="operator")] == ["operator"]
    authority.issue_client("a" * 64)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "https://a",
        "a:8443",
        "a/b",
        "*.a",
        "a_b",
        "-a",
        "é.org",
        "1.2.3",
        "a..b",
        "a" * 64,
        "a\n",
        7,
        "fe80::1%eth0",
    ],
)
def test_hosts(tmp_path: Path, host: object) -> None:
    with pytest.raises(InputError, match="neither a host name nor an IP address"):
        Authority.create(tmp_path / "new", "ward", [host])
    assert not (tmp_path / "new").exists()


def test_no_hosts(authority: Authority) -> None:
    for hosts in ([], "localhost"):
        with pytest.raises(InputError, match="give a list of the names"):
            authority.issue_server(hosts)
    with pytest.raises(InputError, match="hosts are for the server"):
        authority.rotate("north", hosts=["localhost"])
    assert authority.rotate("server", hosts=["B.example.org", "::0:1"]).hosts == ("b.example.org", "::1")
    assert authority.rotate("server").hosts == ("b.example.org", "::1")


def test_revoking(authority: Authority, certs: Path) -> None:
    (gone,) = authority.revoke("north")
    assert gone.state(gone.not_after) == "revoked"
    assert authority.revoke("north") == [gone], "once more changes nothing"
    assert authority.revoke(gone.serial) == authority.revoke(gone.serial[:8]) == [gone]
    lists = x509.load_pem_x509_crl((certs / "server" / "revoked.pem").read_bytes())
    assert [f"{one.serial_number:040x}" for one in lists] == [gone.serial]
    with pytest.raises(NotFoundError, match=r"no identity is called 'noth'.* Did you mean 'north'"):
        authority.revoke("noth")
    with pytest.raises(NotFoundError, match="no client is called 'anna'"):
        authority.revoke("anna", kind="client")
    with pytest.raises(InputError, match="is the CA"):
        authority.revoke(authority.listed()[0].serial)
    with pytest.raises(InputError, match="was revoked: 'splitwiper certs client'"):
        authority.rotate("north")
    again = authority.issue_client("north")
    assert again.serial != gone.serial
    assert Trust(certs / "server").principal(der_of(certs / "clients" / "north")).serial == again.serial


def test_rotating(authority: Authority, certs: Path, north: Path) -> None:
    key = (north / "key.pem").read_bytes()
    new = authority.rotate("north", overlap=timedelta(days=2), days=30)
    assert (north / "key.pem").read_bytes() != key
    old = next(one for one in authority.listed() if one.name == "north" and one.serial != new.serial)
    assert (old.state(away()()), old.state(away(days=3)())) == ("ending", "expired")
    assert new.state(away()()) == "valid"
    with pytest.raises(InputError, match="not negative"):
        authority.rotate("north", overlap=timedelta(days=-1))
    expired = Authority(certs, clock=away(days=40))
    assert expired.rotate("north").state(away(days=40)()) == "valid", "what expired can be replaced"


def test_a_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSPHRASE, "short")
    with pytest.raises(InputError, match=r"has 5 bytes .* at least 16"):
        Authority.create(tmp_path / "new", "ward")
    monkeypatch.setenv(PASSPHRASE, SECRET)
    authority = Authority.create(tmp_path, "ward", ["localhost"])
    authority.issue_client("north")
    (key,) = (tmp_path / "authority").glob("*.key.pem")
    assert key.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    monkeypatch.setenv(PASSPHRASE, SECRET.upper())
    with pytest.raises(IdentityError, match=r"does not open .*give the right one") as wrong:
        Authority(tmp_path).issue_client("south")
    assert SECRET.upper() not in str(wrong.value)
    monkeypatch.delenv(PASSPHRASE)
    with pytest.raises(IdentityError, match=f"is encrypted: put its passphrase into {PASSPHRASE}"):
        Authority(tmp_path).revoke("north")
    assert [one.name for one in Authority(tmp_path).listed()] == ["ward", "north", "server"], "to look needs no key"
    authority = Authority(tmp_path, passphrase=SECRET)
    authority.issue_client("south")
    assert all(b"ENCRYPTED" in path.read_bytes() for path in (tmp_path / "authority").glob("*.key.pem"))
    client_context(tmp_path / "clients" / "south")


def test_a_passphrase_that_is_not_needed(authority: Authority, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSPHRASE, SECRET)
    Authority(certs).issue_client("south")


def test_several_at_once(authority: Authority, certs: Path) -> None:
    def issue(number: int) -> None:
        Authority(certs).issue_client(f"c{number}")

    threads = [threading.Thread(target=issue, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = Authority(certs).listed()
    assert {f"c{number}" for number in range(12)} <= {one.name for one in listed}
    assert len({one.serial for one in listed}) == len(listed) == 16


def test_one_more_is_issued_while_the_index_is_read(
    authority: Authority, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Journal.read
    begun: list[Path] = []

    def slowly(path: Path) -> Journal:
        journal, first = read(path), not begun
        begun.append(path)
        if first:
            authority.issue_client("meanwhile")
        return journal

    monkeypatch.setattr(Journal, "read", slowly)
    assert "meanwhile" in {one.name for one in Authority(certs).listed()}
    assert len(begun) > 2


def test_another_there_already(certs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is a certificate authority in .* already"):
        Authority.create(certs, "ward")
    with pytest.raises(NotFoundError, match=r"no certificate authority in .*certs init"):
        Authority(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("package", ["identity", "certificate"])
def test_without_cryptography(package: str) -> None:
    program = (
        "import importlib.util, splitwiper.errors; importlib.util.find_spec = lambda name: None\n"
        f"try: import splitwiper.service.{package}\n"
        "except splitwiper.errors.ConfigError as problem: print(problem)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "needs the package cryptography: pip install 'splitwiper[service]'" in ended.stdout


def test_openssl_agrees(certs: Path, north: Path) -> None:
    for folder in (certs / "server", north):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        context.load_verify_locations(folder / "ca.pem")
        assert context.cert_store_stats()["x509_ca"] == 1
