"""Certificates of a site: fetched, checked in every way that the site can, and kept; and attestations of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splitwiper.errors import MismatchError
from splitwiper.numerics import isolated_call
from splitwiper.seeding import digest
from splitwiper.service.certificate import Attestation, Checked, PublicKey, TreeHead, check, read_public
from splitwiper.service.certificate.issuing import to_bytes
from splitwiper.service.certificate.log import shows
from splitwiper.service.site.parts import SiteParts
from splitwiper.service.site.proof import check_held, check_own, check_predictions, check_served
from splitwiper.store import files
from splitwiper.store.tickets import now

REJECTED = ".rejected"
"""Suffix of the file of a certificate that failed its checks."""


@dataclass(frozen=True)
class Certified:
    """A certificate, and the result of checking it."""

    envelope: dict[str, Any]
    checked: Checked

    def __bool__(self) -> bool:
        """Return whether the certificate holds."""
        return self.checked.holds


class CertifiedSite(SiteParts):
    """A site that holds certificates."""

    @isolated_call()
    def certificate(self, ticket: str) -> Certified:
        """Fetch the certificate of a settled request, check it in every way this site can, and store it.

        Signature, proofs and ledger are checked as anybody can; then the certificate is compared with the request that
        this site signed, the shards that it sent, and the model that answers. The server's keys are remembered from the
        first contact on, and other keys are refused.

        Raises:
            ForkError: the server shows another ledger than before.
            InputError: it signs with a key that this client does not know.
        """
        client = self.client
        client.heed()  # the shard that answered the request may have been set aside since
        envelope, receipt = self.link.certificate(ticket), self.link.receipt(ticket)
        opening = self.link.opening(ticket)
        checked = check(
            envelope,
            self.keys(),
            pins=self.guard.pins,
            consistency=self.link.consistency,
            opening=opening,
            receipt=receipt,
            client_key=self.own_key.public,
            attesters=self.attesters(),
        )
        self.witnessing.try_exchange()
        if contents := checked.certificate:
            own = list(check_own(contents, self._store(), ticket))
            if own[0].outcome == "holds":
                own.append(check_held(contents, self._store(), ticket, opening))
            checked = replace(checked, checks=(*checked.checks, *own))
            # first, because the model that answers is compared with the one that was accepted last
            if checked.holds and contents["after"]["model"] is not None:
                self.watch.certified(contents["after"]["model"], contents["ledger"]["entry"]["seq"])
            about_model = (
                check_served(contents, opening, self.watch.fetched),
                check_predictions(contents, client, self.watch, self.link.scores),
            )
            checked = replace(checked, checks=(*checked.checks, *about_model))
        path = self.kept_certificate(ticket)
        files.make_folder(path.parent)
        if checked.outcome == "mismatch":  # stored as evidence, and fetched again the next time
            path = path.with_suffix(REJECTED)
        files.write_bytes(path, to_bytes(envelope))
        return Certified(envelope, checked)

    def kept_certificate(self, ticket: str) -> Path:
        """Return where this site stores the certificate of a request."""
        name = ticket if ticket.isalnum() else digest("certificate", ticket)  # a ticket could look like a path
        return self.path / self.config.name / "certificates" / f"{name}.json"

    def certificates(self, *, missing: bool = False) -> dict[str, Certified]:
        """Fetch and check the certificates of all settled requests, or only those that are not stored yet."""
        own = {row["ticket"] for row in self._store().requests("open", "sent", "done")}
        certificates = {}
        for request in self.requests():
            # the server may list others, with ids that are no tickets: first of all, it must be the site's own
            if request.id not in own or request.state != "settled":
                continue
            if not (missing and self.kept_certificate(request.id).exists()):
                certificates[request.id] = self.certificate(request.id)
        return certificates

    def attest(self, outcome: str, fingerprint: Mapping[str, str]) -> dict[str, Any]:
        """Sign the result of recomputing this site's half and shard, and submit it to the server.

        ``outcome`` is ``"exact"``, ``"mismatch"`` or ``"not_comparable"``; ``fingerprint`` is that of the
        recomputation.
        """
        shown, store, key = self.link.model_entry(), self._store(), self.own_key.key()
        if not shows(shown):
            raise MismatchError("the server cannot show its newest model in its ledger.")
        self._compare(TreeHead(int(shown["size"]), str(shown["root"])))
        attestation = Attestation(
            federation=store.database.meta("federation") or "",
            model=shown["entry"].get("model") or "",
            shard=store.shard_commitment() or "",
            size=int(shown["size"]),
            root=str(shown["root"]),
            role="site",
            name=self.config.name,
            epochs=(),
            of=0,
            outcome=outcome,
            fingerprint=dict(fingerprint),
            made=now(),
            key=key.public.raw.hex(),
        ).sign(key)
        self.link.attest(attestation)
        return attestation

    def attesters(self) -> tuple[PublicKey, ...]:
        """Return the keys whose attestations count here: this site's own, and those that its settings name."""
        folder = self.config.attesters
        # not the server's word for who an auditor is: this site names the keys that it trusts
        return (self.own_key.public, *(read_public(self.path / folder) if folder else ()))
