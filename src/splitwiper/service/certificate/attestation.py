"""Attestations: who recomputed what, and what came out, signed by whoever did it.

A site recomputes its half and its shard from its rows; an auditor recomputes the server half from the shards. Neither
needs the other, and nobody needs to trust the server. Attestations lie beside the signed statement of a certificate, in
a field of the envelope that readers may ignore, because they are made later and by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads_canonical
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.findings import RECOMPUTED, Finding
from splitwiper.service.certificate.keys import PublicKey, SigningKey
from splitwiper.service.certificate.log import Head, follows
from splitwiper.service.certificate.site import is_key

PAYLOAD_TYPE = "application/vnd.splitwiper.attestation+json"
FIELD = "attestations"
"""Where they are in a certificate's file."""
PROOF = "consistency"
"""Where an attestation in a certificate's file has the proof that its ledger is the certificate's."""
MOST = 64
"""Attestations that are read of one certificate."""
_ROLES = ("site", "auditor")
_OUTCOMES = ("exact", "mismatch", "not_comparable")


@dataclass(frozen=True)
class Attestation:
    """What somebody recomputed.

    Attributes:
        federation: the store.
        model: the commitment to the model that it is about; empty where nobody holds rows.
        shard: of a site: the commitment to the shard that it recomputed; empty where it has none.
        size: how many entries the ledger had.
        root: the root over them.
        role: ``"site"``, which recomputes its half and shard, or ``"auditor"``, which recomputes the server half.
        name: who recomputed.
        epochs: of an auditor: the epochs of the training that it recomputed.
        of: of an auditor: how many epochs there are.
        outcome: ``"exact"``, ``"mismatch"`` or ``"not_comparable"``.
        fingerprint: the numerics it was recomputed with.
        made: when, by the clock of whoever signs.
        key: the public key that signs, in hex.
    """

    federation: str
    model: str
    shard: str
    size: int
    root: str
    role: str
    name: str
    epochs: tuple[int, ...]
    of: int
    outcome: str
    fingerprint: Mapping[str, str]
    made: str
    key: str

    def sign(self, key: SigningKey) -> dict[str, Any]:
        """Return the attestation as a DSSE envelope."""
        return Envelope.sign(dumps(asdict(self)), [key], payload_type=PAYLOAD_TYPE).to_dict()

    @property
    def signer(self) -> PublicKey:
        """The key that signs it."""
        return PublicKey(bytes.fromhex(self.key))

    @property
    def is_whole(self) -> bool:
        """Whether everything that the role recomputes was recomputed."""
        return self.role == "site" or len(self.epochs) == self.of

    def __str__(self) -> str:
        if self.role == "site":
            return f"client half and shard, by site {self.name}"
        if not self.of:
            return f"shards and records, by auditor {self.name}"
        if self.is_whole:
            return f"server half, all {self.of} epochs, by auditor {self.name}"
        chance = len(self.epochs) / self.of
        return (
            f"server half, {len(self.epochs)} of {self.of} epochs, by auditor {self.name} (a single forged epoch would "
            f"have been found with probability {chance:.2f})"
        )


def read_attestation(envelope: Mapping[str, Any]) -> Attestation:
    """Return an attestation that was signed by the key it names. Whether that key is trusted is another question.

    Raises:
        FormatError: it is none, or its signature is wrong.
    """
    made = Envelope.from_dict(envelope)
    if made.payload_type != PAYLOAD_TYPE:
        raise FormatError(f"this is no attestation: its type is {made.payload_type[:60]!r}, not {PAYLOAD_TYPE!r}.")
    found = loads_canonical(made.payload, "attestation")
    names = Attestation.__dataclass_fields__
    if not isinstance(found, dict) or found.keys() != names.keys():
        raise FormatError(f"this is no attestation: it has other fields than {', '.join(names)}.")
    if odd := [name for name, value in found.items() if not _fits(name, value)]:
        raise FormatError(f"this is no attestation: its {odd[0]} is {str(found[odd[0]])[:60]!r}.")
    told = Attestation(**{**found, "epochs": tuple(found["epochs"])})
    if len(set(told.epochs)) != len(told.epochs) or not all(1 <= epoch <= told.of for epoch in told.epochs):
        raise FormatError(f"this is no attestation: its epochs are not different ones of 1 to {told.of}.")
    if not made.signers([told.signer]):
        raise FormatError("the attestation's signature is not that of the key it names.")
    return told


