"""Restored backups, on record: a ledger entry says where the restored ledger continues from, and why.

To a site that knows a longer ledger than the backup had, this looks like a rollback. The entry separates an operator
with a broken disk from a server that hides something, as far as that is possible: a person at the site reads the reason
and accepts it, or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from splitwiper.errors import FormatError
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.keyring import Keyring
from splitwiper.service.certificate.log import Log, TreeHead, shows
from splitwiper.service.certificate.signed import SignedMessage
from splitwiper.service.certificate.standing import Keys
from splitwiper.store import ServerStore, ledger
from splitwiper.store.tickets import now

ENTRY = "restored"
"""The kind of the ledger entry."""
MARK = "restored"
"""Key of the database's meta table for the last time that the store was restored."""


@dataclass(frozen=True)
class Restored(SignedMessage):
    """A record that a store was restored from a backup, signed by the server.

    Attributes:
        federation: the id of the store.
        size: the number of entries in the backup's ledger.
        root: the Merkle root over them.
        time: the time of the restoration.
        reason: the operator's reason, in words.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.restored+json"
    TITLE = "a statement about a restored backup"
    SIGNER = ""
    MAY_BE_EMPTY = ("federation", "root", "time", "reason")
    LONGEST = 1000
    SPELLED: ClassVar = {"size": "from"}

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
        restored = Restored(server_store.federation, head.size, head.root, now(), reason)
        entry = {"kind": ENTRY, "from": restored.size, "root": restored.root, "time": restored.time}
        ledger.append(db, {**entry, "statement": restored.sign(key)})
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (MARK, restored.time))
    return restored


def shown(log: Log) -> list[dict[str, Any]]:
    """Return every entry about a restored backup with the proof that it is in the ledger, oldest first."""
    proved = [log.proof(int(entry["seq"])) for entry in log.entries if entry.get("kind") == ENTRY]
    return [{name: one[name] for name in ("entry", "blind", "proof")} for one in proved]


def read_restored(item: Mapping[str, Any], head: TreeHead, keys: Keys) -> Restored:
    """Read one such entry, and check that it is in a ledger and signed.

    Args:
        item: one item of `shown`'s result.
        head: the head of the ledger that it must be in, signed by a key in good standing.
        keys: the server's keys.

    Raises:
        FormatError: it is malformed, not in the ledger, or not signed.
    """
    try:
        entry, shown = dict(item["entry"]), {**item, **asdict(head)}
        made = Envelope.from_dict(entry["statement"])
        found, place = Restored.unpack(made), (entry["kind"], entry["seq"], entry["from"], entry["root"])
    except (KeyError, TypeError, ValueError) as problem:
        raise FormatError("this is not an entry about a restored backup.") from problem
    if place != (ENTRY, found.size + 1, found.size, found.root):
        raise FormatError("the entry does not say what was signed about the restored backup.")
    if not keys.signed(made):
        raise FormatError("no key of the server in good standing signed the statement about a restored backup.")
    if not shows(shown):
        raise FormatError("the entry about a restored backup is not in the ledger that is shown.")
    return found
