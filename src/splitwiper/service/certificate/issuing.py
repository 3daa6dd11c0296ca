"""Making certificates: one file for each settled ticket, made once and then handed out again as it is."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from splitwiper.errors import CorruptError, FormatError, NotFoundError
from splitwiper.seeding import digest
from splitwiper.service.certificate.canonical import LIMIT, dumps, loads
from splitwiper.service.certificate.envelope import MOST_SIGNATURES, Envelope
from splitwiper.service.certificate.keys import SigningKey
from splitwiper.service.certificate.log import Log
from splitwiper.service.certificate.manifest import Opening
from splitwiper.service.certificate.signing import Keyring
from splitwiper.service.certificate.statement import describe, statement
from splitwiper.service.certificate.structure import parse
from splitwiper.store import ServerTree, files
from splitwiper.wire.commitments import model_commitment, shard_commitment

_PLAIN = re.compile(r"[0-9a-f]{8,64}")


def certify(
    tree: ServerTree,
    ticket: str,
    key: SigningKey | Sequence[SigningKey],
    *,
    due: str | datetime | None = None,
    request: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The certificate of a settled ticket: made and kept the first time, and the same one ever after.

    It has no time of its own: the same state and key give the same bytes. Made at once, it proves most; made after the
    shard or the model was replaced, it can no longer show the manifest, whose salts are gone. Handed out again after
    the signing key changed, it gets another signature, by the present key; what is signed never changes.

    Args:
        tree: the server's tree.
        ticket: the ticket.
        key: signs it; several may.
        due: until when it was to be settled, if there is a deadline.
        request: the request as the client signed it, if it did.

    Returns:
        A DSSE envelope as plain values.

    Raises:
        NotFoundError: there is no such ticket, or it is not settled.
        CorruptError: the ledger's chain is broken, or the certificate that was kept is damaged.
    """
    tree.receipt(ticket)  # says what is wrong with the ticket before anything is written
    path = kept_at(tree, ticket)
    if not path.exists():
        with tree.book.change() as db:  # one state for all of it
            Log.prepare(db)
            body = dumps(statement(describe(tree, Log.of(tree), ticket, due=due, request=request)))
        parse(body)
        envelope = Envelope.sign(body, [key] if isinstance(key, SigningKey) else key)
        files.make_folder(path.parent)
        files.write_bytes(path, to_bytes(envelope.to_dict()), replace=False)
    return _signed_again(tree, path, _kept(path, ticket), [key] if isinstance(key, SigningKey) else key)


def _signed_again(tree: ServerTree, path: Path, kept: dict[str, Any], keys: Sequence[SigningKey]) -> dict[str, Any]:
    """A kept certificate with a signature of each present key. What the store did not sign itself stays as it is."""
    made, ring = Envelope.from_dict(kept), Keyring.of(tree).keys()
    fresh = [key for key in keys if key.public in ring.good and not made.signers([key.public])]
    if not fresh:
        return kept
    said, log = parse(made.payload)["ledger"], Log.of(tree)
    own = ring.signed(made) or ring.doubtful(made, said["size"]) is not None
    if not own or said["size"] > len(log.entries) or log.head(said["size"]).root != said["root"]:
        return kept  # somebody else's file, or of another ledger: signing it would vouch for it
    more = Envelope.sign(made.payload, fresh, payload_type=made.payload_type).signatures
    first = made.signatures[: MOST_SIGNATURES - len(more)]
    again = Envelope(made.payload, made.payload_type, (*first, *more)).to_dict()
    files.write_bytes(path, to_bytes(again))
    return again


def _kept(path: Path, ticket: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found: dict[str, Any] = loads(file.read(LIMIT + 1), "certificate")
        if parse(Envelope.from_dict(found).payload)["ticket"] != ticket:
            raise FormatError(f"it is not that of ticket {ticket!r}.")
    except FormatError as problem:
        raise CorruptError(
            f"the certificate kept in {path} is damaged ({problem}) Restore it, or remove it to have another one made."
        ) from problem
    return found


def certify_run(run: str | Path, ticket: str, *, due: str | datetime | None = None) -> dict[str, Any]:
    """The certificate of a settled ticket of an in-process run, signed with the run's own key.

    Raises:
        NotFoundError: there is no such run or ticket, or the ticket is not settled.
    """
    folder = Path(run)
    if not (folder / "federation.toml").exists():
        raise NotFoundError(f"there is no run in {folder}. Check the path.")
    tree = ServerTree(folder / "server")
    tree.receipt(ticket)  # before a key is made
    return certify(tree, ticket, Keyring.of(tree).key(), due=due)


def opening(tree: ServerTree, ticket: str) -> Opening:
    """What opens a requester's part of its certificate. Give it to that client alone, over a channel it is known on.

    The salts of shard and model are in it only while these are the certificate's; they die with what they are for.

    Raises:
        NotFoundError: there is no certificate of this ticket yet.
    """
    receipt, log = tree.receipt(ticket), Log.of(tree)
    key = log.receipt_key(log.settled(ticket)).hex()
    shard, model = tree.shard(receipt.client), tree.model()
    found = Opening(key)
    if shard is not None and shard_commitment(shard.salt, shard.digest) == receipt.after["shard"]:
        found = Opening(key, shard.salt.hex(), shard.digest, shard.rows)
    if model is not None and model_commitment(model.salt, model.digest) == receipt.after["model"]:
        found = dataclasses.replace(found, model_salt=model.salt.hex())
    return found


def kept_at(tree: ServerTree, ticket: str) -> Path:
    """Where a ticket's certificate is kept. Tickets are named by clients: an odd name becomes a digest."""
    name = ticket if _PLAIN.fullmatch(ticket) else digest("certificate", ticket)
    return tree.root / "certificates" / f"{name}.json"


def to_bytes(certificate: dict[str, Any]) -> bytes:
    """A certificate as it is written to a file."""
    return dumps(certificate) + b"\n"
