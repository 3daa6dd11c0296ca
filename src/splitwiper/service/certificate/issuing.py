"""Issuing certificates: one file for each settled ticket, made once and returned unchanged from then on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from splitwiper.errors import CorruptError, FormatError, NotFoundError
from splitwiper.seeding import digest
from splitwiper.service.certificate.canonical import dumps, loads
from splitwiper.service.certificate.envelope import MOST_SIGNATURES, Envelope, SigningKey, read_limited
from splitwiper.service.certificate.keyring import Keyring
from splitwiper.service.certificate.log import Log
from splitwiper.service.certificate.manifest import Opening
from splitwiper.service.certificate.statement import describe, parse, statement
from splitwiper.store import ServerStore, files
from splitwiper.wire.commitments import model_commitment, shard_commitment

_PLAIN = re.compile(r"[0-9a-f]{8,64}")


def certify(
    store: ServerStore,
    ticket: str,
    key: SigningKey | Sequence[SigningKey],
    *,
    due: str | datetime | None = None,
    request: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the certificate of a settled ticket; it is issued and stored on the first call.

    It contains no time of issue: the same state and key give the same bytes. Issued promptly, it proves most; once the
    shard or the model was replaced, it can no longer show the manifest, whose salts are erased. If the signing key has
    changed since, a signature by the present key is added; the signed content never changes.

    Args:
        store: the server's store.
        ticket: the ticket's id.
        key: the signing key, or several.
        due: the deadline for settling it, if there is one.
        request: the request as the client signed it, if it did.

    Raises:
        NotFoundError: there is no such ticket, or it is not settled.
        CorruptError: the ledger's chain is broken, or the stored certificate is damaged.
    """
    store.receipt(ticket)  # reports a problem with the ticket before anything is written
    keys = [key] if isinstance(key, SigningKey) else key
    path = kept_at(store, ticket)
    if not path.exists():
        with store.database.change() as db:  # one transaction, so one consistent state
            Log.prepare(db)
            body = dumps(statement(describe(store, Log.of(store), ticket, due=due, request=request)))
        parse(body)
        files.make_folder(path.parent)
        # not replaced: if another process was faster, its certificate is the one
        files.write_bytes(path, to_bytes(Envelope.sign(body, keys).to_dict()), replace=False)
    return _signed_again(store, path, _kept(path, ticket), keys)


def _signed_again(store: ServerStore, path: Path, kept: dict[str, Any], keys: Sequence[SigningKey]) -> dict[str, Any]:
    """Add a signature of each present key to a stored certificate, unless the store itself did not sign it."""
    envelope, ring = Envelope.from_dict(kept), Keyring.of(store).keys()
    # a certificate signed by a revoked key is doubtful until a key in good standing signs it, too
    fresh = [key for key in keys if key.public in ring.good and not envelope.signers([key.public])]
    if not fresh:
        return kept
    shown, log = parse(envelope.payload)["ledger"], Log.of(store)
    own = ring.signed(envelope) or ring.doubtful(envelope, shown["size"]) is not None
    if not own or shown["size"] > len(log.entries) or log.head(shown["size"]).root != shown["root"]:
        return kept  # from elsewhere or of another ledger: signing it would vouch for it
    added = Envelope.sign(envelope.payload, fresh, payload_type=envelope.payload_type).signatures
    earlier = envelope.signatures[: MOST_SIGNATURES - len(added)]  # readers refuse an envelope with more
    again = replace(envelope, signatures=(*earlier, *added)).to_dict()
    files.write_bytes(path, to_bytes(again))
    return again


def _kept(path: Path, ticket: str) -> dict[str, Any]:
    try:
        certificate: dict[str, Any] = loads(read_limited(path), "certificate")
        if parse(Envelope.from_dict(certificate).payload)["ticket"] != ticket:
            raise FormatError(f"it is not that of ticket {ticket!r}.")
    except FormatError as problem:
        raise CorruptError(
            f"the certificate kept in {path} is damaged ({problem}) Restore it, or remove it to have another one made."
        ) from problem
    return certificate


def certify_run(run: str | Path, ticket: str, *, due: str | datetime | None = None) -> dict[str, Any]:
    """Return the certificate of a settled ticket of an in-process run, signed with the run's own key; see `certify`."""
    folder = Path(run)
    if not (folder / "federation.toml").exists():
        raise NotFoundError(f"there is no run in {folder}. Check the path.")
    store = ServerStore(folder / "server")
    store.receipt(ticket)  # fails before a key is made
    return certify(store, ticket, Keyring.of(store).key(), due=due)


def opening(store: ServerStore, ticket: str) -> Opening:
    """Return the secret that opens a requester's part of its certificate. Send it to that client only, authenticated.

    The salts of shard and model are included only while both are still the certificate's; they are erased with them.
    """
    receipt, log = store.receipt(ticket), Log.of(store)
    secret = Opening(log.receipt_key(log.settled(ticket)).hex())
    shard, model = store.shard(receipt.client), store.model()
    if shard is not None and shard_commitment(shard.salt, shard.digest) == receipt.after["shard"]:
        secret = replace(secret, salt=shard.salt.hex(), digest=shard.digest, rows=shard.rows)
    if model is not None and model_commitment(model.salt, model.digest) == receipt.after["model"]:
        secret = replace(secret, model_salt=model.salt.hex())
    return secret


def kept_at(store: ServerStore, ticket: str) -> Path:
    """Return where a ticket's certificate is stored. Clients choose ticket ids, so an unusual one is hashed."""
    # a ticket such as '../key' must not choose the path
    name = ticket if _PLAIN.fullmatch(ticket) else digest("certificate", ticket)
    return store.root / "certificates" / f"{name}.json"


def to_bytes(certificate: dict[str, Any]) -> bytes:
    """Return a certificate as the bytes of its file."""
    return dumps(certificate) + b"\n"
