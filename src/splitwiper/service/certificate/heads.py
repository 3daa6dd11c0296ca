"""Signed ledger heads, to which the server is held: it sends one with every answer, and sites keep them.

Two heads of equal size with different roots, both signed by the server, prove to anybody that it kept two ledgers. A
head also names the newest model in that ledger, so that a site, which is not shown the entries, knows which model must
answer it. Auditors, who read the ledger, check that.

A site countersigns heads that it saw, so that other sites can compare them with the ledger that they are shown. The
server relays countersignatures: it cannot forge them, but it can withhold them.

Evidence of a fork, which anybody can check, is two signed heads of equal size with different roots.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from splitwiper.checks import Check, CheckFailed, Verification
from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads
from splitwiper.service.certificate.envelope import Envelope, SigningKey
from splitwiper.service.certificate.log import TreeHead
from splitwiper.service.certificate.signed import Hash, Key, OptionalText, SignedMessage, Text
from splitwiper.service.certificate.standing import LARGEST, Keys
from splitwiper.store import files

HEAD_HEADER, PROOF_HEADER, SIZE_HEADER = "Ledger-Head", "Ledger-Proof", "Ledger-Size"
"""HTTP headers: an answer's signed head, the proof that it continues the caller's head, and the size of the latter."""

KIND = "splitwiper-fork-evidence"
"""The kind of a file of evidence."""


@dataclass(frozen=True)
class _Message(SignedMessage):
    """The message that the server signs; it does not name its key."""

    PAYLOAD_TYPE = "application/vnd.splitwiper.head+json"
    TITLE = "a ledger head"
    SIGNER = ""

    federation: OptionalText
    # a head of absurd size would be pinned as the newest, and every later one refused as a rollback
    size: Annotated[int, Field(gt=0, le=LARGEST)]
    root: Hash
    model: OptionalText
    time: OptionalText


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
        """Read a head from its envelope without checking the signature, or raise `FormatError`."""
        made = envelope if isinstance(envelope, Envelope) else Envelope.from_dict(envelope)
        message = _Message.unpack(made)
        return cls(message.federation, TreeHead(message.size, message.root), message.model, message.time, made)

    @classmethod
    def from_header(cls, text: str) -> SignedHead:
        """Read a head from the value of its HTTP header, or raise `FormatError`."""
        return cls.read(Envelope.from_dict(loads(_decoded(text), "ledger head")))

    def to_header(self) -> str:
        """Return the value of the HTTP header."""
        return base64.b64encode(dumps(self.envelope.to_dict())).decode("ascii")

    def digest(self) -> str:
        """Return SHA-256 of the envelope in canonical JSON, by which a countersignature names this head."""
        return hashlib.sha256(dumps(self.envelope.to_dict())).hexdigest()


@dataclass(frozen=True)
class Countersignature(SignedMessage):
    """The statement of a site, by name, that it saw a head; ``head`` is its `SignedHead.digest`."""

    PAYLOAD_TYPE = "application/vnd.splitwiper.countersignature+json"
    TITLE = "a countersignature"

    federation: Text
    site: Text
    key: Key
    head: Text
    time: Text


def countersign(head: SignedHead, site: str, key: SigningKey, time: str) -> dict[str, Any]:
    """Return a head together with a site's countersignature, both as DSSE envelopes."""
    message = Countersignature(head.federation, site, key.public.raw.hex(), head.digest(), time)
    return {"head": head.envelope.to_dict(), "countersignature": message.sign(key)}


def read_countersigned(
    head: Mapping[str, Any], countersignature: Mapping[str, Any]
) -> tuple[SignedHead, Countersignature]:
    """Read a countersigned head, and check the countersignature, or raise `FormatError`.

    It does not check that the key belongs to the site, nor that the server signed the head.
    """
    signed_head, message = SignedHead.read(head), Countersignature.read(countersignature)
    if (message.federation, message.head) != (signed_head.federation, signed_head.digest()):
        raise FormatError("the countersignature is of another head.")
    return signed_head, message


def write_evidence(folder: Path, one: SignedHead, two: SignedHead, *, story: str) -> Path:
    """Write two contradicting heads, with the story of how they were found, to a file, and return its path."""
    content = {"kind": KIND, "heads": [one.envelope.to_dict(), two.envelope.to_dict()], "story": story}
    names = sorted([one.envelope.payload, two.envelope.payload])
    # named by the two heads: the same fork found again gives the same file
    path = folder / f"evidence-{hashlib.sha256(b''.join(names)).hexdigest()[:16]}.json"
    files.write_bytes(path, dumps(content) + b"\n", replace=False)
    return path


def check_evidence(values: Mapping[str, Any], keys: Keys) -> Verification:
    """Check evidence offline. The outcome is ``mismatch`` if it proves that the server signed two ledgers."""
    what = "evidence"
    try:
        one, two = _contradicting(values)
        what = "signature"
        _check_signed(one, keys)
        _check_signed(two, keys)
    except CheckFailed as problem:
        return Verification((Check(what, problem.outcome, problem.detail),))
    detail = (
        f"the server signed two ledgers of {one.head.size} entries: root {one.head.root[:16]}… at {one.time} and "
        f"{two.head.root[:16]}… at {two.time}. Either it showed different ledgers to different sites, or it was "
        "restored from a backup, which its ledger then has an entry about"
    )
    return Verification((Check("evidence", "mismatch", detail),))


def _contradicting(values: Mapping[str, Any]) -> tuple[SignedHead, SignedHead]:
    """Return two heads that cannot be of one ledger."""
    try:
        heads = [SignedHead.read(head) for head in values["heads"]]
    except (FormatError, KeyError, TypeError) as problem:
        raise CheckFailed(f"it proves nothing: {str(problem).removesuffix('.')}", "unverifiable") from problem
    # heads of different sizes contradict each other only with a proof, which evidence does not contain
    if len(heads) != 2 or heads[0].head.size != heads[1].head.size or heads[0].head == heads[1].head:
        detail = "it proves nothing: it takes two heads of equal size with different roots"
        raise CheckFailed(detail, "unverifiable")
    if heads[0].federation != heads[1].federation:
        raise CheckFailed("it proves nothing: the heads are of two servers", "unverifiable")
    return heads[0], heads[1]


def _check_signed(head: SignedHead, keys: Keys) -> None:
    """Check that a key that counts signed a head."""
    if not keys.keys:
        detail = "no public key was given to check it with; get the server's on a way you trust"
        raise CheckFailed(detail, "unverifiable")
    if not keys.signed(head.envelope):
        why = keys.doubtful(head.envelope, head.head.size)
        who = f"the key that signed {head.head} was {why}: a thief may have" if why else "no key that counts has"
        raise CheckFailed(f"it proves nothing: {who} signed {head.head}", "unverifiable")


def proof_to_header(proof: Sequence[str]) -> str:
    """Return the value of the HTTP header for a proof given as hashes in hex."""
    return base64.b64encode(bytes.fromhex("".join(proof))).decode("ascii")


def proof_from_header(text: str) -> list[str]:
    """Read a proof, as hashes in hex, from the value of its HTTP header, or raise `FormatError`."""
    data = _decoded(text)
    if len(data) % 32:
        raise FormatError("this is not a proof: its length is not that of whole hashes.")
    return [data[i : i + 32].hex() for i in range(0, len(data), 32)]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as problem:
        raise FormatError("this is not base64.") from problem
