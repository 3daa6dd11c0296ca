"""A CA's private keys: created, stored so that only their owner can read them, and loaded."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

from splitwiper.errors import CorruptError, IdentityError, InputError, NotFoundError
from splitwiper.store.keys import check_private as check_rights

PASSPHRASE = "SPLITWIPER_CA_PASSPHRASE"  # noqa: S105
"""The environment variable with the passphrase of the CA's keys."""
_LEAST = 16


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a fresh key on the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def passphrase(given: str | None) -> bytes | None:
    """Return the given passphrase, or the environment's; ``None`` if there is none."""
    text = given if given is not None else os.environ.get(PASSPHRASE, "")
    return text.encode() or None


def check_passphrase(secret: bytes | None) -> None:
    """Refuse a guessable passphrase for a new key: the file's format slows guessing only a little.

    Raises:
        InputError: it is too short.
    """
    if secret is not None and len(secret) < _LEAST:
        raise InputError(
            f"the passphrase in {PASSPHRASE} has {len(secret)} bytes and must have at least {_LEAST}: make one with "
            "'openssl rand -base64 24', or unset the variable to keep the CA's key without one."
        )


def key_pem(key: ec.EllipticCurvePrivateKey, *, secret: bytes | None = None) -> bytes:
    """Return a private key as PKCS #8, encrypted if there is a passphrase."""
    how = form.NoEncryption() if secret is None else form.BestAvailableEncryption(secret)
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, how)


def read_key(path: Path, *, secret: bytes | None) -> ec.EllipticCurvePrivateKey:
    """Return a CA's private key.

    Raises:
        NotFoundError: it is missing.
        IdentityError: the passphrase is wrong or missing, or others may read the file.
        CorruptError: it contains something else.
    """
    check_private(path)
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
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CorruptError(f"{path} holds a key of another kind: restore it from a backup.")
    return key


def check_private(
    path: Path, *, remedy: str = "replace it with 'splitwiper certs rotate' if somebody may have"
) -> None:
    """Refuse a key file that is missing, or that others than its owner may read.

    Args:
        path: the file.
        remedy: what to do if somebody has read it, for the error.

    Raises:
        NotFoundError: it is missing.
        IdentityError: its permissions are too wide.
    """
    try:
        check_rights(path, remedy=remedy)
    except FileNotFoundError:
        raise NotFoundError(f"there is no key {path}: copy the whole folder, or restore it from a backup.") from None
