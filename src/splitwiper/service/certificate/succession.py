"""Succession of signing keys: the old key signs the new one, so that who trusts the one can trust the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads_canonical
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.keys import PublicKey, SigningKey

PAYLOAD_TYPE = "application/vnd.splitwiper.succession+json"


def succeed(old: SigningKey, new: PublicKey) -> dict[str, Any]:
    """What the old key says of the new one."""
    said = {"from": old.public.raw.hex(), "to": new.raw.hex()}
    return Envelope.sign(dumps(said), [old], payload_type=PAYLOAD_TYPE).to_dict()


def followed(known: Iterable[PublicKey], said: Sequence[Mapping[str, Any]]) -> tuple[PublicKey, ...]:
    """Keys that can be trusted by who trusts the known ones: each was signed by one before it.

    What is no succession, or of unknown keys, counts for nothing.
    """
    found = {key.raw: key for key in known}
    left = list(said)
    while True:
        taken = [one for one in left if (key := _new(one, found)) is not None and found.setdefault(key.raw, key)]
        if not taken:
            return tuple(found.values())
        left = [one for one in left if one not in taken]


def _new(envelope: Mapping[str, Any], known: Mapping[bytes, PublicKey]) -> PublicKey | None:
    try:
        made = Envelope.from_dict(envelope)
        if made.payload_type != PAYLOAD_TYPE:
            return None
        said = loads_canonical(made.payload, "succession of keys")
        old, new = (bytes.fromhex(said[name]) for name in ("from", "to"))
    except (FormatError, ValueError, KeyError, TypeError):
        return None
    if old not in known or len(new) != 32 or not made.signers([known[old]]):
        return None
    return PublicKey(new)
