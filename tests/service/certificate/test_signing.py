"""Keys, the ring in the server's folder, and DSSE envelopes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from splitwiper.errors import ConfigError, FormatError, NotFoundError, StoreError
from splitwiper.service.certificate import Envelope, Keyring, PublicKey, SigningKey, read_public
from splitwiper.service.certificate.envelope import MOST_SIGNATURES, PAYLOAD_TYPE, pae

KEY, OTHER = SigningKey(bytes(range(32))), SigningKey(bytes(range(1, 33)))


def test_pae_is_that_of_the_specification() -> None:
    message = pae("http://example.com/HelloWorld", b"hello world")
    assert message == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    # the specification's own key and signature, which are of another algorithm over the same bytes
    x = 46950820868899156662930047687818585632848591499744589407958293238635476079160
    y = 5640078356564379163099075877009565129882514886557779369047442380624545832820
    raw = base64.b64decode("A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA==")
    r, s = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    key = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    key.verify(encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))


def test_pae_counts_bytes() -> None:
    assert pae("é", "é".encode()) == b"DSSEv1 2 \xc3\xa9 2 \xc3\xa9"
    assert pae("", b"") == b"DSSEv1 0  0 "


def test_keys_are_those_of_the_standard() -> None:
    theirs = ed25519.Ed25519PrivateKey.from_private_bytes(KEY.raw).public_key()
    der = theirs.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    assert KEY.public.id == digest.finalize().hex()
    assert PublicKey.from_pem(KEY.public.pem()) == KEY.public
    assert SigningKey.from_pem(KEY.pem()) == KEY
    theirs.verify(KEY.sign(b"x"), b"x")
    assert KEY.public.verifies(KEY.sign(b"x"), b"x")
    assert not KEY.public.verifies(KEY.sign(b"x"), b"y")
    assert not KEY.public.verifies(b"short", b"x")
    assert KEY.raw.hex() not in repr(KEY) and "raw" not in repr(KEY)


def test_other_keys_are_refused(tmp_path: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    with pytest.raises(FormatError, match="of another kind"):
        PublicKey.from_pem(other.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(FormatError, match="of another kind"):
        SigningKey.from_pem(other.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    file = tmp_path / "key.pem"
    file.write_bytes(b"no key")
    with pytest.raises(FormatError, match=r"key\.pem: this is no public key"):
        read_public(file)
    with pytest.raises(NotFoundError, match="no public key"):
        read_public(tmp_path / "gone.pem")
    with pytest.raises(FormatError, match="no private key"):
        SigningKey.from_pem(KEY.public.pem())


def test_the_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="pip install"):
        KEY.sign(b"x")


def test_a_ring_makes_its_key_once(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "signing")
    assert ring.public() == ()
    key = ring.key()
    assert Keyring(tmp_path / "signing").key() == key
    assert (tmp_path / "signing" / "private.pem").stat().st_mode & 0o777 == 0o600
    assert read_public(ring.path_of(key.public)) == (key.public,) == ring.public()


def test_rotation_keeps_old_public_keys(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "signing")
    old = ring.key()
    new = ring.rotate()
    assert new != old and ring.key() == new
    assert set(ring.public()) == {old.public, new.public} == set(read_public(tmp_path / "signing" / "public"))
    assert old.pem() not in b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


def test_a_lost_or_open_key_is_not_replaced_silently(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "signing")
    old, private = ring.key(), tmp_path / "signing" / "private.pem"
    private.chmod(0o644)
    with pytest.raises(StoreError, match="chmod 600"):
        ring.key()
    private.unlink()
    with pytest.raises(StoreError, match="restore it from a backup, or rotate"):
        ring.key()
    assert ring.public() == (old.public,)
    assert set(Keyring(tmp_path / "signing").public()) < {ring.rotate().public, old.public}


def test_an_interrupted_making_is_finished(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "signing")
    key = ring.key()
    ring.path_of(key.public).unlink()  # as if stopped between the two files
    assert ring.key() == key
    assert ring.public() == (key.public,)


def test_several_signatures() -> None:
    both = Envelope.sign(b"{}", [KEY, OTHER])
    assert both.payload_type == PAYLOAD_TYPE
    assert both.signers([KEY.public]) == (KEY.public,)
    assert set(both.signers([OTHER.public, KEY.public])) == {KEY.public, OTHER.public}
    assert Envelope.from_bytes(json.dumps(both.to_dict(), indent=1).encode()) == both
    assert both.signers([]) == ()
    twice = Envelope.sign(b"{}", [KEY, KEY])
    assert twice.signers([KEY.public]) == (KEY.public,)


def test_hints_only_narrow() -> None:
    values = Envelope.sign(b"{}", [KEY]).to_dict()
    del values["signatures"][0]["keyid"]
    assert Envelope.from_dict(values).signers([OTHER.public, KEY.public]) == (KEY.public,)
    values["signatures"][0]["keyid"] = OTHER.public.id
    assert Envelope.from_dict(values).signers([OTHER.public, KEY.public]) == ()
    values["signatures"][0]["keyid"] = ""
    values["added"] = "later versions may"
    assert Envelope.from_dict(values).signers([KEY.public]) == (KEY.public,)


def test_base64_may_be_url_safe_and_has_one_spelling() -> None:
    values = Envelope.sign(b"\xfb\xff\xfe?>", [KEY]).to_dict()
    safe = {**values, "payload": values["payload"].replace("+", "-").replace("/", "_")}
    assert safe != values and Envelope.from_dict(safe) == Envelope.from_dict(values)
    for text in ("e30", "e31=", "e30=\n", " e30=", "e3 0=", "é30=", 7, None):
        with pytest.raises(FormatError, match="its payload is not base64"):
            Envelope.from_dict({**values, "payload": text})


@pytest.mark.parametrize(
    "change",
    [
        {"payloadType": 3},
        {"signatures": {}},
        {"signatures": ["x"]},
        {"signatures": [{"sig": "", "keyid": 3}]},
        {"signatures": [{"keyid": "x"}]},
        {"signatures": [{"sig": ""}] * (MOST_SIGNATURES + 1)},
    ],
)
def test_what_is_no_envelope(change: dict[str, object]) -> None:
    with pytest.raises(FormatError):
        Envelope.from_dict({**Envelope.sign(b"{}", [KEY]).to_dict(), **change})
    with pytest.raises(FormatError):
        Envelope.from_dict([])
