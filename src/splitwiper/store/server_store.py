"""The server's store: one shard per client, the manifest they make up, one model, tickets, and the ledger.

Files are immutable and named at random; the database points to the current ones. A change writes the new file to
``incoming/``; in one transaction moves it into place and points to it; then erases the old file. At whatever instant
the process dies, the database is correct, and `sweep` erases the files that it does not point to.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from torch import Tensor

from splitwiper.errors import CorruptError, IdentityError, NotFoundError, StoreError
from splitwiper.seeding import mac, state_digest
from splitwiper.store import files, ledger, relay, tickets
from splitwiper.store.database import Database
from splitwiper.store.keys import read_key
from splitwiper.store.records import (
    EpochRecord,
    ModelRecord,
    ShardRecord,
    columns_in,
    fingerprint_in,
    labels_in,
    manifest_digest,
    parsed,
    plain_name,
    shard_record,
    texts,
)
from splitwiper.store.tensors import load_state, save_state
from splitwiper.wire import Column, Posted, Receipt, Request, Shard, Statement, Ticket, open_shard
from splitwiper.wire.commitments import shard_commitment

_OWN = """
CREATE TABLE clients (name TEXT PRIMARY KEY, generation INTEGER NOT NULL);
CREATE TABLE shards (
  client TEXT PRIMARY KEY REFERENCES clients, file TEXT NOT NULL, digest TEXT NOT NULL, rows INTEGER NOT NULL,
  size INTEGER NOT NULL, salt BLOB NOT NULL, labels TEXT NOT NULL,
  codebook TEXT NOT NULL, outputs INTEGER NOT NULL, signed TEXT);
CREATE TABLE model (
  one INTEGER PRIMARY KEY CHECK (one = 1), file TEXT NOT NULL, digest TEXT NOT NULL, manifest TEXT NOT NULL,
  salt BLOB NOT NULL, labels TEXT NOT NULL, exact INTEGER NOT NULL, fingerprint TEXT NOT NULL,
  seconds REAL NOT NULL, losses TEXT NOT NULL, codebook TEXT NOT NULL, transcript TEXT NOT NULL);
