"""The durable store: atomic files, SQLite books with a lease and a fence, the ledger; one tree per party."""

from splitwiper.store.book import Book
from splitwiper.store.client_tree import ClientTree
from splitwiper.store.records import EpochRecord, ModelRecord, ShardRecord, manifest_digest, outputs_of
from splitwiper.store.server_tree import ServerTree
from splitwiper.store.watching import read_undisturbed, undisturbed

__all__ = [
    "Book",
    "ClientTree",
    "EpochRecord",
    "ModelRecord",
    "ServerTree",
    "ShardRecord",
    "manifest_digest",
    "outputs_of",
    "read_undisturbed",
    "undisturbed",
]
