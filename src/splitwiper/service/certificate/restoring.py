"""Restored backups, on record: a ledger entry says where the restored ledger continues from, and why.

To a site that knows a longer ledger than the backup had, this looks like a rollback. The entry separates an operator
with a broken disk from a server that hides something, as far as that is possible: a person at the site reads the reason
and accepts it, or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from splitwiper.errors import FormatError
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.keyring import Keyring
from splitwiper.service.certificate.log import Log, TreeHead, shows
from splitwiper.service.certificate.signed import Count, OptionalText, Reason, SignedMessage
from splitwiper.service.certificate.standing import Keys
from splitwiper.store import ServerStore, ledger
from splitwiper.store.tickets import now

ENTRY = "restored"
"""The kind of the ledger entry."""
MARK = "restored"
"""Key of the database's meta table for the last time that the store was restored."""


@dataclass(frozen=True)
class Restored(SignedMessage):
    """The server's record that its store was restored from a backup, whose ledger had this size and root."""

    PAYLOAD_TYPE = "application/vnd.splitwiper.restored+json"
    TITLE = "a statement about a restored backup"
    SIGNER = ""

    federation: OptionalText
    size: Annotated[Count, Field(alias="from")]
    root: OptionalText
    time: OptionalText
    reason: Reason

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
    items = []
    for entry in log.entries:
        if entry.get("kind") == ENTRY:
            proof = log.proof(int(entry["seq"]))
            # the head is left out: the answer carries it once, signed
            items.append({name: proof[name] for name in ("entry", "blind", "proof")})
    return items


def read_restored(item: Mapping[str, Any], head: TreeHead, keys: Keys) -> Restored:
    """Read one item of `shown`'s result, and check that it is in a ledger and signed, or raise `FormatError`.

    ``head`` is the head of the ledger that it must be in, signed by a key in good standing.
    """
    try:
        entry = dict(item["entry"])
        envelope = Envelope.from_dict(entry["statement"])
        restored, stated = Restored.unpack(envelope), (entry["kind"], entry["seq"], entry["from"], entry["root"])
    except (KeyError, TypeError, ValueError) as problem:
        raise FormatError("this is not an entry about a restored backup.") from problem
    # the entry comes right after the backup's own: at another place it would explain another gap
    if stated != (ENTRY, restored.size + 1, restored.size, restored.root):
        raise FormatError("the entry does not say what was signed about the restored backup.")
    if not keys.signed(envelope):
        raise FormatError("no key of the server in good standing signed the statement about a restored backup.")
    if not shows({**item, **asdict(head)}):
        raise FormatError("the entry about a restored backup is not in the ledger that is shown.")
    return restored