-- the states that the model was trained through know what it knows: they go wherever it goes
CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, file TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TRIGGER epochs_go_with_the_model AFTER DELETE ON model BEGIN DELETE FROM epochs; END;
"""
SCHEMA = "".join((_OWN, tickets.SCHEMA, ledger.SCHEMA, relay.SCHEMA))
_SHARDS = "SELECT s.*, c.generation FROM shards s JOIN clients c ON c.name = s.client"
_TICKETS = (
    "SELECT id, client, level, state, received, COALESCE(erased, ''), COALESCE(settled, ''), commitment FROM tickets"
)


def _own_key(path: Path) -> bytes | None:
    """Return the server's key. A fault of it is the server's own, and no caller's identity error.

    Raises:
        StoreError: others may read the key.
    """
    try:
        return read_key(path)
    except IdentityError as problem:
        raise StoreError(str(problem)) from problem


class ServerStore:
    """The server's folder and database."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = Database(root / "server.db", SCHEMA, partial(_own_key, root / "key"))

    @property
    def federation(self) -> str:
        """The id that was drawn when the store was made; empty in a store of an older version."""
        return self.database.meta("run") or ""

    # --- made once -----------------------------------------------------------------------------------------

    def create(
        self,
        *,
        config: str,
        initial: Mapping[str, Tensor],
        client_initial: Mapping[str, Tensor],
        meta: Mapping[str, str],
    ) -> None:
        """Create the store: settings, initial weights of both halves, and permanent values of the database."""
        for name in ("shards", "models", "epochs", "incoming"):
            files.make_folder(self.root / name)
        files.write_bytes(self.root / "config.toml", config.encode())
        save_state(self.root / "initial.safetensors", initial)
        save_state(self.root / "client-initial.safetensors", client_initial)
        if not (self.root / "key").exists():
            files.write_bytes(self.root / "key", secrets.token_hex(32).encode(), replace=False)
        self.database.create({})
        made = {**meta, "initial": state_digest(initial), "client-initial": state_digest(client_initial)}
        with self.database.change() as db:
            for key, value in made.items():
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
            ledger.append(db, {"kind": "created", **made})

    def note_restored(self) -> None:
        """Record that this folder is an older copy of itself: clients know more than it does."""
        with self.database.change() as db:
            ledger.append(db, {"kind": "restored", "time": tickets.now()})

    def initial(self) -> dict[str, Tensor]:
        """Return the server half's weights at the time the federation was created."""
        return load_state(self.root / "initial.safetensors", self.database.meta("initial"))

    def columns(self) -> tuple[Column, ...]:
        """Return the columns that cross the cut."""
        return columns_in(parsed(self.database.meta("columns") or "[]"))

    def client_initial(self) -> dict[str, Tensor]:
        """Return the client half's weights at the time the federation was created, from which joining clients start."""
        return load_state(self.root / "client-initial.safetensors", self.database.meta("client-initial"))

    # --- keys that clients sign with -----------------------------------------------------------------------

    def register_key(self, client: str, key: str) -> None:
        """Record a client's key in the ledger. Registering the same key again changes nothing."""
        with self.database.change() as db:
            if ledger.registered(db, client) != key:
                ledger.append(db, {"kind": "joined", "client": client, "key": key})

    def drop_key(self, client: str, operator: str) -> None:
        """Record in the ledger that an operator dropped a client's key."""
        with self.database.change() as db:
            if key := ledger.registered(db, client):
                ledger.append(db, {"kind": "key-dropped", "client": client, "key": key, "operator": operator})

    # --- shards and the manifest ---------------------------------------------------------------------------

    def shards(self) -> tuple[ShardRecord, ...]:
        """Return the shards, sorted by client: the manifest."""
        return tuple(map(shard_record, self.database.read(f"{_SHARDS} ORDER BY client")))

    def shard(self, client: str) -> ShardRecord | None:
        """Return one client's shard, or None."""
        row = self.database.one(f"{_SHARDS} WHERE client = ?", (client,))
        return None if row is None else shard_record(row)

    def knows(self, client: str) -> bool:
        """Return whether the server ever heard from a client."""
        return self.database.one("SELECT 1 FROM clients WHERE name = ?", (client,)) is not None

    def clients(self) -> dict[str, int]:
        """Return every client the server ever heard from, and its generation."""
        return {row["name"]: row["generation"] for row in self.database.read("SELECT * FROM clients ORDER BY name")}

    def open(self, record: ShardRecord) -> Shard:
        """Open a shard after checking its bytes.

        Raises:
            CorruptError: the file is missing or is not the accepted one.
        """
        path = self.root / "shards" / record.file
        why = "missing or damaged"
        try:
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

    @contextmanager
    def staging(self, source: Path) -> Iterator[Path]:
        """Take an upload into the store; it has no effect until it is accepted, and is erased if it is not."""
        target = self.root / "incoming" / files.owned_name("shard")
        try:
            files.adopt(source, target)
            yield target
        finally:
            with suppress(OSError):  # a file that cannot be erased now is swept before the next training
                target.unlink(missing_ok=True)

    def accept(
        self,
        client: str,
        staged: Path,
        shard: Shard,
        statement: Statement,
        *,
        digest: str | None = None,
        travelled: int | None = None,
        signed: str | None = None,
    ) -> ShardRecord:
        """Make a staged upload the client's shard, and erase what it replaces. Repeating it changes nothing.

        Args:
            client: the client's name.
            staged: the file.
            shard: the same file, opened.
            statement: the client's statement about it.
            digest: the file's digest; computed if not given.
            travelled: bytes transferred, if not the file's size.
            signed: the client's own signature of it, if clients sign; it is erased with the shard.
        """
        value, size = digest or files.file_digest(staged), staged.stat().st_size
        name, intact = files.random_name("shard"), self._intact(client, value)
        with self._undone(self.root / "shards" / name), self._replacing(client) as db:
            old = db.execute("SELECT file, digest, codebook, salt FROM shards WHERE client = ?", (client,)).fetchone()
            coded, salt = (statement.codebook, statement.outputs), bytes.fromhex(statement.salt)
            same = old is not None and (old["digest"], old["codebook"]) == (value, coded[0])
            same = same and salt in (b"", old["salt"])
            if same and old["file"] == intact:  # the file stays, so that repeating an upload disturbs no training
                name = intact
            else:
                files.move(staged, self.root / "shards" / name)
            if same:
                db.execute("UPDATE shards SET file = ?, signed = ? WHERE client = ?", (name, signed, client))
            else:
                db.execute(
                    "INSERT INTO clients VALUES (?, 1) ON CONFLICT DO UPDATE SET generation = generation + 1",
                    (client,),
                )
                salt = salt or secrets.token_bytes(32)
                db.execute(
                    "INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (client, name, value, shard.rows, size, salt, texts(shard.labels), *coded, signed),
                )
                ledger.append(db, {"kind": "shard", "client": client, "shard": shard_commitment(salt, value)})
            sent = size if travelled is None else travelled
            tickets.answer(db, client, statement, statement.tickets, size=sent, warm=self._warm())
            return shard_record(db.execute(f"{_SHARDS} WHERE client = ?", (client,)).fetchone())

    def _intact(self, client: str, digest: str) -> str:
        """Return the file of a client's shard if it has this digest, also on disk; else an empty string."""
        record = self.shard(client)
        if record is None or record.digest != digest:
            return ""
        with suppress(OSError, CorruptError):
            return record.file if files.file_digest(self.root / "shards" / record.file) == digest else ""
        return ""

    def withdraw(
        self,
        client: str,
        statement: Statement | None,
        *,
        answers: Sequence[str] | None,
        by: str = "",
        why: str = "",
        file: str | None = None,
    ) -> None:
        """Erase a client's shard without a replacement.

        Args:
            client: the client's name.
            statement: the client's statement; None if the client does not withdraw it itself.
            answers: the tickets that this answers; None for every open ticket of the client.
            by: who withdraws it, if not the client: one of `ledger.WITHDRAWERS`.
            why: the reason, for every reader of the ledger.
            file: do nothing unless the client's shard is still this file; empty for no shard.
        """
        with self._replacing(client) as db:
            held = db.execute("SELECT file FROM shards WHERE client = ?", (client,)).fetchone()
            if file is not None and file != (held["file"] if held else ""):
                return
            if db.execute("DELETE FROM shards WHERE client = ?", (client,)).rowcount:
                db.execute("UPDATE clients SET generation = generation + 1 WHERE name = ?", (client,))
                entry = {"by": by, "why": why, "time": tickets.now()} if by else {}
                ledger.append(db, {"kind": "withdrawn", "client": client, **entry})
            if answers is None:
                answers = tickets.accepted(db, client)
            tickets.answer(db, client, statement, answers, warm=self._warm())

    @contextmanager
    def _replacing(self, client: str) -> Iterator[sqlite3.Connection]:
        """Change one client's shard, and the model; then erase files that are no longer pointed to.

        Only those files: searching the whole folder, as `sweep` does, would take longer with every client that joins.
        """
        with self.database.change() as db:
            before = self._files(db, client)
            yield db
            after = self._files(db, client)
        for path in sorted(before - after):
            files.erase(path)

    @contextmanager
    def _undone(self, path: Path) -> Iterator[None]:
        """Remove a shard's file again if the database could not be made to point to it, for example on a full disk."""
        try:
            yield
        except Exception:
            with suppress(OSError):
                if path.name not in self.kept()["shards"]:
                    path.unlink(missing_ok=True)
            raise

    def _files(self, db: sqlite3.Connection, client: str) -> set[Path]:
        shards = db.execute("SELECT file FROM shards WHERE client = ?", (client,)).fetchall()
        models = db.execute("SELECT 'models', file FROM model UNION ALL SELECT 'epochs', file FROM epochs").fetchall()
        return {self.root / "shards" / plain_name(file) for (file,) in shards} | {
            self.root / where / plain_name(file) for where, file in models
        }

    def _warm(self) -> bool:
        return self.database.meta("start") == "warm"

    # --- the model -----------------------------------------------------------------------------------------

    def model(self) -> ModelRecord | None:
        """Return the current model, or None."""
        row = self.database.one("SELECT * FROM model")
        if row is None:
            return None
        values = dict(row)
        del values["one"]
        values |= {
            "labels": labels_in(row["labels"]),
            "exact": bool(row["exact"]),
            "fingerprint": fingerprint_in(row["fingerprint"]),
            "losses": tuple(parsed(row["losses"]) or ()),
        }
        plain_name(row["file"])
        if not isinstance(row["salt"], bytes) or not isinstance(row["digest"], str):
            raise CorruptError(f"{self.database.path}: the record of the model was altered: restore a backup.")
        return ModelRecord(**values)

    def is_current(self) -> bool:
        """Return whether the model was trained from the present manifest, and no erased ticket waits for it."""
        if self.database.one("SELECT 1 FROM tickets WHERE state = 'erased'") is not None:
            return False
        model, shards = self.model(), self.shards()
        return not shards if model is None else model.manifest == manifest_digest(shards)

    def weights(self, record: ModelRecord) -> dict[str, Tensor]:
        """Return the model's weights, checked."""
        return load_state(self.root / "models" / record.file, record.digest, remedy="settle trains it again")

    def epochs(self) -> tuple[EpochRecord, ...]:
        """Return the states of the model's training, including the one before its first epoch."""
        rows = self.database.read("SELECT epoch, file, digest FROM epochs ORDER BY epoch")
        return tuple(EpochRecord(epoch, plain_name(file), digest) for epoch, file, digest in rows)

    def epoch_state(self, epoch: int) -> dict[str, Tensor]:
        """Return the state after an epoch as it is on disk; the caller checks its digest.

        Raises:
            NotFoundError: there is no state of that epoch.
            CorruptError: the file is missing or truncated.
        """
        row = self.database.one("SELECT file FROM epochs WHERE epoch = ?", (epoch,))
        if row is None:
            raise NotFoundError(f"there is no state after epoch {epoch}: there are {len(self.epochs())}, from 0 on.")
        return load_state(self.root / "epochs" / plain_name(row["file"]))

    def publish(
        self,
        record: ModelRecord | None,
        state: Mapping[str, Tensor] | None,
        *,
        manifest: str,
        epochs: Sequence[EpochRecord] = (),
    ) -> tuple[Receipt, ...] | None:
        """Make a model the current one, settle the tickets that it answers, and erase the previous model.

        Args:
            record: the model; None if nothing is left to train on.
            state: its weights.
            manifest: the digest of the manifest that it was trained from.
            epochs: the states of its training, whose files are already in ``epochs/``.

        Returns:
            The receipts; None, and nothing changed, if the manifest changed meanwhile.
        """
        staged = self.root / "incoming" / files.owned_name("model")
        try:
            if state is not None:
                save_state(staged, state)
            with self.database.change() as db:
                current = manifest_digest(self.shards()) == manifest
                if current:
                    db.execute("DELETE FROM model")
                    if record is not None:
                        files.move(staged, self.root / "models" / record.file)
                        self._insert(db, record)
                        rows = [(e.epoch, e.file, e.digest) for e in epochs]
                        db.executemany("INSERT INTO epochs VALUES (?, ?, ?)", rows)
                    salted = tickets.commitments(db, "")["model"]
                    described = mac(record.salt, "record", record.described()).hex() if record else None
                    entry = {"kind": "model", "model": salted, "record": described, "transcript": _committed(record)}
                    ledger.append(db, entry)
                    receipts = tickets.settle(db)
        finally:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
        self.sweep()
        return receipts if current else None

    @staticmethod
    def _insert(db: sqlite3.Connection, record: ModelRecord) -> None:
        db.execute(
            "INSERT INTO model VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.file,
                record.digest,
                record.manifest,
                record.salt,
                texts(record.labels),
                record.exact,
                json.dumps(dict(record.fingerprint)),
                record.seconds,
                json.dumps(record.losses),
                record.codebook,
                record.transcript,
            ),
        )

    # --- messages between clients --------------------------------------------------------------------------

    def post(self, client: str, topic: str, place: int, body: bytes, *, shared: bool = False) -> None:
        """Store a sealed message between clients; on a shared relay, no sender's messages erase another's."""
        with self.database.change() as db:
            relay.post(db, client, topic, place, body, shared=shared)

    def erase_talk(self, topic: str, lock: bytes = b"") -> None:
        """Erase the messages of a negotiation that begin with a lock, or all."""
        with self.database.change() as db:
            relay.erase(db, topic, lock)

    def topics(self) -> frozenset[str]:
        """Return all topics with messages that are not erased."""
        return relay.topics(self.database)

    def topic(self) -> str:
        """Return the current topic, or the latest one."""
        return relay.topic(self.database)

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Return the messages of a topic, from a sequence number on."""
        return relay.posted(self.database, topic, since)

    # --- tickets -------------------------------------------------------------------------------------------

    def submit(self, request: Request, *, at_once: bool = False) -> Ticket:
        """Record a request. Repeating it returns the same ticket.

        Args:
            request: the request.
            at_once: settle it immediately if the client has no shard, and no model still in use was trained on an
                earlier one.
        """
        with self.database.change() as db:
            db.execute("INSERT OR IGNORE INTO clients VALUES (?, 0)", (request.client,))
            tickets.submit(db, request)
            if at_once and self.shard(request.client) is None:
                if self._may_know(request.client):
                    tickets.answer(db, request.client, None, [request.ticket], size=0, warm=self._warm())
                else:
                    tickets.settle_empty(db, request.ticket)
        return self.ticket(request.ticket)

    def _may_know(self, client: str) -> bool:
        """Return whether the model in use may have been trained on a shard of a client that has none now."""
        model = self.model()
        return model is not None and self.clients()[client] > 0 and model.manifest != manifest_digest(self.shards())

    def ticket(self, ticket: str) -> Ticket:
        """Return one ticket."""
        row = self.database.one(f"{_TICKETS} WHERE id = ?", (ticket,))
        if row is None:
            raise NotFoundError(f"there is no ticket {ticket!r} in {self.root}.")
        return Ticket(*row)

    def tickets(self, client: str | None = None) -> tuple[Ticket, ...]:
        """Return all tickets, or those of one client, oldest first."""
        chosen, values = ("", ()) if client is None else (" WHERE client = ?", (client,))
        return tuple(Ticket(*row) for row in self.database.read(f"{_TICKETS}{chosen} ORDER BY rowid", values))

    def waiting(self) -> tuple[Ticket, ...]:
        """Return tickets that are not settled, oldest first."""
        return tuple(Ticket(*row) for row in self.database.read(f"{_TICKETS} WHERE state != 'settled' ORDER BY rowid"))

    def receipt(self, ticket: str) -> Receipt:
        """Return the receipt of a settled ticket."""
        found = self.ticket(ticket)
        row = self.database.one("SELECT receipt FROM tickets WHERE id = ?", (ticket,))
        if row is None or row["receipt"] is None:
            raise NotFoundError(f"ticket {ticket!r} is {found.state} and has no receipt yet: settle it first.")
        return Receipt.from_dict(parsed(row["receipt"]))

    # --- housekeeping --------------------------------------------------------------------------------------

    def kept(self) -> dict[str, set[str]]:
        """Return the files that the database points to, by folder."""
        model = self.model()
        return {
            "shards": {row["file"] for row in self.database.read("SELECT file FROM shards")},
            "models": {model.file} if model else set(),
            "epochs": {row["file"] for row in self.database.read("SELECT file FROM epochs")},
        }

    def sweep(self) -> None:
        """Erase files that the database does not point to, and what dead processes left in ``incoming/``.

        This happens inside a transaction, so that no file is swept between being moved into place and being pointed to.
        """
        with self.database.change():
            for folder, keep in self.kept().items():
                files.sweep(self.root / folder, keep)
        files.sweep_abandoned(self.root, stem=files.TEMPORARY)
        files.sweep_abandoned(self.root / "incoming")


def _committed(model: ModelRecord | None) -> str | None:
    """Return the root of a model's transcript as an HMAC under the model's salt; None if there is no transcript."""
    return mac(model.salt, "transcript", model.transcript).hex() if model and model.transcript else None
