"""Ed25519 keys, and DSSE envelopes: a payload with its type, and signatures over both (secure-systems-lab, 1.0)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from splitwiper.errors import FormatError, NotFoundError
from splitwiper.service.certificate.canonical import LIMIT, loads

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MOST_SIGNATURES = 16
_SPKI = bytes.fromhex("302a300506032b6570032100")
"""Prefix of an Ed25519 public key's 32 bytes in DER form (RFC 8410)."""

_SMALL_ORDER = (
    "00" * 32,
    "01" + "00" * 31,
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
)
"""Points of small order, without their sign bit. Anybody can forge signatures that verify under such a key, so its
owner could deny every signature."""


@dataclass(frozen=True)
class PublicKey:
    """A public Ed25519 key."""

    raw: bytes

    @property
    def id(self) -> str:
        """The key's id: SHA-256 of its DER form (SubjectPublicKeyInfo), in hex."""
        return hashlib.sha256(_SPKI + self.raw).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether this key signed the message. A key of small order verifies nothing."""
        # the sign bit does not change the order of a point, so it is masked out before the comparison
        if len(self.raw) != 32 or (self.raw[:31] + bytes([self.raw[31] & 127])).hex() in _SMALL_ORDER:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def pem(self) -> bytes:
        """Return the key as PEM."""
        return Ed25519PublicKey.from_public_bytes(self.raw).public_bytes(
            form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
        )

    @classmethod
    def from_pem(cls, text: bytes) -> PublicKey:
        """Return the key in a PEM text, or raise `FormatError`."""
        try:
            key = form.load_pem_public_key(text)
        except (ValueError, UnsupportedAlgorithm) as problem:
            raise FormatError("this is not a public key in PEM form.") from problem
        if not isinstance(key, Ed25519PublicKey):
            raise FormatError(f"this is a public key of another kind ({type(key).__name__}); give an Ed25519 one.")
        return cls(key.public_bytes_raw())


@dataclass(frozen=True)
class SigningKey:
    """A private Ed25519 key."""

    raw: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a fresh key, from the operating system's generator."""
        return cls(secrets.token_bytes(32))

    @property
    def public(self) -> PublicKey:
        """The public half."""
        return PublicKey(Ed25519PrivateKey.from_private_bytes(self.raw).public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return a signature; it is deterministic."""
        return Ed25519PrivateKey.from_private_bytes(self.raw).sign(message)

    def pem(self) -> bytes:
        """Return the key as unencrypted PEM."""
        return Ed25519PrivateKey.from_private_bytes(self.raw).private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )

    @classmethod
    def from_pem(cls, text: bytes) -> SigningKey:
        """Return the key in a PEM text, or raise `FormatError`; an encrypted key is refused, too."""
        try:
            key = form.load_pem_private_key(text, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
            raise FormatError("this is not a private key in PEM form, or it is encrypted.") from problem
        if not isinstance(key, Ed25519PrivateKey):
            raise FormatError(f"this is a private key of another kind ({type(key).__name__}); give an Ed25519 one.")
        return cls(key.private_bytes_raw())


def read_public(path: Path) -> tuple[PublicKey, ...]:
    """Return the public key in a file, or all in a folder's ``.pem`` files; at least one, or `NotFoundError`."""
    files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise NotFoundError(f"there is no public key {path}: give a .pem file, or a folder of them.")
    keys = []
    for file in files:
        try:
            with file.open("rb") as text:
                keys.append(PublicKey.from_pem(text.read(LIMIT)))
        except FormatError as problem:
            raise FormatError(f"{file}: {problem}") from problem
    return tuple(keys)


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes to sign: type and payload, each with its length.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True)
class Signature:
    """A signature, with its key's id as a hint. The hint is not signed: it only narrows the keys that are tried."""

    sig: bytes
    keyid: str = ""


@dataclass(frozen=True)
class Envelope:
    """A payload and its signatures."""

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]

    @classmethod
    def sign(cls, payload: bytes, keys: Iterable[SigningKey], *, payload_type: str = PAYLOAD_TYPE) -> Envelope:
        """Return an envelope signed with each key."""
        message = pae(payload_type, payload)
        return cls(payload, payload_type, tuple(Signature(key.sign(message), key.public.id) for key in keys))

    def signers(self, trusted: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
        """Return the trusted keys that signed this; signatures of other keys are ignored."""
        message, signers = pae(self.payload_type, self.payload), dict[str, PublicKey]()
        keys = {key.id: key for key in trusted}
        for signature in self.signatures:
            candidates: Iterable[PublicKey] = keys.values()
            if signature.keyid:  # without a hint every key is tried; a wrong hint finds nothing, as it is never ignored
                candidates = [keys[signature.keyid]] if signature.keyid in keys else []
            for key in candidates:
                if key.verifies(signature.sig, message):
                    signers[key.id] = key
        return tuple(signers.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the envelope as plain values, spelled as in the specification."""
        return {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": s.keyid, "sig": base64.b64encode(s.sig).decode()} for s in self.signatures],
        }

    @classmethod
    def from_dict(cls, values: Any) -> Envelope:
        """Return the envelope in plain values, or raise `FormatError`.

        Fields unknown to the specification are ignored, as it demands.
        """
        wrong = FormatError("this is not a certificate: a DSSE envelope has payload, payloadType and signatures.")
        if not isinstance(values, Mapping) or not isinstance(values.get("payloadType"), str):
            raise wrong
        listed = values.get("signatures")
        if not isinstance(listed, list):
            raise wrong
        if len(listed) > MOST_SIGNATURES:
            raise FormatError(f"this certificate has {len(listed)} signatures; at most {MOST_SIGNATURES} are read.")
        signatures = []
        for signature in listed:
            if not isinstance(signature, Mapping):
                raise wrong
            hint = signature.get("keyid") or ""
            if not isinstance(hint, str):
                raise wrong
            signatures.append(Signature(_decoded(signature.get("sig"), "sig"), hint))
        return cls(_decoded(values.get("payload"), "payload"), values["payloadType"], tuple(signatures))

    @classmethod
    def from_bytes(cls, data: bytes) -> Envelope:
        """Return the envelope in a JSON text, or raise `FormatError`."""
        return cls.from_dict(loads(data, "certificate"))

    @classmethod
    def load(cls, path: str | Path) -> Envelope:
        """Return the envelope in a file; raise `NotFoundError` or `FormatError` if there is none."""
        return cls.from_bytes(read_limited(Path(path)))


def read_limited(path: Path) -> bytes:
    """Return a file's bytes, or raise `NotFoundError`; of a huge file, only enough to exceed the limit."""
    try:
        with path.open("rb") as file:
            return file.read(LIMIT + 1)
    except FileNotFoundError as problem:
        raise NotFoundError(f"there is no certificate {path}. Check the path.") from problem


def _decoded(text: Any, what: str) -> bytes:
    """Decode base64, plain or URL-safe, and accept only one spelling of each value."""
    try:
        if not isinstance(text, str):
            raise ValueError
        # the specification allows both alphabets; within one, only one spelling of each value is accepted
        plain = text.replace("-", "+").replace("_", "/")
        data = base64.b64decode(plain, validate=True)
        if base64.b64encode(data).decode() != plain:
            raise ValueError
    except (ValueError, binascii.Error) as problem:
        raise FormatError(f"this is not a certificate: its {what} is not base64.") from problem
    return data
