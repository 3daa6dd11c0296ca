"""Ed25519 keys that sign certificates, and their public halves, with which third parties check them."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from splitwiper.errors import FormatError, NotFoundError
from splitwiper.service.certificate.canonical import LIMIT

_SPKI = bytes.fromhex("302a300506032b6570032100")
"""Prefix of an Ed25519 public key's 32 bytes in DER form (RFC 8410)."""

_NOBODYS = frozenset(
    bytes.fromhex(point)
    for point in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
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
        if len(self.raw) != 32 or self.raw[:31] + bytes([self.raw[31] & 127]) in _NOBODYS:
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
        """Return the key in a PEM text.

        Raises:
            FormatError: it is not an Ed25519 public key.
        """
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
        """Return the key in a PEM text.

        Raises:
            FormatError: it is not an Ed25519 private key, or is encrypted.
        """
        try:
            key = form.load_pem_private_key(text, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
            raise FormatError("this is not a private key in PEM form, or it is encrypted.") from problem
        if not isinstance(key, Ed25519PrivateKey):
            raise FormatError(f"this is a private key of another kind ({type(key).__name__}); give an Ed25519 one.")
        return cls(key.private_bytes_raw())


def read_public(path: Path) -> tuple[PublicKey, ...]:
    """Return the public key in a file, or all in a folder's ``.pem`` files.

    Raises:
        NotFoundError: there is none.
        FormatError: a file is not such a key.
    """
    found = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    if not found or not all(file.is_file() for file in found):
        raise NotFoundError(f"there is no public key {path}: give a .pem file, or a folder of them.")
    out = []
    for file in found:
        try:
            with file.open("rb") as text:
                out.append(PublicKey.from_pem(text.read(LIMIT)))
        except FormatError as problem:
            raise FormatError(f"{file}: {problem}") from problem
    return tuple(out)
