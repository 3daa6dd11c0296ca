"""A client's store: its key, its rows by slice, checkpoints, the frozen half, requests, and the suppression list.

`splitwiper.store.folder` explains how files and database work together.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from splitwiper.errors import CorruptError, NotFoundError, RequestError
from splitwiper.seeding import mac, state_digest
from splitwiper.store import files
from splitwiper.store.folder import Store
from splitwiper.store.keys import read_key
from splitwiper.store.records import count, fingerprint_in, hex_in, parsed, plain_name
from splitwiper.store.tensors import save_state
from splitwiper.wire import Ticket
from splitwiper.wire.commitments import commitment, shard_commitment

SCHEMA = """
CREATE TABLE slices (slice INTEGER PRIMARY KEY, file TEXT NOT NULL, digest TEXT NOT NULL, rows INTEGER NOT NULL);
CREATE TABLE checkpoints (slice INTEGER PRIMARY KEY, key TEXT NOT NULL, file TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE half (
  one INTEGER PRIMARY KEY CHECK (one = 1), key TEXT NOT NULL, file TEXT NOT NULL, digest TEXT NOT NULL,
  fingerprint TEXT NOT NULL);
CREATE TABLE suppressed (mac BLOB PRIMARY KEY, ticket TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE forgotten (label BLOB PRIMARY KEY) WITHOUT ROWID;
-- salt opens the commitment; before: the commitment to the shard that the server held then; signed: as it was sent;
-- asked, answered: numbers of the last shard that was sent before it, and of the first that was sent in answer to it
CREATE TABLE requests (
  ticket TEXT PRIMARY KEY, level TEXT NOT NULL, commitment TEXT NOT NULL, salt BLOB NOT NULL, before TEXT NOT NULL,
  seconds REAL NOT NULL, state TEXT NOT NULL, signed TEXT NOT NULL, asked INTEGER NOT NULL, answered INTEGER);
-- commitments to the shards that were sent over a network, in order; empty: the shard was withdrawn
CREATE TABLE sent (number INTEGER PRIMARY KEY, shard TEXT NOT NULL);
"""
RowsSeen = tuple[dict[int, str], int]
"""The files that hold rows, by slice, and the number of rows ever forgotten."""
_STATES = ("open", "sent", "done")
"""States of a request: not yet sent; known to the server; settled, or answered by the server of its own accord."""
UNKNOWN = "?"
"""Stands in for a commitment when this folder does not know which shard the server held."""


@dataclass(frozen=True)
class FileRecord:
    """A file that the database points to. `key` is an HMAC of everything its content was computed from."""

    file: str
    digest: str
    key: str = ""
    rows: int = 0


@dataclass(frozen=True)
class OpenedCommitment:
    """The opening of a request's commitment: a secret of the client, which it can reveal to an auditor.

    Attributes:
        ticket: the request's ticket.
        level: what the request forgets: samples, classes or the client.
        salt: the commitment's salt.
        rows: HMACs of the suppressed rows, under the client's key.
    """

    ticket: str
    level: str
    salt: bytes
    rows: tuple[bytes, ...]

    @property
    def commitment(self) -> str:
        """The commitment that this opens."""
        return commitment(self.salt, self.ticket, self.level, self.rows)


class ClientStore(Store):
    """A client's folder and database."""

    FOLDERS = ("slices", "checkpoints", "half", "outbox")

    def __init__(self, root: Path) -> None:
        super().__init__(root, "client.db", SCHEMA, partial(read_key, root / "key"))

    # --- made once -----------------------------------------------------------------------------------------

    def create(
        self,
        *,
        config: str,
        initial: Mapping[str, Tensor],
        meta: Mapping[str, str],
        key: bytes | None = None,
        group: bytes | None = None,
    ) -> None:
        """Create the store. The key comes from the operating system unless it is given or already present.

        If labels are hidden, ``group`` is the key that the client shares with the others.
        """
        digests = self._write_first(config, key or secrets.token_bytes(32), initial=initial)
        if group is not None:
            self._write_key("group", group)
        check = mac(self.key() or b"", "key").hex()  # so that a replaced key is noticed
        self.database.create({**meta, **digests, "key": check})

    def key(self) -> bytes | None:
        """Return the client's secret key; None if it was destroyed."""
        return read_key(self.root / "key")

    def group(self) -> bytes | None:
        """Return the key that the client shares with the other clients; None if it has none."""
        return read_key(self.root / "group")

    def sealed_codebook(self) -> bytes | None:
        """Return the codebook as stored, encrypted; None if there is none."""
        sealed = self.database.meta("codebook")
        return None if sealed is None else hex_in(sealed)

    # --- what the database points to ---------------------------------------------------------------------------

    def slices(self) -> dict[int, FileRecord]:
        """Return slice files by slice number; empty slices have none."""
        records: dict[int, FileRecord] = {}
        for row in self.database.read("SELECT * FROM slices ORDER BY slice"):
            records[row["slice"]] = FileRecord(plain_name(row["file"]), row["digest"], rows=count(row["rows"]))
        return records

    def checkpoints(self) -> dict[int, FileRecord]:
        """Return checkpoints by the slice they were made after."""
        records: dict[int, FileRecord] = {}
        for row in self.database.read("SELECT * FROM checkpoints ORDER BY slice"):
            records[row["slice"]] = FileRecord(plain_name(row["file"]), row["digest"], row["key"])
        return records

    def half(self) -> tuple[FileRecord, dict[str, str]] | None:
        """Return the frozen client half and the fingerprint it was trained under."""
        row = self.database.one("SELECT * FROM half")
        if row is None:
            return None
        return FileRecord(plain_name(row["file"]), row["digest"], row["key"]), fingerprint_in(row["fingerprint"])

    def put_slices(self, changed: Mapping[int, FileRecord | None], **meta: str) -> None:
        """Point to new slice files (None: the slice is empty now), and erase the files they replace.

        Checkpoints from the first changed slice on, and the frozen half, depend on the old rows and are erased too. The
        values of ``meta`` are stored in the same transaction.
        """
        with self.database.change() as db:
            for number, record in changed.items():
                db.execute("DELETE FROM slices WHERE slice = ?", (number,))
                if record is not None:
                    db.execute(
                        "INSERT INTO slices VALUES (?, ?, ?, ?)", (number, record.file, record.digest, record.rows)
                    )
            if changed:
                # the state after the last slice is the half itself, not a checkpoint
                last, left = db.execute("SELECT coalesce(max(slice), 0), count(*) FROM slices").fetchone()
                db.execute("DELETE FROM checkpoints WHERE slice >= ?", (min(*changed, last),))
                db.execute("DELETE FROM half")
                if not left:
                    _shelve_inputs(db)
            meta |= {"unsent": "rows", "untrainable": "", "set_aside": ""}
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
        self.sweep()

    def put_checkpoint(self, number: int, key: str, state: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """Store the state after a slice."""
        name = files.random_name("checkpoint")
        save_state(self.root / "checkpoints" / name, state, metadata)
        with self.database.change() as db:
            db.execute(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)",
                (number, key, name, state_digest(state, metadata)),
            )

    def put_half(self, key: str, state: Mapping[str, Tensor], fingerprint: Mapping[str, str]) -> None:
        """Store the frozen half."""
        name = files.random_name("half")
        save_state(self.root / "half" / name, state)
        with self.database.change() as db:
            db.execute(
                "INSERT OR REPLACE INTO half VALUES (1, ?, ?, ?, ?)",
                (key, name, state_digest(state), json.dumps(dict(fingerprint))),
            )
        self.sweep()

    # --- suppression and requests --------------------------------------------------------------------------

    def rows_seen(self) -> RowsSeen:
        """Return a value that changes whenever rows are added, forgotten or erased."""
        (gone,) = self.database.read("SELECT count(*) FROM suppressed")[0]
        return {number: record.file for number, record in self.slices().items()}, gone

    def suppressed(self) -> set[bytes]:
        """Return HMACs of rows that were forgotten and may never come back."""
        return {row["mac"] for row in self.database.read("SELECT mac FROM suppressed")}

    def requests(self, *states: str) -> list[dict[str, Any]]:
        """Return the client's own requests in the given states."""
        marks = ", ".join("?" * len(states))
        rows = self.database.read(f"SELECT * FROM requests WHERE state IN ({marks}) ORDER BY rowid", states)  # noqa: S608
        return [dict(row) for row in rows]

    def asking_seconds(self, tickets: Iterable[str]) -> float:
        """Return how long making these requests took, in seconds."""
        wanted, seconds = set(tickets), 0.0
        for row in self.requests(*_STATES):
            if row["ticket"] in wanted:
                seconds += float(row["seconds"])
        return seconds

    def forgotten(self) -> set[bytes]:
        """Return HMACs of labels that were forgotten entirely."""
        return {row["label"] for row in self.database.read("SELECT label FROM forgotten")}

    def keep_forgotten(self, labels: Iterable[bytes]) -> None:
        """Drop the HMACs of forgotten labels that are not in ``labels``."""
        if gone := self.forgotten() - set(labels):
            with self.database.change() as db:
                for label in gone:
                    db.execute("DELETE FROM forgotten WHERE label = ?", (label,))

    def forget(
        self,
        ticket: str,
        level: str,
        macs: Iterable[bytes],
        *,
        seconds: float,
        labels: Iterable[bytes] = (),
        committed: bool = True,
        seen: RowsSeen | None = None,
    ) -> str | None:
        """Put rows on the suppression list together with the request, in one transaction: they are never used again.

        Args:
            ticket: the request's ticket.
            level: what the request forgets: samples, classes or the client.
            macs: HMACs of the rows.
            seconds: how long making the request took.
            labels: HMACs of labels that are forgotten entirely.
            committed: whether the request commits to these rows. A request for everything, made while the folder was
                away, does not.
            seen: the rows that these were chosen from.

        Returns:
            The request's commitment to the rows, which the server gets and `opening` opens; None, and nothing changed,
            if the client's rows are no longer those in ``seen``.
        """
        salt, wanted = secrets.token_bytes(32), set(macs)
        with self.database.change() as db:
            if seen is not None and self.rows_seen() != seen:
                return None
            fresh = wanted - self.suppressed()
            if wanted and not fresh:
                raise RequestError("another request has just forgotten all of these rows: there is nothing to do.")
            value = commitment(salt, ticket, level, fresh) if committed else ""
            (asked,) = db.execute("SELECT coalesce(max(number), 0) FROM sent").fetchone()
            db.execute(
                "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, 'open', '', ?, NULL)",
                (ticket, level, value, salt, self.shard_commitment() or "", seconds, asked),
            )
            for row_mac in sorted(fresh):
                db.execute("INSERT INTO suppressed VALUES (?, ?)", (row_mac, ticket))
            for label in labels:
                db.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", (label,))
        return value

    def opening(self, ticket: str) -> OpenedCommitment:
        """Return the opening of a request's commitment."""
        request = self._request(ticket)
        rows = self.database.read("SELECT mac FROM suppressed WHERE ticket = ? ORDER BY mac", (ticket,))
        return OpenedCommitment(ticket, request["level"], request["salt"], tuple(row["mac"] for row in rows))

    def commitment(self, ticket: str) -> str:
        """Return what a request committed to; empty if this folder did not make it but only learned of it."""
        row = self.database.one("SELECT commitment FROM requests WHERE ticket = ?", (ticket,))
        return str(row["commitment"]) if row else ""

    def before(self, ticket: str) -> str:
        """Return the commitment to the shard that the server held when a request was made; empty if it held none."""
        return str(self._request(ticket)["before"])

    def ask_again(self, tickets: Iterable[str]) -> None:
        """Reopen requests for a server that no longer knows them; the shard it holds then is unknown.

        It may already be the one that answers them, so the next shard gets another salt: see `shard_salt`.
        """
        with self.database.change() as db:
            db.execute("DELETE FROM meta WHERE key = 'shard_salt'")
            for ticket in tickets:
                db.execute("UPDATE requests SET state = 'open', before = ? WHERE ticket = ?", (UNKNOWN, ticket))

    def keep_signed(self, ticket: str, signed: str) -> str:
        """Store a request as it was first signed and return that, so that sending it again repeats it byte for byte."""
        with self.database.change() as db:
            db.execute("UPDATE requests SET signed = ? WHERE ticket = ? AND signed = ''", (signed, ticket))
        row = self.database.one("SELECT signed FROM requests WHERE ticket = ?", (ticket,))
        return str(row["signed"]) if row else signed

    # --- the shard that the server holds -------------------------------------------------------------------

    def shard_salt(self, key: str, answers: Sequence[str] = ()) -> str:
        """Return the salt of the commitment to a shard, drawn once however often that shard is sent.

        A shard that answers requests gets a salt of its own: the commitment then changes even if the forgotten rows
        had never been sent, so a certificate in which it does not change is false.

        ``key`` is that of everything the shard was computed from.
        """
        kept = parsed(self.database.meta("shard_salt") or "[]")
        if not isinstance(kept, list) or len(kept) not in (0, 3):
            raise CorruptError(f"{self.database.path} has no salt that can be read: it was altered. Restore a backup.")
        answered = sorted(answers)
        if not kept or kept[0] != key or (answered and kept[2] != answered):
            kept = [key, secrets.token_hex(32), answered]
            self.remember(shard_salt=json.dumps(kept))
        return str(kept[1])

    def sending(self, shard: str, answers: Iterable[str]) -> None:
        """Record which shard is sent, before it is: from then on the server may hold it, even if no answer arrives.

        The shard is given by the commitment to it; empty if it is withdrawn.
        """
        with self.database.change() as db:
            last = db.execute("SELECT number, shard FROM sent ORDER BY number DESC LIMIT 1").fetchone()
            number = last["number"] if last else 0
            if last is None or last["shard"] != shard:
                number += 1
                db.execute("INSERT INTO sent VALUES (?, ?)", (number, shard))
            for ticket in answers:
                db.execute("UPDATE requests SET answered = ? WHERE ticket = ? AND answered IS NULL", (number, ticket))

    def note_removal(self, seq: int, why: str, *, answers: Iterable[str], again: bool) -> None:
        """Record by which entry of the ledger, and why, the server erased this client's shard of its own accord.

        With ``again``, the same shard is to be sent again; without, training fails with it.
        """
        self.sending("", answers)
        next_step = {"uploaded": "", "unsent": "rows"} if again else {"set_aside": why}
        self.remember(removal=str(seq), accepted="", accepted_salt="", shard_salt="", **next_step)

    def shards_before(self, ticket: str) -> set[str]:
        """Return commitments, one to the shard that the server held when a request reached it; '' stands for none.

        There are two if a shard was sent and its acknowledgement was lost, and every shard ever sent if the
        request was made again to a server that is an older copy of itself.
        """
        request = self._request(ticket)
        if request["before"] == UNKNOWN:
            return {""} | self._sent("number > 0")
        return {str(request["before"])} | self._sent("number = ?", request["asked"])

    def shards_after(self, ticket: str) -> set[str]:
        """Return commitments, one to the shard that answered a request, others to those sent since ('' for none)."""
        return self._sent("number >= ?", self._request(ticket)["answered"])

    def _sent(self, which: str, *values: Any) -> set[str]:
        """Return commitments to shards that were sent."""
        return {row["shard"] for row in self.database.read(f"SELECT shard FROM sent WHERE {which}", values)}  # noqa: S608

    def _request(self, ticket: str) -> sqlite3.Row:
        """Return a request of this client, or raise `NotFoundError`."""
        row = self.database.one("SELECT * FROM requests WHERE ticket = ?", (ticket,))
        if row is None:
            raise NotFoundError(f"client {self.root.name!r} made no request with ticket {ticket!r}.")
        return row

    def shard_commitment(self) -> str | None:
        """Return the commitment to the shard that the server accepted last; None if it holds none."""
        accepted, salt = self.database.meta("accepted"), self.database.meta("accepted_salt")
        return shard_commitment(hex_in(salt), accepted) if accepted and salt else None

    def unknown(self, tickets: Iterable[Ticket]) -> list[Ticket]:
        """Return the server's tickets that this folder does not know: it was away, or is an older copy."""
        own = {row["ticket"] for row in self.requests(*_STATES)}
        return [ticket for ticket in tickets if ticket.id not in own]

    def unheard(self, tickets: Iterable[Ticket]) -> list[str]:
        """Return requests that the server once had and no longer knows: it is an older copy."""
        known = {ticket.id for ticket in tickets}
        return [row["ticket"] for row in self.requests("sent", "done") if row["ticket"] not in known]

    def is_behind(self) -> bool:
        """Return whether rows or requests were not sent to the server yet, or files are left that should be erased."""
        return bool(self.database.meta("unsent")) or bool(self.requests("open", "sent")) or self._has_strays()

    def set_state(self, tickets: Iterable[str], state: str) -> None:
        """Move requests to a state. A request that is done meanwhile does not become 'sent' again."""
        guard = " AND state = 'open'" if state == "sent" else ""
        with self.database.change() as db:
            for ticket in tickets:
                db.execute(f"UPDATE requests SET state = ? WHERE ticket = ?{guard}", (state, ticket))  # noqa: S608

    def remember(self, **values: str) -> None:
        """Store values in the database."""
        with self.database.change() as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    # --- housekeeping --------------------------------------------------------------------------------------

    def kept(self) -> dict[str, set[str]]:
        """Return the files that the database points to, by folder."""
        half = self.half()
        return {
            "slices": {record.file for record in self.slices().values()},
            "checkpoints": {record.file for record in self.checkpoints().values()},
            "half": {half[0].file} if half else set(),
            "outbox": set(),
        }

    def _has_strays(self) -> bool:
        for folder, keep in self.kept().items():
            if {path.name for path in (self.root / folder).glob("*")} - keep:
                return True
        return False


def _shelve_inputs(db: sqlite3.Connection) -> None:
    """Let a client without rows accept rows of another form; forgotten rows are still recognised in their old forms."""
    query = "SELECT key, value FROM meta WHERE key IN ('inputs', 'features', 'earlier_inputs')"
    kept = dict(db.execute(query).fetchall())
    if "inputs" in kept:
        form = json.dumps({**parsed(kept["inputs"]), "features": parsed(kept.get("features", "{}"))})
        earlier = [other for other in parsed(kept.get("earlier_inputs", "[]")) if other != form]
        db.execute("INSERT OR REPLACE INTO meta VALUES ('earlier_inputs', ?)", (json.dumps([*earlier, form]),))
        db.execute("DELETE FROM meta WHERE key = 'inputs'")
