"""Restoring from a backup, on record: an entry of the ledger says from where on the ledger begins anew, and why.

A site that knows a longer ledger than the backup had sees a rollback. With this entry it can tell an operator with a
broken disk from a server that hides something, as far as anybody can: a person at the site reads the reason and
accepts, or does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads_canonical
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.log import Head, Log, leaf_of
from splitwiper.service.certificate.signing import Keyring
from splitwiper.service.certificate.standing import Keys
from splitwiper.store import ServerTree, ledger, merkle
from splitwiper.store.tickets import now

PAYLOAD_TYPE = "application/vnd.splitwiper.restored+json"
ENTRY = "restored"
"""The kind of the ledger's entry."""
MARK = "restored"
"""Where the book remembers the last time that the store was restored."""


@dataclass(frozen=True)
class Restored:
    """That a store was restored from a backup.

    Attributes:
        federation: the store.
        size: entries that the ledger of the backup had.
        root: the root over them.
        time: when it was restored.
        reason: why, in the operator's words.
    """

    federation: str
    size: int
    root: str
    time: str
    reason: str

    @property
    def name(self) -> str:
        """What tells it from other times that the store was restored."""
        return f"{self.time} {self.size} {self.root}"


def record(tree: ServerTree, reason: str) -> Restored:
    """Put on record that a store is a backup: in the ledger, signed by the present key. The caller holds the store."""
    key = Keyring.of(tree).key()
    with tree.book.change() as db:
        Log.prepare(db)
        head = Log.of(tree).head()
        said = Restored(tree.book.meta("run") or "", head.size, head.root, now(), reason)
        plain = {name: value for name, value in said.__dict__.items() if name != "size"}
        payload = dumps({**plain, "from": said.size})
        signed = Envelope.sign(payload, [key], payload_type=PAYLOAD_TYPE).to_dict()
        ledger.append(db, {"kind": ENTRY, "from": said.size, "root": said.root, "time": said.time, "statement": signed})
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (MARK, said.time))
    return said


def shown(log: Log) -> list[dict[str, Any]]:
    """Return every entry about a restored backup with the proof that it is in the ledger, oldest first."""
    numbers = [int(entry["seq"]) for entry in log.entries if entry.get("kind") == ENTRY]
    return [{"entry": log.shown(n), "blind": log.blind(n).hex(), "proof": log.inclusion(n)} for n in numbers]


def read_restored(told: Mapping[str, Any], head: Head, keys: Keys) -> Restored:
    """Read one such entry and check that it is in a ledger, and signed.

    Args:
        told: one item of `shown`.
        head: of the ledger that it must be in; signed by a key in good standing.
        keys: the server's.

    Raises:
        FormatError: it is not, or not signed.
    """
    try:
        entry, blind = dict(told["entry"]), bytes.fromhex(told["blind"])
        proof: Sequence[bytes] = [bytes.fromhex(item) for item in told["proof"]]
        made = Envelope.from_dict(entry["statement"])
        said = loads_canonical(made.payload, "restored ledger")
        seq, kind = int(entry["seq"]), entry["kind"]
        names = ("federation", "root", "time", "reason")
        found = Restored(size=said["from"], **{name: said[name] for name in names})
    except (KeyError, TypeError, ValueError) as problem:
        raise FormatError("this is not an entry about a restored backup.") from problem
    texts = [getattr(found, name) for name in names]
    if type(found.size) is not int or not all(isinstance(t, str) and len(t) <= 1000 and t.isprintable() for t in texts):
        raise FormatError("this is not an entry about a restored backup.")
    if kind != ENTRY or made.payload_type != PAYLOAD_TYPE or (entry["from"], entry["root"]) != (found.size, found.root):
        raise FormatError("the entry does not say what was signed about the restored backup.")
    if seq != found.size + 1 or not keys.signed(made):
        raise FormatError("what is said about a restored backup is not signed by a key of the server in good standing.")
    if not merkle.verify_inclusion(leaf_of(entry, blind), seq - 1, head.size, proof, bytes.fromhex(head.root)):
        raise FormatError("the entry about a restored backup is not in the ledger that is shown.")
    return found
