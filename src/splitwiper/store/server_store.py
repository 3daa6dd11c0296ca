"""The server's store: one shard per client, the manifest they make up, one model, tickets, and the ledger.

`splitwiper.store.folder` explains how files and database work together. New files are written to ``incoming/``, and
moved into place in the transaction that points to them.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import Tensor

from splitwiper.errors import CorruptError, StoreError
from splitwiper.seeding import mac
from splitwiper.store import files, ledger, tickets
from splitwiper.store.records import (
    EpochRecord,
    ModelRecord,
    ShardRecord,
    manifest_digest,
    plain_name,
    shard_record,
    texts,
)
from splitwiper.store.server_records import SHARDS, ServerRecords
from splitwiper.store.tensors import save_state
from splitwiper.wire import Receipt, Request, Shard, Statement, Ticket
from splitwiper.wire.commitments import model_commitment, shard_commitment


class ServerStore(ServerRecords):
    """The server's folder and database."""

    # --- made once -----------------------------------------------------------------------------------------

    def create(
        self,
        *,
        config: str,
        initial: Mapping[str, Tensor],
        client_initial: Mapping[str, Tensor],
        meta: Mapping[str, str],
        blobs: str = "",
    ) -> None:
        """Create the store: settings, initial weights of both halves, and permanent values of the database.

        Args:
            config: the server's settings.
            initial: initial weights of the server half.
            client_initial: initial weights of the client half.
            meta: what the ledger records about the federation.
            blobs: what the database remembers about the blob store (see `splitwiper.store.blobs.new_record`).
        """
        digests = self._write_first(config, secrets.token_bytes(32), initial=initial, client_initial=client_initial)
        self.database.create({})
        made = {**meta, **digests}
        with self.database.change() as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", {**made, "blobs": blobs}.items())
            ledger.append(db, {"kind": "created", **made})

    def note_restored(self) -> None:
        """Record that this folder is an older copy of itself: clients know more than it does."""
        with self.database.change() as db:
            ledger.append(db, {"kind": "restored", "time": tickets.now()})

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

    # --- shards --------------------------------------------------------------------------------------------

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

        ``shard`` is the staged file, opened, and ``digest`` the file's digest, if it is known already. ``travelled`` is
        the bytes transferred, if not the file's size. ``signed`` is the client's own signature; it is erased with the
        shard.
        """
        value, size = digest or files.file_digest(staged), staged.stat().st_size
        name, intact = files.random_name("shard"), self._intact(client, value)
        codebook, salt = statement.codebook, bytes.fromhex(statement.salt)
        with self._undone(name), self._replacing(client) as db:
            old = db.execute("SELECT file, digest, codebook, salt FROM shards WHERE client = ?", (client,)).fetchone()
            # A shard that is sent again is not a new generation: the manifest, the ledger and a training under way stay
            # as they are. A client that drew another salt asks for another commitment, so its shard counts as new.
            same = old is not None and (old["digest"], old["codebook"]) == (value, codebook)
            same = same and salt in (b"", old["salt"])
            if same and old["file"] == intact:
                name = intact
            else:  # also if the stored file is damaged: sending the shard again repairs it
                self.blobs.put("shards", name, staged)
            if same:
                db.execute("UPDATE shards SET file = ?, signed = ? WHERE client = ?", (name, signed, client))
            else:
                db.execute(
                    "INSERT INTO clients VALUES (?, 1) ON CONFLICT DO UPDATE SET generation = generation + 1", (client,)
                )
                salt = salt or secrets.token_bytes(32)
                labels = texts(shard.labels)
                db.execute(
                    "INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (client, name, value, shard.rows, size, salt, labels, codebook, statement.outputs, signed),
                )
                ledger.append(db, {"kind": "shard", "client": client, "shard": shard_commitment(salt, value)})
            # in the same transaction, so that a request counts as answered only if the shard that answers it is here
            sent = size if travelled is None else travelled
            tickets.answer(db, client, statement, statement.tickets, size=sent, warm=self._warm())
            return shard_record(db.execute(f"{SHARDS} WHERE client = ?", (client,)).fetchone())

    def _intact(self, client: str, digest: str) -> str:
        """Return the file of a client's shard if it has this digest, also on disk; else an empty string."""
        record = self.shard(client)
        if record is None or record.digest != digest:
            return ""
        with suppress(OSError, CorruptError):
            return record.file if files.file_digest(self.blobs.path("shards", record.file)) == digest else ""
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
        for folder, name in sorted(before - after):
            self.blobs.erase(folder, name)

    @contextmanager
    def _undone(self, name: str) -> Iterator[None]:
        """Remove a shard's file again if the database could not be made to point to it, for example on a full disk."""
        try:
            yield
        except Exception:
            with suppress(OSError, StoreError):  # a file that cannot be erased now is swept before the next training
                if name not in self.kept()["shards"]:
                    self.blobs.erase("shards", name)
            raise

    def _files(self, db: sqlite3.Connection, client: str) -> set[tuple[str, str]]:
        rows = db.execute(
            "SELECT 'shards', file FROM shards WHERE client = ? UNION ALL "
            "SELECT 'models', file FROM model UNION ALL SELECT 'epochs', file FROM epochs",
            (client,),
        )
        return {(folder, plain_name(file)) for folder, file in rows.fetchall()}

    def _warm(self) -> bool:
        return self.database.meta("start") == "warm"

    # --- the model -----------------------------------------------------------------------------------------

    def publish(
        self,
        record: ModelRecord | None,
        state: Mapping[str, Tensor] | None,
        *,
        manifest: str,
        epochs: Sequence[EpochRecord] = (),
    ) -> tuple[Receipt, ...] | None:
        """Make a model the current one, settle the tickets that it answers, and erase the previous model.

        There is no model, and no weights, if nothing is left to train on. The files of the states of its training are
        already in ``epochs/``.

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
                        self.blobs.put("models", record.file, staged)
                        self._insert(db, record)
                        db.executemany("INSERT INTO epochs VALUES (:epoch, :file, :digest)", map(vars, epochs))
                    ledger.append(db, _model_entry(record))
                    receipts = tickets.settle(db)
        finally:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
        self.sweep()
        return receipts if current else None

    @staticmethod
    def _insert(db: sqlite3.Connection, record: ModelRecord) -> None:
        db.execute(
            "INSERT INTO model VALUES (1, :file, :digest, :manifest, :salt, :labels, :exact, :fingerprint, :seconds, "
            ":losses, :codebook, :transcript)",
            {
                **vars(record),
                "labels": texts(record.labels),
                "fingerprint": json.dumps(dict(record.fingerprint)),
                "losses": json.dumps(record.losses),
            },
        )

    # --- requests ------------------------------------------------------------------------------------------

    def submit(self, request: Request, *, at_once: bool = False) -> Ticket:
        """Record a request. Repeating it returns the same ticket.

        With ``at_once`` it is settled immediately if the client has no shard, and no model still in use was trained on
        an earlier one.
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

    # --- housekeeping --------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Erase every file that the database does not point to, and what dead processes left in ``incoming/``."""
        super().sweep()
        files.sweep_abandoned(self.root / "incoming")


def _model_entry(model: ModelRecord | None) -> dict[str, str | None]:
    """Return the ledger's entry about a model: commitments under its salt, which is erased with it.

    None stands for a model if nothing is left to train on, and for its transcript if it has none.
    """
    if model is None:
        return {"kind": "model", "model": None, "record": None, "transcript": None}
    return {
        "kind": "model",
        "model": model_commitment(model.salt, model.digest),
        "record": mac(model.salt, "record", model.described()).hex(),
        "transcript": mac(model.salt, "transcript", model.transcript).hex() if model.transcript else None,
    }
