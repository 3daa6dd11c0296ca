"""Signed ledger heads, to which the server is held: it sends one with every answer, and sites keep them.

Two heads of equal size with different roots, both signed by the server, prove to anybody that it kept two ledgers. A
head also names the newest model in that ledger, so that a site, which is not shown the entries, knows which model must
answer it. Auditors, who read the ledger, check that.

A site countersigns heads that it saw, so that other sites can compare them with the ledger that they are shown. The
server relays countersignatures: it cannot forge them, but it can withhold them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.keys import SigningKey
from splitwiper.service.certificate.log import TreeHead
from splitwiper.service.certificate.signed import SignedMessage
from splitwiper.service.certificate.standing import LARGEST

HEAD, PROOF, SIZE = "Ledger-Head", "Ledger-Proof", "Ledger-Size"
"""HTTP headers: an answer's signed head, the proof that it continues the caller's head, and the size of the latter."""
_ROOT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class _Message(SignedMessage):
    """The message that the server signs; it does not name its key."""

    PAYLOAD_TYPE = "application/vnd.splitwiper.head+json"
    TITLE = "a ledger head"
    SIGNER = ""
    MAY_BE_EMPTY = ("federation", "model", "time")

    federation: str
    size: int
    root: str
    model: str
    time: str


@dataclass(frozen=True)
class SignedHead:
    """A ledger head signed by the server.

    Attributes:
        federation: the id of the server's store; heads of another store do not count.
        head: the ledger's size and root.
        model: the commitment to the newest model in the ledger; empty if there is none.
        time: the time of signing, by the server's clock.
        envelope: the DSSE envelope. The reader must check that a known key signed it.
    """

    federation: str
    head: TreeHead
    model: str
    time: str
    envelope: Envelope

    @classmethod
    def sign(cls, federation: str, head: TreeHead, time: str, key: SigningKey, *, model: str = "") -> SignedHead:
        """Sign a head."""
        message = _Message(federation, head.size, head.root, model, time)
        return cls(federation, head, model, time, message.envelope(key))

    @classmethod
    def read(cls, envelope: Envelope | Mapping[str, Any]) -> SignedHead:
        """Read a head from its envelope, without checking the signature.

        Raises:
            FormatError: it is not a head.
        """
        made = envelope if isinstance(envelope, Envelope) else Envelope.from_dict(envelope)
        message = _Message.unpack(made)
        # a head of absurd size would be pinned as the newest, and every later one refused as a rollback
        if not 0 < message.size <= LARGEST:
            raise FormatError("this is not a ledger head: its size is not a number of entries.")
        if not _ROOT.fullmatch(message.root):
            raise FormatError("this is not a ledger head: its root is not 64 hexadecimal digits.")
        return cls(message.federation, TreeHead(message.size, message.root), message.model, message.time, made)

    @classmethod
    def from_header(cls, text: str) -> SignedHead:
        """Read a head from the value of its HTTP header.

        Raises:
            FormatError: it is not a head.
        """
        return cls.read(Envelope.from_dict(loads(_decoded(text), "ledger head")))

    def to_header(self) -> str:
        """Return the value of the HTTP header."""
        return base64.b64encode(dumps(self.envelope.to_dict())).decode("ascii")


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
    message = Countersignature(head.federation, site, key.public.raw.hex(), _digest(head), time)
    return {"head": head.envelope.to_dict(), "countersignature": message.sign(key)}


def read_countersigned(
    head: Mapping[str, Any], countersignature: Mapping[str, Any]
) -> tuple[SignedHead, Countersignature]:
    """Read a countersigned head, and check the countersignature.

    It does not check that the key belongs to the site, nor that the server signed the head.

    Raises:
        FormatError: it is not a countersigned head, or the countersignature is wrong.
    """
    found, message = SignedHead.read(head), Countersignature.read(countersignature)
    if (message.federation, message.head) != (found.federation, _digest(found)):
        raise FormatError("the countersignature is of another head.")
    return found, message


def _digest(head: SignedHead) -> str:
    return hashlib.sha256(dumps(head.envelope.to_dict())).hexdigest()


def proof_to_header(proof: Sequence[str]) -> str:
    """Return the value of the HTTP header for a proof given as hashes in hex."""
    return base64.b64encode(b"".join(map(bytes.fromhex, proof))).decode("ascii")


def proof_from_header(text: str) -> list[str]:
    """Read a proof from the value of its HTTP header.

    Raises:
        FormatError: it is not a sequence of hashes.
    """
    data = _decoded(text)
    if len(data) % 32:
        raise FormatError("this is not a proof: its length is not that of whole hashes.")
    return [data[i : i + 32].hex() for i in range(0, len(data), 32)]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as problem:
        raise FormatError("this is not base64.") from problem
