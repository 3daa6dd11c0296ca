"""What the server's database says: shards and the manifest they make up, the model, and the state of requests.

Nothing here changes anything. `splitwiper.store.server_store` has the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from splitwiper.errors import CorruptError, IdentityError, NotFoundError, StoreError
from splitwiper.seeding import digest
from splitwiper.store import files, ledger, relay, tickets
from splitwiper.store.blobs import FOLDERS, BlobStore, blob_store
from splitwiper.store.folder import Store
from splitwiper.store.keys import read_key
from splitwiper.store.records import (
    EpochRecord,
    ModelRecord,
    ShardRecord,
    columns_in,
    labels_in,
    manifest_digest,
    model_record,
    parsed,
    plain_name,
    shard_record,
)
from splitwiper.store.relay import Relay
from splitwiper.store.tensors import load_state
from splitwiper.wire import Column, Label, Receipt, Shard, Ticket, open_shard

_T = TypeVar("_T")
_OWN = """
CREATE TABLE clients (name TEXT PRIMARY KEY, generation INTEGER NOT NULL);
CREATE TABLE shards (
  client TEXT PRIMARY KEY REFERENCES clients, file TEXT NOT NULL, digest TEXT NOT NULL, rows INTEGER NOT NULL,
  size INTEGER NOT NULL, salt BLOB NOT NULL, labels TEXT NOT NULL,
  codebook TEXT NOT NULL, outputs INTEGER NOT NULL, signed TEXT);
CREATE INDEX shards_by_codes ON shards (codebook, outputs, labels);
CREATE TABLE model (
  one INTEGER PRIMARY KEY CHECK (one = 1), file TEXT NOT NULL, digest TEXT NOT NULL, manifest TEXT NOT NULL,
  salt BLOB NOT NULL, labels TEXT NOT NULL, exact INTEGER NOT NULL, fingerprint TEXT NOT NULL,
  seconds REAL NOT NULL, losses TEXT NOT NULL, codebook TEXT NOT NULL, transcript TEXT NOT NULL);
-- the states that the model was trained through know what it knows: they go wherever it goes
CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, file TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TRIGGER epochs_go_with_the_model AFTER DELETE ON model BEGIN DELETE FROM epochs; END;
"""
SCHEMA = "".join((_OWN, tickets.SCHEMA, ledger.SCHEMA, relay.SCHEMA))
SHARDS = "SELECT s.*, c.generation FROM shards s JOIN clients c ON c.name = s.client"
"""The query for lines of the manifest."""
_CODES = "SELECT codebook, outputs, labels FROM shards WHERE (codebook, outputs, labels)"
_TICKETS = (
    "SELECT id, client, level, state, received, COALESCE(erased, ''), COALESCE(settled, ''), commitment FROM tickets"
)


def _own_key(path: Path) -> bytes | None:
    """Return the server's key. A fault of it is the server's own, and no caller's identity error."""
    try:
        return read_key(path)
    except IdentityError as problem:
        raise StoreError(str(problem)) from problem


