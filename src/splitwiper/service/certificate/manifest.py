"""The manifest as a Merkle tree, of which a certificate shows the requester's leaf alone.

A leaf is 32 blinding bytes and the commitment to a shard, which is an HMAC under the shard's salt. Blinding bytes
follow from a secret of the ledger and from the model's salt, and leaves are sorted by them: neither a client's name nor
its rank shows, and who holds several certificates cannot tell whether one's leaf is in another's manifest. Both salts
die with what they are for. The model's is handed to sites with the model, so it alone must not give the bytes away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from splitwiper.errors import FormatError, NotFoundError
from splitwiper.seeding import mac
from splitwiper.service.certificate.log import LEDGER_SALT
from splitwiper.store import ServerTree, manifest_digest, merkle, tickets
from splitwiper.store.records import ShardRecord
from splitwiper.wire import Receipt
from splitwiper.wire.commitments import shard_commitment


@dataclass(frozen=True)
class Opening:
    """What opens a requester's part of its certificate; a secret of that client, to be erased with the shard.

    Attributes:
        receipt_key: opens the ledger entry's HMAC of the receipt.
        salt: opens the commitment to the shard; empty where there is no shard, or no longer that one.
        digest: the shard's digest.
        rows: its rows.
        model_salt: opens the commitment to the model; empty where there is no model, or no longer that one.
    """

    receipt_key: str
    salt: str = ""
    digest: str = ""
    rows: int = 0
    model_salt: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The opening as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Opening:
        """An opening from `to_dict`'s values.

        Raises:
            FormatError: it is none.
        """
        try:
            opening = cls(**values)
            bytes.fromhex(opening.receipt_key + opening.salt + opening.model_salt)
        except (TypeError, ValueError) as problem:
            raise FormatError(f"this opens no certificate ({problem}).") from problem
        return opening


def leaf_of(blind: bytes, shard: str) -> bytes:
    """The leaf hash of a commitment to a shard."""
    return merkle.leaf_hash(blind + bytes.fromhex(shard))


def is_standing(tree: ServerTree, receipt: Receipt) -> bool:
    """Whether shard, manifest and model are still those of a receipt."""
    model, shards = tree.model(), tree.shards()
    trained = not shards if model is None else model.manifest == manifest_digest(shards)
    return trained and dict(receipt.after) == tickets.commitments(tree.book.db, receipt.client)


def describe(tree: ServerTree, client: str) -> dict[str, Any]:
    """The manifest as it is, with the proof of one client's leaf."""
    model = tree.model()
    if model is None:
        return {"size": 0, "root": merkle.EMPTY.hex(), "leaf": None}

    secret = tree.book.meta(LEDGER_SALT)
    if secret is None:
        raise NotFoundError(f"{tree.root} has never shown its ledger, nor made a certificate.")

    def blind(record: ShardRecord) -> bytes:
        return mac(bytes.fromhex(secret), "leaf", model.salt, record.client)

    records = sorted(tree.shards(), key=blind)
    leaves = [leaf_of(blind(r), shard_commitment(r.salt, r.digest)) for r in records]
    own = next((number for number, record in enumerate(records) if record.client == client), None)
    leaf = None
    if own is not None:
        proof = [item.hex() for item in merkle.inclusion(leaves, own)]
        leaf = {"index": own, "blind": blind(records[own]).hex(), "proof": proof}
    return {"size": len(leaves), "root": merkle.root(leaves).hex(), "leaf": leaf}
