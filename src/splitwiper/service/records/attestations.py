"""Attestations submitted by sites and auditors, kept in the service's database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from splitwiper.errors import DataError
from splitwiper.service.certificate.attestation import FIELD, MOST, PROOF, Attestation
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.log import Log
from splitwiper.service.certificate.statement import parse
from splitwiper.service.identity import Principal
from splitwiper.service.records.client_keys import ClientKeys, read_signed
from splitwiper.store.database import Database
from splitwiper.store.tickets import now

SCHEMA = """
CREATE TABLE attestations (
  role TEXT NOT NULL, name TEXT NOT NULL, model TEXT NOT NULL, shard TEXT NOT NULL, signed TEXT NOT NULL,
  received TEXT NOT NULL, PRIMARY KEY (role, name, model, shard));
"""
_KEPT = 1000
"""The number of newest attestations kept for each signer."""


class Attestations:
    """The stored attestations. For each signer, model and shard the newest counts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, caller: Principal, signed: Mapping[str, Any], *, federation: str, keys: ClientKeys) -> None:
        """Store an attestation that a site or auditor submits.

        Raises:
            DataError: it is not an attestation, or belongs to another signer or store.
            ForbiddenError: a site signed it with a key other than its registered one.
        """
        attestation = read_signed(Attestation, signed)
        role = {"client": "site", "auditor": "auditor"}.get(caller.kind)
        # the caller's own identity decides: nobody attests in another's name
        if (attestation.federation, attestation.role, attestation.name) != (federation, role, caller.name):
            raise DataError(
                f"this attestation is that of {attestation.role} {attestation.name!r}, for another store or not yours."
            )
        # an auditor's key is known only to those who trust the auditor, so the server does not check it
        if role == "site":
            keys.check(attestation.name, attestation.key)
        with self._database.change() as db:
            db.execute(
                "INSERT OR REPLACE INTO attestations VALUES (?, ?, ?, ?, ?, ?)",
                (role, caller.name, attestation.model, attestation.shard, json.dumps(signed), now()),
            )
            # nobody may fill the disk with attestations
            db.execute(
                "DELETE FROM attestations WHERE role = :role AND name = :name AND rowid NOT IN "
                "(SELECT rowid FROM attestations WHERE role = :role AND name = :name ORDER BY rowid DESC LIMIT :kept)",
                {"role": role, "name": caller.name, "kept": _KEPT},
            )

    def of(self, model: str, requester: str) -> list[dict[str, Any]]:
        """Return the attestations about a model that concern one requester, oldest first: its own and the auditors'.

        Those of other sites are left out, however many there are, because they name those sites.
        """
        rows = self._database.read(
            "SELECT signed FROM attestations WHERE model = ? AND (role = 'auditor' OR name = ?) "
            "ORDER BY role, rowid DESC LIMIT ?",
            (model, requester, MOST),
        )
        return [json.loads(row["signed"]) for row in rows][::-1]

    def beside(self, certificate: Mapping[str, Any], log: Log) -> dict[str, Any]:
        """Return a certificate with the attestations about its model added; its signed part is unchanged.

        Each attestation gets the proof that it was made with the certificate's ledger.
        """
        predicate = parse(Envelope.from_dict(certificate).payload)
        size, model = predicate["ledger"]["size"], predicate["after"]["model"] or ""
        proved = [_proved(attestation, size, log) for attestation in self.of(model, predicate["client"])]
        return {**certificate, FIELD: proved} if proved else dict(certificate)


def _proved(signed: Mapping[str, Any], size: int, log: Log) -> dict[str, Any]:
    """Return an attestation with the proof between its ledger's head and that of ``size`` entries, if there is one."""
    old, new = sorted((Attestation.read(signed).size, size))
    if new > len(log.entries):  # from a ledger that a restored backup replaced
        return dict(signed)
    return {**signed, PROOF: log.consistency(old, new)}
