"""Countersigned heads: a site states under its own key that it saw a head which the server signed.

Other sites compare it with the ledger that they are shown. The server relays countersignatures and cannot make them; it
can keep them back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads_canonical
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.heads import SignedHead
from splitwiper.service.certificate.keys import PublicKey, SigningKey

PAYLOAD_TYPE = "application/vnd.splitwiper.countersignature+json"


@dataclass(frozen=True)
class Countersignature:
    """What a site signs.

    Attributes:
        federation: the store whose ledger it is.
        site: who saw the head.
        key: the site's public key, in hex.
        head: SHA-256 of the head's envelope in canonical JSON.
        time: when, by the site's clock.
    """

    federation: str
    site: str
    key: str
    head: str
    time: str


def countersign(head: SignedHead, site: str, key: SigningKey, time: str) -> dict[str, Any]:
    """Return a head together with a site's countersignature, both as DSSE envelopes."""
    said = Countersignature(head.federation, site, key.public.raw.hex(), _digest(head), time)
    signed = Envelope.sign(dumps(asdict(said)), [key], payload_type=PAYLOAD_TYPE).to_dict()
    return {"head": head.envelope.to_dict(), "countersignature": signed}


def read_countersigned(
    head: Mapping[str, Any], countersignature: Mapping[str, Any]
) -> tuple[SignedHead, Countersignature]:
    """Read a countersigned head whose countersignature is right.

    Whether the site's key is the site's, and whether the server signed the head, are other questions.

    Raises:
        FormatError: it is not one, or the countersignature is wrong.
    """
    found, made = SignedHead.read(head), Envelope.from_dict(countersignature)
    if made.payload_type != PAYLOAD_TYPE:
        raise FormatError(f"this is not a countersignature: its type is {made.payload_type[:60]!r}.")
    values = loads_canonical(made.payload, "countersignature")
    if not isinstance(values, dict) or values.keys() != Countersignature.__dataclass_fields__.keys():
        raise FormatError("this is not a countersignature: it has other fields.")
    if not all(isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() for value in values.values()):
        raise FormatError("this is not a countersignature: a field is not a short text.")
    said = Countersignature(**values)
    if (said.federation, said.head) != (found.federation, _digest(found)):
        raise FormatError("the countersignature is of another head.")
    try:
        by = made.signers([PublicKey(bytes.fromhex(said.key))])
    except ValueError as problem:
        raise FormatError("this is not a countersignature: its key is not an Ed25519 key.") from problem
    if not by:
        raise FormatError("the countersignature is not that of the key it names.")
    return found, said


def _digest(head: SignedHead) -> str:
    return hashlib.sha256(dumps(head.envelope.to_dict())).hexdigest()
