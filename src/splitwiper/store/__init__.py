"""Durable storage: atomic files, SQLite databases with a lease and a fence, the ledger; one store per party."""

from splitwiper.store.client_store import ClientStore
from splitwiper.store.database import Database
from splitwiper.store.records import EpochRecord, ModelRecord, ShardRecord, manifest_digest, outputs_of
from splitwiper.store.server_store import ServerStore
from splitwiper.store.watching import databases_unchanged, read_undisturbed

__all__ = [
    "ClientStore",
    "Database",
    "EpochRecord",
    "ModelRecord",
    "ServerStore",
    "ShardRecord",
    "databases_unchanged",
    "manifest_digest",
    "outputs_of",
    "read_undisturbed",
]
