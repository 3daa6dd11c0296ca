"""The manifest as a Merkle tree, of which a certificate shows only the requester's leaf.

A leaf is 32 blinding bytes and the commitment to a shard, which is an HMAC under the shard's salt. Blinding bytes are
derived from a secret of the ledger and the model's salt, and leaves are sorted by them: they reveal neither a client's
name nor its rank, and the holder of several certificates cannot tell whether the leaf of one is in the manifest of
another. Both salts are erased with the objects that they belong to. Sites get the model's salt with the model, so that
salt alone must not determine the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from splitwiper.errors import FormatError, NotFoundError
from splitwiper.seeding import mac
from splitwiper.service.certificate.log import LEDGER_SALT
from splitwiper.store import ServerStore, manifest_digest, merkle, tickets
from splitwiper.store.records import ShardRecord
from splitwiper.wire import Receipt
from splitwiper.wire.commitments import shard_commitment


@dataclass(frozen=True)
class Opening:
    """The secret that opens a requester's part of its certificate; the client must erase it with the shard.

    Attributes:
        receipt_key: opens the ledger entry's HMAC of the receipt.
        salt: opens the commitment to the shard; empty if there is no shard, or it was replaced.
        model_salt: opens the commitment to the model; empty if there is no model, or it was replaced.
    """

    receipt_key: str
    salt: str = ""
    digest: str = ""
    rows: int = 0
    model_salt: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the opening as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Opening:
        """Return the opening in the values that `to_dict` gives, or raise `FormatError`."""
        try:
            opening = cls(**values)
            bytes.fromhex(opening.receipt_key + opening.salt + opening.model_salt)
        except (TypeError, ValueError) as problem:
            raise FormatError(f"this opens no certificate ({problem}).") from problem
        return opening


def leaf_of(blind: bytes, shard: str) -> bytes:
    """Return the leaf hash of a commitment to a shard."""
    return merkle.leaf_hash(blind + bytes.fromhex(shard))


def is_standing(store: ServerStore, receipt: Receipt) -> bool:
    """Return whether shard, manifest and model are still those of a receipt."""
    model, shards = store.model(), store.shards()
    trained = not shards if model is None else model.manifest == manifest_digest(shards)
    with store.database.reading() as db:
        return trained and dict(receipt.after) == tickets.commitments(db, receipt.client)


def describe(store: ServerStore, client: str) -> dict[str, Any]:
    """Return the current manifest's size and root, with the proof of one client's leaf."""
    model = store.model()
    if model is None:
        return {"size": 0, "root": merkle.EMPTY.hex(), "leaf": None}

    secret = store.database.meta(LEDGER_SALT)
    if secret is None:
        raise NotFoundError(f"{store.root} has never shown its ledger, nor made a certificate.")

    # derived from a secret and from the model's salt: the same shard gets other bytes in every manifest
    def blind(record: ShardRecord) -> bytes:
        return mac(bytes.fromhex(secret), "leaf", model.salt, record.client)

    records, tree = sorted(store.shards(), key=blind), merkle.GrowingTree()
    tree.extend(leaf_of(blind(record), shard_commitment(record.salt, record.digest)) for record in records)
    leaf = None
    for index, record in enumerate(records):
        if record.client == client:
            proof = [item.hex() for item in tree.inclusion(index, len(tree))]
            leaf = {"index": index, "blind": blind(record).hex(), "proof": proof}
    return {"size": len(tree), "root": tree.root(len(tree)).hex(), "leaf": leaf}
