"""The ledger as a Merkle tree: heads to pin, and proofs that show one entry and nothing about the others.

A leaf is 32 blinding bytes and the entry. Without them a third party could test guesses at neighbouring entries ("south
was withdrawn") against the hashes of a proof. They are derived from a salt in the server's database, which lives as
long as the ledger. The entry that settles a ticket holds an HMAC of the receipt's digest instead of the digest, so that
guesses at the receipt cannot be tested either.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from weakref import WeakKeyDictionary

from splitwiper.errors import InputError, NotFoundError
from splitwiper.seeding import mac
from splitwiper.service.certificate.canonical import dumps
from splitwiper.store import ServerStore, ledger, merkle

LEDGER_SALT = "ledger-salt"
"""Key of the database's meta table for the secret that blinds leaves."""


@dataclass(frozen=True, order=True)
class TreeHead:
    """A ledger's size in entries, and the Merkle root over them, in hex."""

    size: int
    root: str

    def __str__(self) -> str:
        return f"{self.size} entries, root {self.root[:16]}…"

    def to_dict(self) -> dict[str, Any]:
        """Return the head as plain values."""
        return asdict(self)


def follows(old: TreeHead, new: TreeHead, proof: Sequence[str]) -> bool:
    """Return whether a proof (hashes in hex) shows that the ledger of one head is a prefix of the other's."""
    try:
        hashes = [bytes.fromhex(item) for item in proof]
        roots = bytes.fromhex(old.root), bytes.fromhex(new.root)
    except (ValueError, TypeError):
        return False
    return merkle.verify_consistency(old.size, roots[0], new.size, roots[1], hashes)


def leaf_of(entry: Mapping[str, Any], blind: bytes) -> bytes:
    """Return the leaf hash of an entry in the form in which it is shown."""
    return merkle.leaf_hash(blind + dumps(dict(entry)))


def shows(shown: Mapping[str, Any]) -> bool:
    """Return whether the result of `Log.proof` proves that its entry is in the ledger with its head."""
    try:
        proof, entry = [bytes.fromhex(item) for item in shown["proof"]], shown["entry"]
        leaf, root = leaf_of(entry, bytes.fromhex(shown["blind"])), bytes.fromhex(shown["root"])
        return merkle.verify_inclusion(leaf, int(entry["seq"]) - 1, int(shown["size"]), proof, root)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def receipt_mark(key: bytes, digest: str) -> str:
    """Return how the entry that settles a ticket refers to the receipt: an HMAC of its digest."""
    return mac(key, "receipt", digest).hex()