def _fits(name: str, value: Any) -> bool:
    if name in ("size", "of"):
        return _is_count(value)
    if name == "epochs":
        return isinstance(value, list) and len(value) <= 10_000 and all(map(_is_count, value))
    if name == "fingerprint":
        return isinstance(value, dict) and len(value) <= 64 and all(isinstance(v, str) for v in value.values())
    if name in ("role", "outcome"):
        return value in (_ROLES if name == "role" else _OUTCOMES)
    if name in ("model", "shard") and value == "":
        return True
    text = isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()
    return text and (name != "key" or is_key(value))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def attested(said: Mapping[str, Any], given: Any, trusted: Iterable[PublicKey]) -> Iterator[Finding]:
    """Check the attestations beside a certificate: each by itself, and what they cover together.

    Args:
        said: what the certificate says.
        given: its attestations, as they are in the file.
        trusted: keys whose attestations count.
    """
    keys = {key.raw for key in trusted}
    counted: list[Attestation] = []
    for envelope in given[:MOST] if isinstance(given, list) else []:
        try:
            told = read_attestation(envelope)
        except FormatError as problem:
            yield Finding("attestation", "mismatch", str(problem).removesuffix("."))
            continue
        finding = _judged(said, told, keys, envelope.get(PROOF))
        if finding.outcome == "holds":
            counted.append(told)
        yield finding
    if counted:
        yield _together(said, counted)


def _judged(said: Mapping[str, Any], told: Attestation, keys: set[bytes], proof: Any) -> Finding:
    """Return what one attestation says of a certificate."""
    what = f"attestation of {told.role} {told.name}"
    if (told.federation, told.model or None) != (said["federation"], said["after"]["model"]):
        return Finding(what, "unchecked", "it is about another federation or model, and says nothing of this one")
    if told.role == "site" and (told.name, told.shard or None) != (said["client"], said["after"]["shard"]):
        return Finding(what, "unchecked", "it is about the shard of another site, or about another shard")
    if told.signer.raw not in keys:
        return Finding(what, "unchecked", f"its key {told.signer.id[:16]} is not among those that are trusted here")
    if apart := _apart(said, told, proof, what):
        return apart
    if told.outcome == "mismatch":
        wrong = "recomputed, and different" if told.of or told.role == "site" else "not what the ledger says"
        return Finding(what, "mismatch", f"{wrong}: {told}")
    if told.outcome != "exact":
        return Finding(what, "unchecked", f"its numerics were not comparable: {told}")
    return Finding(what, "holds", f"recomputed and equal, bit for bit: {told}")


def _apart(said: Mapping[str, Any], told: Attestation, proof: Any, what: str) -> Finding | None:
    """Return a finding where an attestation is not about the certificate's ledger; None where it is.

    A server could show an auditor another ledger, in which the request was never made, with the same model in it.
    """
    ledger = said["ledger"]
    own, theirs = Head(ledger["size"], ledger["root"]), Head(told.size, told.root)
    if theirs.size < ledger["entry"]["seq"]:
        return Finding(what, "unchecked", "it was made before the request was settled")
    if own.size == theirs.size:
        proof = []
    if not isinstance(proof, list):
        missing = "nothing shows that the ledger it was made with is the certificate's"
        return Finding(what, "unchecked", f"{missing}: fetch the certificate from the server again")
    if not follows(min(own, theirs), max(own, theirs), proof):
        return Finding(what, "mismatch", f"it was made with another ledger ({theirs}) than the certificate ({own})")
    return None


def _together(said: Mapping[str, Any], counted: Sequence[Attestation]) -> Finding:
    """Whether both halves were recomputed wholly, by those who are trusted."""
    told = "; ".join(map(str, counted))
    lacking = []
    if not any(one.role == "site" for one in counted):
        lacking.append("the client half and shard, by their site")
    servers = [one for one in counted if one.role == "auditor"]
    if said["after"]["model"] is not None and not any(one.is_whole for one in servers):
        lacking.append("the server half wholly, by an auditor" if servers else "the server half, by an auditor")
    if lacking:
        return Finding(RECOMPUTED, "holds", f"recomputed: {told}; not recomputed yet: {' and '.join(lacking)}")
    if not said["exact"]:
        return Finding(RECOMPUTED, "mismatch", "the certificate says that the server started warm, attestations not")
    return Finding(RECOMPUTED, "exact", told)
