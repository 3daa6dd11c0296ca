"""Commitments: salted digests that bind their author and reveal nothing to others until they are opened.

A commitment is an HMAC under a random salt of 32 bytes. Anybody with the salt and the content can check it; without
the salt, not even a guess at the content can be tested. Erasing the salt erases whatever the commitment could reveal.
"""

from __future__ import annotations

from collections.abc import Iterable

from splitwiper.seeding import mac


def commitment(salt: bytes, ticket: str, level: str, rows: Iterable[bytes]) -> str:
    """Commit a request to the rows that it suppresses. Their number is hidden, too."""
    ordered = sorted(rows)  # the same rows, in whatever order, have one commitment
    return mac(salt, "request", ticket, level, len(ordered), *ordered).hex()


def shard_commitment(salt: bytes, digest: str) -> str:
    """Commit to a shard by its digest."""
    return mac(salt, "shard", digest).hex()


def model_commitment(salt: bytes, digest: str) -> str:
    """Commit to a server model by its digest."""
    return mac(salt, "model", digest).hex()
