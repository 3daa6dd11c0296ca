"""Succession of signing keys: the old key signs the new one, so that trust in one extends to the other.

A key has one successor. A thief of an old key can sign a succession of its own: those who know the true one do not
follow it; those who see both and know neither follow none, and no longer rely on the old key either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from splitwiper.errors import FormatError
from splitwiper.service.certificate.keys import PublicKey, SigningKey
from splitwiper.service.certificate.signed import SignedMessage, is_key


@dataclass(frozen=True)
class Succession(SignedMessage):
    """A key's statement that another one succeeds it; both in hex."""

    PAYLOAD_TYPE = "application/vnd.splitwiper.succession+json"
    TITLE = "a succession of keys"
    SIGNER = "old"
    SPELLED: ClassVar = {"old": "from", "new": "to"}

    old: str
    new: str


def succeed(old: SigningKey, new: PublicKey) -> dict[str, Any]:
    """Return the old key's statement that the new one succeeds it."""
    return Succession(old.public.raw.hex(), new.raw.hex()).sign(old)


def followed(known: Iterable[PublicKey], said: Sequence[Mapping[str, Any]]) -> tuple[PublicKey, ...]:
    """Return the known keys and every key that follows from them: each was signed by the key before it.

    Statements that are not successions, or are by unknown keys, are ignored. Of two successors of one key, a known one
    counts; if neither is known, neither counts.
    """
    found = {key.raw: key for key in known}
    fresh = list(found.values())
    # a key leads on only if it has one successor; of several, a known one is in `found` already
    while fresh:
        steps = _steps({key.raw: key for key in fresh}, said)
        fresh = []
        for successors in steps.values():
            if len(successors) == 1 and not successors & found.keys():
                (raw,) = successors
                found[raw] = PublicKey(raw)
                fresh.append(found[raw])
    return tuple(found.values())


def successions(
    keys: Iterable[PublicKey], said: Sequence[Mapping[str, Any]]
) -> tuple[tuple[PublicKey, PublicKey], ...]:
    """Return pairs of a key and its successor, if both are among ``keys``."""
    known = {key.raw: key for key in keys}
    steps = _steps(known, said)
    return tuple((known[old], known[new]) for old, later in steps.items() for new in later if new in known)


def disputed(keys: Iterable[PublicKey], said: Sequence[Mapping[str, Any]]) -> tuple[PublicKey, ...]:
    """Return the keys that named several successors, none in ``keys``: more than one party has used such a key."""
    known = {key.raw: key for key in keys}
    return tuple(known[old] for old, new in _steps(known, said).items() if len(new) > 1 and not new & known.keys())


def _steps(known: Mapping[bytes, PublicKey], said: Sequence[Mapping[str, Any]]) -> dict[bytes, set[bytes]]:
    """Return the successors that known keys have named."""
    out: dict[bytes, set[bytes]] = {}
    for envelope in said:
        try:
            made = Succession.read(envelope)
        except FormatError:
            continue
        old = bytes.fromhex(made.old)
        if old in known and is_key(made.new):
            out.setdefault(old, set()).add(bytes.fromhex(made.new))
    return out
