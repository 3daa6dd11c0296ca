"""A client's tree: its key, its rows by slice, checkpoints, the frozen half, requests, and the suppression list.

As in the server's tree, files are immutable and the book points to the ones that count.
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
from splitwiper.store.book import Book
from splitwiper.store.keys import read_key
from splitwiper.store.records import count, fingerprint_in, hex_in, parsed, plain_name
from splitwiper.store.tensors import load_state, save_state
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
"""The files that hold rows, and how many rows were ever forgotten."""
FOLDERS = ("slices", "checkpoints", "half", "outbox")
UNKNOWN = "?"
"""In place of a commitment: nobody here knows which shard it would be to."""


@dataclass(frozen=True)
class FileRecord:
    """A file the book points to. `key` is what its content was computed from."""

    file: str
    digest: str
    key: str = ""
    rows: int = 0


@dataclass(frozen=True)
class Opening:
    """What opens a request's commitment: a secret of the client, which it can show to whoever is to check.

    Attributes:
        ticket: the request's.
        level: what it forgets.
        salt: what the commitment is salted with.
        rows: HMACs of the rows it suppresses, under the client's key.
    """

    ticket: str
    level: str
    salt: bytes
    rows: tuple[bytes, ...]

    @property
    def commitment(self) -> str:
        """The commitment that this opens."""
        return commitment(self.salt, self.ticket, self.level, self.rows)


class ClientTree:
    """Everything one client keeps."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.book = Book(root / "client.db", SCHEMA, partial(read_key, root / "key"))

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
        """Make the tree. The key comes from the operating system unless one is given or already there.

        Args:
            config: the client's settings.
            initial: its half's first weights.
            meta: what the book remembers.
            key: the client's own key.
            group: the key it shares with the other clients, where labels are hidden.
        """
        for name in FOLDERS:
            files.make_folder(self.root / name)
        files.write_bytes(self.root / "config.toml", config.encode())
        save_state(self.root / "initial.safetensors", initial)
        if not (self.root / "key").exists():
            files.write_bytes(self.root / "key", (key or secrets.token_bytes(32)).hex().encode(), replace=False)
        if group is not None and not (self.root / "group").exists():
            files.write_bytes(self.root / "group", group.hex().encode(), replace=False)
        check = mac(self.key() or b"", "key").hex()  # so that another key in its place is noticed
        self.book.create({**meta, "initial": state_digest(initial), "key": check})

    def initial(self) -> dict[str, Tensor]:
        """The client half's weights when the client joined."""
        return load_state(self.root / "initial.safetensors", self.book.meta("initial"))

    def key(self) -> bytes | None:
        """The client's secret key; None when it was destroyed."""
        return read_key(self.root / "key")

    def group(self) -> bytes | None:
        """The key the client shares with the other clients; None where it has none."""
        return read_key(self.root / "group")

    def sealed_codebook(self) -> bytes | None:
        """The codebook as it is kept: encrypted; None where there is none."""
        sealed = self.book.meta("codebook")
        return None if sealed is None else hex_in(sealed)

    # --- what the book points to ---------------------------------------------------------------------------

    def slices(self) -> dict[int, FileRecord]:
        """Slice files by slice number; empty slices have none."""
        rows = self.book.read("SELECT * FROM slices ORDER BY slice")
        return {r["slice"]: FileRecord(plain_name(r["file"]), r["digest"], rows=count(r["rows"])) for r in rows}

    def checkpoints(self) -> dict[int, FileRecord]:
        """Checkpoints by the slice they were made after."""
        rows = self.book.read("SELECT * FROM checkpoints ORDER BY slice")
        return {r["slice"]: FileRecord(plain_name(r["file"]), r["digest"], r["key"]) for r in rows}

    def half(self) -> tuple[FileRecord, dict[str, str]] | None:
        """The frozen client half and the fingerprint it was trained under."""
        row = self.book.one("SELECT * FROM half")
        if row is None:
            return None
        return FileRecord(plain_name(row["file"]), row["digest"], row["key"]), fingerprint_in(row["fingerprint"])

    def put_slices(self, changed: Mapping[int, FileRecord | None], **meta: str) -> None:
        """Point to new slice files (None: the slice is empty now), and erase the ones they replace.

        Checkpoints from the first changed slice on, and the frozen half, knew the old rows and go too.

        Args:
            changed: the slices.
            meta: values to remember in the same step.
        """
        with self.book.change() as db:
            for number, record in changed.items():
                db.execute("DELETE FROM slices WHERE slice = ?", (number,))
                if record is not None:
                    db.execute(
                        "INSERT INTO slices VALUES (?, ?, ?, ?)", (number, record.file, record.digest, record.rows)
                    )
            if changed:
                # after the last slice there is the half itself, and no checkpoint
                last, left = db.execute("SELECT coalesce(max(slice), 0), count(*) FROM slices").fetchone()
                db.execute("DELETE FROM checkpoints WHERE slice >= ?", (min(*changed, last),))
                db.execute("DELETE FROM half")
                if not left:
                    _shelve_inputs(db)
            meta |= {"unsent": "rows", "untrainable": "", "set_aside": ""}
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
        self.sweep()

    def put_checkpoint(self, number: int, key: str, state: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """Keep the state after a slice."""
        name = files.random_name("checkpoint")
        save_state(self.root / "checkpoints" / name, state, metadata)
        with self.book.change() as db:
            db.execute(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)",
                (number, key, name, state_digest(state, metadata)),
            )

    def put_half(self, key: str, state: Mapping[str, Tensor], fingerprint: Mapping[str, str]) -> None:
        """Keep the frozen half."""
        name = files.random_name("half")
        save_state(self.root / "half" / name, state)
        with self.book.change() as db:
            db.execute(
                "INSERT OR REPLACE INTO half VALUES (1, ?, ?, ?, ?)",
                (key, name, state_digest(state), json.dumps(dict(fingerprint))),
            )
        self.sweep()

    # --- suppression and requests --------------------------------------------------------------------------

    def rows_seen(self) -> RowsSeen:
        """Return what is another value once rows were added, forgotten or erased."""
        (gone,) = self.book.read("SELECT count(*) FROM suppressed")[0]
        return {number: record.file for number, record in self.slices().items()}, gone

    def suppressed(self) -> set[bytes]:
        """HMACs of rows that were forgotten and may never come back."""
        return {row["mac"] for row in self.book.read("SELECT mac FROM suppressed")}

    def requests(self, *states: str) -> list[dict[str, Any]]:
        """The client's own requests in the given states: 'open' (not yet sent), 'sent', 'done'."""
        marks = ", ".join("?" * len(states))
        rows = self.book.read(f"SELECT * FROM requests WHERE state IN ({marks}) ORDER BY rowid", states)  # noqa: S608
        return [dict(row) for row in rows]

    def asking_seconds(self, tickets: Iterable[str]) -> float:
        """What it took to make these requests."""
        asked = {row["ticket"]: float(row["seconds"]) for row in self.requests("open", "sent", "done")}
        return sum(asked.get(ticket, 0.0) for ticket in tickets)

    def forgotten(self) -> set[bytes]:
        """HMACs of labels that were forgotten wholly."""
        return {row["label"] for row in self.book.read("SELECT label FROM forgotten")}

    def keep_forgotten(self, labels: Iterable[bytes]) -> None:
        """Drop the HMACs of forgotten labels that are not among these."""
        if gone := self.forgotten() - set(labels):
            with self.book.change() as db:
                db.executemany("DELETE FROM forgotten WHERE label = ?", [(label,) for label in gone])

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
        """Put rows on the suppression list, in one step with the request: from here on they are never used.

        Args:
            ticket: the request's.
            level: what it forgets.
            macs: HMACs of the rows.
            seconds: what asking took.
            labels: HMACs of labels that are forgotten wholly.
            committed: whether the request commits to these rows. One that was made while the folder was away, for
                everything the client had, does not.
            seen: the rows that these were chosen from.

        Returns:
            The request's commitment to the rows, which the server gets and `opening` opens; None where the client no
            longer has the rows that these were chosen from: nothing is changed then.

        Raises:
            RequestError: other requests have forgotten all of these rows meanwhile.
        """
        salt, wanted = secrets.token_bytes(32), set(macs)
        with self.book.change() as db:
            if seen is not None and self.rows_seen() != seen:
                return None
            fresh = wanted - {row["mac"] for row in db.execute("SELECT mac FROM suppressed")}
            if wanted and not fresh:
                raise RequestError("another request has just forgotten all of these rows: there is nothing to do.")
            value = commitment(salt, ticket, level, fresh) if committed else ""
            (asked,) = db.execute("SELECT coalesce(max(number), 0) FROM sent").fetchone()
            db.execute(
                "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, 'open', '', ?, NULL)",
                (ticket, level, value, salt, self.shard_commitment() or "", seconds, asked),
            )
            db.executemany("INSERT INTO suppressed VALUES (?, ?)", [(m, ticket) for m in sorted(fresh)])
            db.executemany("INSERT OR IGNORE INTO forgotten VALUES (?)", [(label,) for label in labels])
        return value

    def opening(self, ticket: str) -> Opening:
        """Return what opens a request's commitment.

        Raises:
            NotFoundError: this client made no such request.
        """
        row = self._request(ticket)
        rows = self.book.read("SELECT mac FROM suppressed WHERE ticket = ? ORDER BY mac", (ticket,))
        return Opening(ticket, row["level"], row["salt"], tuple(r["mac"] for r in rows))

    def commitment(self, ticket: str) -> str:
        """What a request committed to; empty where this folder only heard of a request made by one before it."""
        row = self.book.one("SELECT commitment FROM requests WHERE ticket = ?", (ticket,))
        return str(row["commitment"]) if row else ""

    def before(self, ticket: str) -> str:
        """The commitment to the shard that the server held when a request was made; empty where it held none."""
        return str(self._request(ticket)["before"])

    def ask_again(self, tickets: Iterable[str]) -> None:
        """Make requests again to a server that no longer knows them; which shard it holds then is unknown.

        It may be the very one that answers them, so the next one gets another salt: see `shard_salt`.
        """
        with self.book.change() as db:
            db.execute("DELETE FROM meta WHERE key = 'shard_salt'")
            db.executemany(
                "UPDATE requests SET state = 'open', before = ? WHERE ticket = ?", [(UNKNOWN, t) for t in tickets]
            )

    def keep_signed(self, ticket: str, signed: str) -> str:
        """Keep a request as it was first signed, and return that: what is sent again is the same, byte for byte."""
        with self.book.change() as db:
            db.execute("UPDATE requests SET signed = ? WHERE ticket = ? AND signed = ''", (signed, ticket))
        row = self.book.one("SELECT signed FROM requests WHERE ticket = ?", (ticket,))
        return str(row["signed"]) if row else signed

    # --- the shard that the server holds -------------------------------------------------------------------

    def shard_salt(self, key: str, answers: Sequence[str] = ()) -> str:
        """Return the salt of the commitment to a shard, drawn once for all the times that shard is sent.

        A shard that answers requests gets a salt of its own: the commitment then changes even if the rows that were
        forgotten had never been sent, so a certificate in which it did not change is false.

        Args:
            key: names what the shard was computed from.
            answers: the requests that sending it answers.
        """
        kept = parsed(self.book.meta("shard_salt") or "[]")
        if not isinstance(kept, list) or len(kept) not in (0, 3):
            raise CorruptError(f"{self.book.path} has no salt that can be read: it was altered. Restore a backup.")
        answered = sorted(answers)
        if not kept or kept[0] != key or (answered and kept[2] != answered):
            kept = [key, secrets.token_hex(32), answered]
            self.remember(shard_salt=json.dumps(kept))
        return str(kept[1])

    def sending(self, shard: str, answers: Iterable[str]) -> None:
        """Note which shard goes out, before it does: from then on the server may hold it, whatever is heard of that.

        Args:
            shard: the commitment to it; empty where the shard is withdrawn.
            answers: the requests that this answers.
        """
        with self.book.change() as db:
            last = db.execute("SELECT number, shard FROM sent ORDER BY number DESC LIMIT 1").fetchone()
            number = last["number"] if last else 0
            if last is None or last["shard"] != shard:
                number += 1
                db.execute("INSERT INTO sent VALUES (?, ?)", (number, shard))
            db.executemany(
                "UPDATE requests SET answered = ? WHERE ticket = ? AND answered IS NULL", [(number, t) for t in answers]
            )

    def note_removal(self, seq: int, why: str, *, answers: Iterable[str], again: bool) -> None:
        """Note that the server erased this client's shard without the client's doing.

        Args:
            seq: the number of the ledger's entry that says so.
            why: the reason.
            answers: the requests that this answered.
            again: whether the same shard is to be sent again; training fails with it otherwise.
        """
        self.sending("", answers)
        gone = {"removal": str(seq), "accepted": "", "accepted_salt": "", "shard_salt": ""}
        self.remember(**gone, **({"uploaded": "", "unsent": "rows"} if again else {"set_aside": why}))

    def shards_before(self, ticket: str) -> set[str]:
        """Commitments one of which is to the shard that the server held when a request reached it; empty for none.

        There are two where a shard was sent and its acknowledgement was lost, and all that were ever sent where the
        request was made again to a server that is an older copy of itself.

        Raises:
            NotFoundError: this client made no such request.
        """
        row = self._request(ticket)
        if row["before"] == UNKNOWN:
            return {"", *(sent["shard"] for sent in self.book.read("SELECT shard FROM sent"))}
        last = self.book.one("SELECT shard FROM sent WHERE number = ?", (row["asked"],))
        return {row["before"], *([last["shard"]] if last else [])}

    def shards_after(self, ticket: str) -> set[str]:
        """Commitments one of which is to the shard that answered a request, or to one sent since; empty for none.

        Raises:
            NotFoundError: this client made no such request.
        """
        rows = self.book.read("SELECT shard FROM sent WHERE number >= ?", (self._request(ticket)["answered"],))
        return {row["shard"] for row in rows}

    def _request(self, ticket: str) -> sqlite3.Row:
        row = self.book.one("SELECT * FROM requests WHERE ticket = ?", (ticket,))
        if row is None:
            raise NotFoundError(f"client {self.root.name!r} made no request with ticket {ticket!r}.")
        return row

    def shard_commitment(self) -> str | None:
        """The commitment to the shard that the server accepted last; None where it holds none."""
        accepted, salt = self.book.meta("accepted"), self.book.meta("accepted_salt")
        return shard_commitment(hex_in(salt), accepted) if accepted and salt else None

    def unknown(self, tickets: Iterable[Ticket]) -> list[Ticket]:
        """Those of the server's tickets that this folder knows nothing of: it was away, or is an older copy."""
        own = {row["ticket"] for row in self.requests("open", "sent", "done")}
        return [ticket for ticket in tickets if ticket.id not in own]

    def unheard(self, tickets: Iterable[Ticket]) -> list[str]:
        """Requests the server once had and knows nothing of now: it is an older copy."""
        known = {ticket.id for ticket in tickets}
        return [row["ticket"] for row in self.requests("sent", "done") if row["ticket"] not in known]

    def is_behind(self) -> bool:
        """Whether the server has not had word of rows or requests, or files lie about that should be erased."""
        return bool(self.book.meta("unsent")) or bool(self.requests("open", "sent")) or bool(self._strays())

    def mark(self, tickets: Iterable[str], state: str) -> None:
        """Move requests to a state. One that is done meanwhile does not go back to being sent."""
        guard = " AND state = 'open'" if state == "sent" else ""
        with self.book.change() as db:
            db.executemany(f"UPDATE requests SET state = ? WHERE ticket = ?{guard}", [(state, t) for t in tickets])  # noqa: S608

    def remember(self, **values: str) -> None:
        """Remember values in the book."""
        with self.book.change() as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    # --- housekeeping --------------------------------------------------------------------------------------

    def kept(self) -> dict[str, set[str]]:
        """The files the book points to, by folder."""
        half = self.half()
        return {
            "slices": {r.file for r in self.slices().values()},
            "checkpoints": {r.file for r in self.checkpoints().values()},
            "half": {half[0].file} if half else set(),
            "outbox": set(),
        }

    def _strays(self) -> list[str]:
        return [
            path.name
            for folder, keep in self.kept().items()
            for path in (self.root / folder).glob("*")
            if path.name not in keep
        ]

    def sweep(self) -> None:
        """Erase every file the book does not point to.

        The book is held meanwhile: a process that lost its lease stops here, and erases nothing of its successor's.
        """
        with self.book.change():
            for folder, keep in self.kept().items():
                files.sweep(self.root / folder, keep)
        files.sweep_abandoned(self.root, stem=files.TEMPORARY)


def _shelve_inputs(db: sqlite3.Connection) -> None:
    """Let a client without rows take rows of another form; forgotten ones are still known by the forms they had."""
    query = "SELECT key, value FROM meta WHERE key IN ('inputs', 'features', 'earlier_inputs')"
    kept = dict(db.execute(query).fetchall())
    if "inputs" in kept:
        form = json.dumps({**parsed(kept["inputs"]), "features": parsed(kept.get("features", "{}"))})
        earlier = [other for other in parsed(kept.get("earlier_inputs", "[]")) if other != form]
        db.execute("INSERT OR REPLACE INTO meta VALUES ('earlier_inputs', ?)", (json.dumps([*earlier, form]),))
        db.execute("DELETE FROM meta WHERE key = 'inputs'")
