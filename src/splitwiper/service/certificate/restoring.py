"""Restored backups, on record: a ledger entry says where the restored ledger continues from, and why.

To a site that knows a longer ledger than the backup had, this looks like a rollback. The entry separates an operator
with a broken disk from a server that hides something, as far as that is possible: a person at the site reads the reason
and accepts it, or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads_canonical
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.log import Log, TreeHead, leaf_of
from splitwiper.service.certificate.signing import Keyring
from splitwiper.service.certificate.standing import Keys
from splitwiper.store import ServerStore, ledger, merkle
from splitwiper.store.tickets import now

PAYLOAD_TYPE = "application/vnd.splitwiper.restored+json"
ENTRY = "restored"
"""The kind of the ledger entry."""
MARK = "restored"
"""Key of the database's meta table for the last time that the store was restored."""


@dataclass(frozen=True)
class Restored:
    """A record that a store was restored from a backup.

    Attributes:
        federation: the id of the store.
        size: the number of entries in the backup's ledger.
        root: the Merkle root over them.
        time: the time of the restoration.
        reason: the operator's reason, in words.
    """

    federation: str
    size: int
    root: str
    time: str
    reason: str

    @property
    def name(self) -> str:
        """An identifier of this restoration."""
        return f"{self.time} {self.size} {self.root}"


def record(server_store: ServerStore, reason: str) -> Restored:
    """Record in the ledger, signed with the present key, that a store is a backup. The caller must hold the lease."""
    key = Keyring.of(server_store).key()
    with server_store.database.change() as db:
        Log.prepare(db)
        head = Log.of(server_store).head()
        said = Restored(server_store.database.meta("run") or "", head.size, head.root, now(), reason)
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


def read_restored(told: Mapping[str, Any], head: TreeHead, keys: Keys) -> Restored:
    """Read one such entry, and check that it is in a ledger and signed.

    Args:
        told: one item of `shown`'s result.
        head: the head of the ledger that it must be in, signed by a key in good standing.
        keys: the server's keys.

    Raises:
        FormatError: it is malformed, not in the ledger, or not signed.
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
