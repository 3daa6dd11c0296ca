"""Attestations: signed records of who recomputed what, with which outcome.

A site recomputes its half and its shard from its rows; an auditor recomputes the server half from the shards. Neither
needs the other, and nobody needs to trust the server. Attestations are stored next to a certificate's signed statement,
in a field of the envelope that readers may ignore, because they are made later and by other parties.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Self

from pydantic import FailFast, Field

from splitwiper.checks import RECOMPUTED, Check, CheckFailed, failed_check, run_check
from splitwiper.errors import FormatError
from splitwiper.service.certificate.envelope import Envelope, PublicKey
from splitwiper.service.certificate.log import TreeHead, follows
from splitwiper.service.certificate.signed import Count, Key, OptionalText, SignedMessage, SignedRequest, Text

FIELD = "attestations"
"""The field of a certificate's file that holds the attestations."""
PROOF = "consistency"
"""The field of an attestation in a certificate's file with the proof that both were made with the same ledger."""
MOST = 64
"""The largest number of attestations read from one certificate."""


@dataclass(frozen=True)
class Attestation(SignedMessage):
    """A signed result of a recomputation.

    Attributes:
        model: the commitment to the model that it is about; empty if nobody holds rows.
        shard: for a site: the commitment to the shard that it recomputed; empty if it has none.
        size: the number of ledger entries at the time, and ``root`` the Merkle root over them.
        role: ``"site"``, which recomputes its half and shard, or ``"auditor"``, which recomputes the server half.
        epochs: for an auditor: the epochs of the training that it recomputed, and ``of`` how many there are.
        fingerprint: the numerics it was recomputed with.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.attestation+json"
    TITLE = "an attestation"

    federation: Text
    model: OptionalText
    shard: OptionalText
    size: Count
    root: Text
    role: Annotated[str, Field(pattern="^(site|auditor)$")]
    name: Text
    epochs: Annotated[tuple[Count, ...], Field(max_length=10_000), FailFast()]
    of: Count
    outcome: Annotated[str, Field(pattern="^(exact|mismatch|not_comparable)$")]
    fingerprint: Annotated[Mapping[str, str], Field(max_length=64)]
    made: Text
    key: Key

    @classmethod
    def unpack(cls, envelope: Envelope) -> Self:
        """Return the attestation in an envelope; its epochs must be distinct and between 1 and ``of``."""
        attestation = super().unpack(envelope)
        epochs, of = attestation.epochs, attestation.of
        # an epoch given twice would count twice in `is_whole`
        if len(set(epochs)) != len(epochs) or not all(1 <= epoch <= of for epoch in epochs):
            raise FormatError(f"this is not an attestation: its epochs are not different ones of 1 to {of}.")
        return attestation

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


def attested(certificate: Mapping[str, Any], given: Any, trusted: Iterable[PublicKey]) -> Iterator[Check]:
    """Check a certificate's attestations, each by itself, and report what those by trusted keys cover together."""
    keys = set(trusted)
    counted: list[Attestation] = []
    for envelope in given[:MOST] if isinstance(given, list) else []:
        try:
            attestation = Attestation.read(envelope)
        except FormatError as problem:
            yield failed_check("attestation", problem)
            continue
        judge = partial(_judged, certificate, attestation, keys, envelope.get(PROOF))
        check = run_check(f"attestation of {attestation.role} {attestation.name}", judge)
        if check.outcome == "holds":
            counted.append(attestation)
        yield check
    if counted:
        yield _together(certificate, counted)


def _judged(certificate: Mapping[str, Any], attestation: Attestation, keys: set[PublicKey], proof: Any) -> str:
    """Check one attestation of a certificate; see `run_check`."""
    after, is_site = certificate["after"], attestation.role == "site"
    if (attestation.federation, attestation.model or None) != (certificate["federation"], after["model"]):
        raise CheckFailed("it is about another federation or model, and says nothing of this one", "unchecked")
    if is_site and (attestation.name, attestation.shard or None) != (certificate["client"], after["shard"]):
        raise CheckFailed("it is about the shard of another site, or about another shard", "unchecked")
    if attestation.signer not in keys:
        signer = attestation.signer.id[:16]
        raise CheckFailed(f"its key {signer} is not among those that are trusted here", "unchecked")
    # a site signs its attestation with the key that signed the request, and an auditor must not be that site
    requester = _requester(certificate)
    if requester is not None and is_site != (attestation.signer == requester):
        whose = "another key than the request" if is_site else "the requester's own key, not an auditor's"
        raise CheckFailed(f"it was signed by {whose}", "unchecked")
    _check_ledger(certificate, attestation, proof)
    if attestation.outcome == "mismatch":
        wrong = "recomputed, and different" if attestation.of or is_site else "not what the ledger says"
        raise CheckFailed(f"{wrong}: {attestation}")
    if attestation.outcome != "exact":
        raise CheckFailed(f"its numerics were not comparable: {attestation}", "unchecked")
    return f"recomputed and equal, bit for bit: {attestation}"


def _requester(certificate: Mapping[str, Any]) -> PublicKey | None:
    """Return the key that signed the request, which is the site's own; None if the certificate shows none."""
    try:
        return SignedRequest.read(certificate["request"]).signer if certificate["request"] else None
    except FormatError:  # reported as a separate check
        return None


def _check_ledger(certificate: Mapping[str, Any], attestation: Attestation, proof: Any) -> None:
    """Check that an attestation is about the certificate's ledger.

    A server could show an auditor another ledger, in which the request was never made, with the same model in it.
    """
    ledger = certificate["ledger"]
    own, theirs = TreeHead(ledger["size"], ledger["root"]), TreeHead(attestation.size, attestation.root)
    if theirs.size < ledger["entry"]["seq"]:
        raise CheckFailed("it was made before the request was settled", "unchecked")
    if own.size == theirs.size:
        proof = []
    if not isinstance(proof, list):
        missing = "nothing shows that the ledger it was made with is the certificate's"
        raise CheckFailed(f"{missing}: fetch the certificate from the server again", "unchecked")
    if not follows(min(own, theirs), max(own, theirs), proof):
        raise CheckFailed(f"it was made with another ledger ({theirs}) than the certificate ({own})")


def _together(certificate: Mapping[str, Any], counted: Sequence[Attestation]) -> Check:
    """Report whether trusted parties have recomputed both halves completely."""
    who, missing = "; ".join(map(str, counted)), []
    roles = {attestation.role for attestation in counted}
    if "site" not in roles:
        missing.append("the client half and shard, by their site")
    # one auditor must have recomputed all epochs: those of several auditors are not added up
    whole = any(attestation.role == "auditor" and attestation.is_whole for attestation in counted)
    if certificate["after"]["model"] is not None and not whole:
        missing.append("the server half" + (" wholly" if "auditor" in roles else "") + ", by an auditor")
    if missing:
        return Check(RECOMPUTED, "holds", f"recomputed: {who}; not recomputed yet: {' and '.join(missing)}")
    if not certificate["exact"]:
        return Check(RECOMPUTED, "mismatch", "the certificate says that the server started warm, attestations not")
    return Check(RECOMPUTED, "exact", who)
