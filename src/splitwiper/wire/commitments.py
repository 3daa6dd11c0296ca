"""Commitments: salted digests that bind whoever made them and tell nothing to others until they are opened.

A commitment is an HMAC under a random salt of 32 bytes. Whoever knows the salt and the content can check it; without
the salt, not even a guess at the content can be tested. Erasing the salt erases what the commitment could still tell.
"""

from __future__ import annotations

from collections.abc import Iterable

from splitwiper.seeding import mac


def commitment(salt: bytes, ticket: str, level: str, rows: Iterable[bytes]) -> str:
    """Commit a request to the rows that it suppresses. How many there are is part of what is hidden.

    Args:
        salt: drawn for this request.
        ticket: the request's.
        level: what it forgets.
        rows: HMACs of the rows under the client's key.
    """
    ordered = sorted(rows)
    return mac(salt, "request", ticket, level, len(ordered), *ordered).hex()


def shard_commitment(salt: bytes, digest: str) -> str:
    """Commit to a shard by its digest."""
    return mac(salt, "shard", digest).hex()


def model_commitment(salt: bytes, digest: str) -> str:
    """Commit to a server model by its digest."""
    return mac(salt, "model", digest).hex()
