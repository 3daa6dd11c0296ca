"""Countersigned heads: a site states under its own key that it saw a head that the server signed.

Other sites compare it with the ledger that they are shown. The server relays countersignatures: it cannot forge them,
but it can withhold them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps
from splitwiper.service.certificate.heads import SignedHead
from splitwiper.service.certificate.keys import SigningKey
from splitwiper.service.certificate.signed import SignedMessage


@dataclass(frozen=True)
class Countersignature(SignedMessage):
    """A site's statement that it saw a head.

    Attributes:
        federation: the id of the store whose ledger it is.
        site: the name of the site.
        key: the site's public key, in hex.
        head: SHA-256 of the head's envelope in canonical JSON.
        time: the time, by the site's clock.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.countersignature+json"
    TITLE = "a countersignature"

    federation: str
    site: str
    key: str
    head: str
    time: str


def countersign(head: SignedHead, site: str, key: SigningKey, time: str) -> dict[str, Any]:
    """Return a head together with a site's countersignature, both as DSSE envelopes."""
    said = Countersignature(head.federation, site, key.public.raw.hex(), _digest(head), time)
    return {"head": head.envelope.to_dict(), "countersignature": said.sign(key)}


def read_countersigned(
    head: Mapping[str, Any], countersignature: Mapping[str, Any]
) -> tuple[SignedHead, Countersignature]:
    """Read a countersigned head, and check the countersignature.

    It does not check that the key belongs to the site, nor that the server signed the head.

    Raises:
        FormatError: it is not a countersigned head, or the countersignature is wrong.
    """
    found, said = SignedHead.read(head), Countersignature.read(countersignature)
    if (said.federation, said.head) != (found.federation, _digest(found)):
        raise FormatError("the countersignature is of another head.")
    return found, said


def _digest(head: SignedHead) -> str:
    return hashlib.sha256(dumps(head.envelope.to_dict())).hexdigest()