class Log:
    """A server's ledger, seen as a Merkle tree.

    Blinding bytes are derived from ``salt``. The leaves of ``before``, the same ledger at an earlier size, are reused.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]], salt: bytes, *, before: Log | None = None) -> None:
        self.entries = entries
        self._salt = salt
        self._tree: merkle.GrowingTree = merkle.GrowingTree(before._tree if before else None)
        self._tree.extend(leaf_of(self.shown(n), self.blind(n)) for n in range(len(self._tree) + 1, len(entries) + 1))

    @classmethod
    def of(cls, store: ServerStore) -> Log:
        """Return the ledger of a server that has shown it before; others need `begin`.

        Raises:
            NotFoundError: it has never been shown.
            CorruptError: the ledger's chain is broken.
        """
        salt = store.database.meta(LEDGER_SALT)
        if salt is None:
            raise NotFoundError(f"{store.root} has never shown its ledger, nor made a certificate.")
        # a server shows its ledger with every answer; hashing all entries each time would make that quadratic
        before = _seen.get(store)
        entries = ledger.entries(store.database, known=before.entries if before else ())
        if before and (before._salt != bytes.fromhex(salt) or not _begins(entries, before.entries)):
            before = None  # it was read inside a transaction that was rolled back
        _seen[store] = log = cls(entries, bytes.fromhex(salt), before=before)
        return log

    @classmethod
    def begin(cls, store: ServerStore) -> Log:
        """Return a server's ledger, and draw its salt if it has never been shown; see `of`."""
        if store.database.meta(LEDGER_SALT) is None:
            with store.database.change() as db:
                cls.prepare(db)
        return cls.of(store)

    @staticmethod
    def prepare(db: sqlite3.Connection) -> None:
        """Draw the salt, unless there is one, inside the caller's transaction."""
        db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (LEDGER_SALT, secrets.token_hex(32)))

    def head(self, size: int | None = None) -> TreeHead:
        """Return the head now, or when the ledger had ``size`` entries; `InputError` if it never had."""
        size = self._size(size)
        return TreeHead(size, self._tree.root(size).hex())

    def model(self, size: int | None = None) -> str:
        """Return the commitment to the newest model in the ledger of ``size`` entries; empty if there is none."""
        for entry in reversed(self.entries[: self._size(size)]):
            if entry["kind"] == "model":
                return entry["model"] or ""
        return ""

    def consistency(self, old: int, new: int | None = None) -> list[str]:
        """Return the proof that the ledger of ``old`` entries is a prefix of the ledger of ``new`` entries."""
        return [item.hex() for item in self._tree.consistency(old, self._size(new))]

    def shown(self, seq: int) -> dict[str, Any]:
        """Return an entry in the form of its leaf."""
        entry = dict(self.entries[seq - 1])
        entry.pop("hash", None)
        if entry.get("kind") == "settled":
            # the receipt's plain digest would let anybody test guesses at the receipt
            entry["receipt"] = receipt_mark(self.receipt_key(seq), entry["receipt"])
        return entry

    def blind(self, seq: int) -> bytes:
        """Return the blinding bytes of an entry: revealed with it only."""
        return mac(self._salt, "entry", seq)

    def receipt_key(self, seq: int) -> bytes:
        """Return the key of an entry's HMAC of the receipt, for the requester."""
        return mac(self._salt, "receipt", seq)

    def settled(self, ticket: str) -> int:
        """Return the number of the entry that settled a ticket, or raise `NotFoundError`."""
        # the first: an entry that a server appends later must not change what a certificate showed
        for entry in self.entries:
            if entry.get("kind") == "settled" and entry.get("ticket") == ticket:
                return int(entry["seq"])
        raise NotFoundError(f"no entry of the ledger settles ticket {ticket!r}.")

    def proof(self, seq: int, size: int | None = None) -> dict[str, Any]:
        """Return an entry in the form of its leaf, with its proof of inclusion: blinding bytes, path and head."""
        return {
            **self.head(size).to_dict(),
            "entry": self.shown(seq),
            "blind": self.blind(seq).hex(),
            "proof": [item.hex() for item in self._tree.inclusion(seq - 1, self._size(size))],
        }

    def newest(self, kind: str, **fields: str) -> int:
        """Return the number of the newest entry of a kind with these fields, or raise `NotFoundError`."""
        for entry in reversed(self.entries):
            if entry.get("kind") == kind and all(entry.get(name) == value for name, value in fields.items()):
                return int(entry["seq"])
        raise NotFoundError(f"no entry of the ledger is of kind {kind!r} with {fields}.")

    def _size(self, size: int | None) -> int:
        if size is not None and not 0 <= size <= len(self._tree):
            raise InputError(f"the ledger has {len(self._tree)} entries, not {size}: ask for a size it had.")
        return len(self._tree) if size is None else size


_seen: WeakKeyDictionary[ServerStore, Log] = WeakKeyDictionary()
"""The ledger as last read from each open store. A store is used by one thread at a time."""


def _begins(entries: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the entries continue the known ones; the last known entry's chained hash covers all before it."""
    return not known or (len(known) <= len(entries) and entries[len(known) - 1]["hash"] == known[-1]["hash"])