class ServerRecords(Store):
    """The server's folder and database, for reading."""

    FOLDERS = (*FOLDERS, "incoming")

    def __init__(self, root: Path) -> None:
        super().__init__(root, "server.db", SCHEMA, partial(_own_key, root / "key"))
        self.relay = Relay(self.database)
        self._known: tuple[bytes, dict[str, Any]] = b"", {}
        """The database's stamp, and what was read while it had it."""

    @cached_property
    def blobs(self) -> BlobStore:
        """The place of shards, models and states of training: this folder, unless the store was created with another.

        Raises:
            ConfigError: that one comes from a package that is not installed.
        """
        record = self.database.meta("blobs") if self.database.path.exists() else None
        return blob_store(self.root, record or "")

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes, in bytes, of all files in one of the store's folders, by name."""
        return self.blobs.sizes(folder) if folder in FOLDERS else super().sizes(folder)

    def _erase(self, folder: str, name: str) -> None:
        self.blobs.erase(folder, name)

    @property
    def federation(self) -> str:
        """The id that was drawn when the store was made; empty in a store of an older version."""
        return self.database.meta("run") or ""

    def client_initial(self) -> dict[str, Tensor]:
        """Return the client half's weights at the time the federation was created, from which joining clients start."""
        return load_state(self._first("client_initial"), self.database.meta("client-initial"))

    def columns(self) -> tuple[Column, ...]:
        """Return the columns that cross the cut."""
        return columns_in(parsed(self.database.meta("columns") or "[]"))

    # --- shards and the manifest ---------------------------------------------------------------------------

    def shards(self) -> tuple[ShardRecord, ...]:
        """Return the shards, sorted by client: the manifest."""
        return tuple(map(shard_record, self.database.read(f"{SHARDS} ORDER BY client")))

    def shard(self, client: str) -> ShardRecord | None:
        """Return one client's shard, or None."""
        row = self.database.one(f"{SHARDS} WHERE client = ?", (client,))
        return None if row is None else shard_record(row)

    def codes_beside(self, client: str) -> Iterator[tuple[str, int, tuple[Label, ...]]]:
        """Yield what other clients' shards are labelled with, each once: codebook, number of codes, and labels.

        However many shards have the same, it costs one look into the index.
        """
        last: tuple[Any, ...] = "", -1, ""
        while row := self.database.one(f"{_CODES} > (?, ?, ?) ORDER BY codebook, outputs, labels LIMIT 1", last):
            last = tuple(row)
            if self.database.one(f"{_CODES} = (?, ?, ?) AND client != ? LIMIT 1", (*last, client)):
                yield row["codebook"], row["outputs"], labels_in(row["labels"])

    def rows(self) -> int:
        """Return the number of rows of all shards."""
        return int(self.database.read("SELECT COALESCE(SUM(rows), 0) FROM shards")[0][0])

    def knows(self, client: str) -> bool:
        """Return whether the server ever heard from a client."""
        return self.database.one("SELECT 1 FROM clients WHERE name = ?", (client,)) is not None

    def clients(self) -> dict[str, int]:
        """Return every client the server ever heard from, and its generation."""
        return {row["name"]: row["generation"] for row in self.database.read("SELECT * FROM clients ORDER BY name")}

    def open(self, record: ShardRecord) -> Shard:
        """Open a shard after checking that its bytes are those that were accepted."""
        path, why = Path(record.file), "missing or damaged"
        try:
            path = self.blobs.path("shards", record.file)
            shard = open_shard(path) if files.file_digest(path) == record.digest else None
        except FileNotFoundError:  # at any moment: another process may replace it
            shard = None
        except CorruptError as problem:
            shard, why = None, f"damaged ({problem})"
        if shard is None:
            raise CorruptError(
                f"the shard of {record.client!r} ({path}) is {why}. Have the client send it again "
                f"(`reupload({record.client!r})`), or restore the file; no model was changed."
            )
        if (shard.rows, shard.labels) != (record.rows, record.labels):
            raise CorruptError(f"the database does not say what the shard of {record.client!r} holds: it was altered.")
        return shard

    # --- the model -----------------------------------------------------------------------------------------

    def model(self) -> ModelRecord | None:
        """Return the current model, or None."""
        row = self.database.one("SELECT * FROM model")
        return None if row is None else model_record(row)

    def manifest(self) -> str:
        """Return the digest of the manifest: that of `manifest_digest`, read only once between two changes."""
        return self._until_changed("manifest", self._read_manifest)

    def _read_manifest(self) -> str:
        rows = self.database.read("SELECT client, digest, rows, codebook, outputs FROM shards ORDER BY client")
        return digest("manifest", *chain.from_iterable(rows))

    def is_current(self) -> bool:
        """Return whether the model was trained from the present manifest, and no erased ticket waits for it.

        A service asks several times a second. Between two changes of the database the answer takes no longer with a
        hundred thousand clients than with one.
        """
        return self._until_changed("current", self._read_is_current)

    def _read_is_current(self) -> bool:
        if self.database.one("SELECT 1 FROM tickets WHERE state = 'erased'") is not None:
            return False
        model = self.model()
        return self.manifest() == (manifest_digest(()) if model is None else model.manifest)

    def _until_changed(self, name: str, read: Callable[[], _T]) -> _T:
        """Return what was read earlier, if the database has not been changed since, by whichever process."""
        # the stamp first: what is read after it may already be newer, and the next look then reads it again
        stamp = self.database.change_stamp()
        if stamp is None:
            return read()
        if self._known[0] != stamp:
            self._known = stamp, {}
        known = self._known[1]
        if name not in known:
            known[name] = read()
        found: _T = known[name]
        return found

    def weights(self, record: ModelRecord) -> dict[str, Tensor]:
        """Return the model's weights, checked."""
        return self._state("models", record.file, record.digest, remedy="settle trains it again")

    def epochs(self) -> tuple[EpochRecord, ...]:
        """Return the states of the model's training, including the one before its first epoch."""
        rows = self.database.read("SELECT epoch, file, digest FROM epochs ORDER BY epoch")
        return tuple(EpochRecord(epoch, plain_name(file), digest) for epoch, file, digest in rows)

    def epoch_state(self, epoch: int) -> dict[str, Tensor]:
        """Return the state after an epoch as it is on disk; the caller checks its digest."""
        row = self.database.one("SELECT file FROM epochs WHERE epoch = ?", (epoch,))
        if row is None:
            raise NotFoundError(f"there is no state after epoch {epoch}: there are {len(self.epochs())}, from 0 on.")
        return self._state("epochs", plain_name(row["file"]))

    def _state(self, folder: str, name: str, expected: str | None = None, **how: str) -> dict[str, Tensor]:
        """Return the tensors in one of the store's files, checked as by `load_state`."""
        try:
            path = self.blobs.path(folder, name)
        except FileNotFoundError as problem:
            raise CorruptError(f"{folder}/{name} of {self.root} is missing ({problem}).") from problem
        return load_state(path, expected, **how)

    # --- requests ------------------------------------------------------------------------------------------

    def ticket(self, ticket: str) -> Ticket:
        """Return one ticket."""
        row = self.database.one(f"{_TICKETS} WHERE id = ?", (ticket,))
        if row is None:
            raise NotFoundError(f"{self.root} has no ticket {ticket!r}.")
        return Ticket(*row)

    def tickets(self, client: str | None = None) -> tuple[Ticket, ...]:
        """Return all tickets, or those of one client, oldest first."""
        chosen, values = ("", ()) if client is None else (" WHERE client = ?", (client,))
        return tuple(Ticket(*row) for row in self.database.read(f"{_TICKETS}{chosen} ORDER BY rowid", values))

    def waiting(self) -> tuple[Ticket, ...]:
        """Return tickets that are not settled, oldest first."""
        return self._until_changed("waiting", self._read_waiting)

    def _read_waiting(self) -> tuple[Ticket, ...]:
        return tuple(Ticket(*row) for row in self.database.read(f"{_TICKETS} WHERE state != 'settled' ORDER BY rowid"))

    def receipt(self, ticket: str) -> Receipt:
        """Return the receipt of a settled ticket."""
        state = self.ticket(ticket).state
        row = self.database.one("SELECT receipt FROM tickets WHERE id = ?", (ticket,))
        if row is None or row["receipt"] is None:
            raise NotFoundError(f"ticket {ticket!r} is {state} and has no receipt yet: settle it first.")
        return Receipt.from_dict(parsed(row["receipt"]))

    def kept(self) -> dict[str, set[str]]:
        """Return the files that the database points to, by folder."""
        model = self.model()
        return {
            "shards": {row["file"] for row in self.database.read("SELECT file FROM shards")},
            "models": {model.file} if model else set(),
            "epochs": {row["file"] for row in self.database.read("SELECT file FROM epochs")},
        }
