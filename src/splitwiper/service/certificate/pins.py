"""Pinned heads: a client's memory of the server's ledger, so that it cannot be shown a different one later.

There is one file for each head, written once and never replaced, so two processes that pin at the same time lose
nothing. Being a prefix of a ledger is transitive, so only the newest head counts for what comes next. A few older ones
are kept, signed, to show to others.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from splitwiper.errors import CorruptError, ForkError, FormatError, NotFoundError
from splitwiper.service.certificate.canonical import dumps, loads
from splitwiper.service.certificate.envelope import read_limited
from splitwiper.service.certificate.heads import SignedHead
from splitwiper.service.certificate.log import TreeHead, follows
from splitwiper.store import files

Consistency = Callable[[int, int], Sequence[str] | None]
"""Returns the proof (hashes in hex) that the ledger of the first size is a prefix of that of the second; None if it
cannot be obtained. `Log.consistency` is one."""
_NAME = re.compile(r"(\d{12,})-([0-9a-f]{64})\.json")
_RETIRED = "retired.json"
_KEPT = 16
"""The number of heads kept."""
ADVICE = (
    "Do not send this server anything more. Keep both heads, compare them with those other clients pinned, and ask the "
    "operator whether the server was restored from a backup; if so, forgotten data may be back in it."
)


class Pins:
    """The heads of its server's ledger that one client has seen. Reading raises `CorruptError` if one was altered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def heads(self) -> tuple[TreeHead, ...]:
        """Return all pinned heads, smallest first."""
        return tuple(head for head in self._listed() if self._read(head) is not None)

    def newest(self) -> TreeHead | None:
        """Return the newest pinned head, which continues all others."""
        for head in reversed(self._listed()):
            if self._read(head) is not None:
                return head
        return None

    def signed(self, head: TreeHead) -> SignedHead | None:
        """Return a pinned head with the server's signature; None if it was pinned without."""
        content = self._read(head)
        return SignedHead.read(content["signed"]) if content and "signed" in content else None

    def keep(self, head: TreeHead, signed: SignedHead | None = None) -> None:
        """Write a head without comparing it with others, and delete all but the newest few."""
        files.make_folder(self.folder)
        content = head.to_dict() if signed is None else {**head.to_dict(), "signed": signed.envelope.to_dict()}
        files.write_bytes(self.folder / _name(head), dumps(content), replace=False)
        for old in self._listed()[:-_KEPT]:
            (self.folder / _name(old)).unlink(missing_ok=True)

    def retire(self, head: TreeHead, signed: SignedHead, *, label: str, accepted: Iterable[str]) -> Path:
        """Start over with one head; earlier ones are moved to a folder of their own, as evidence.

        If the process is killed at any point, either the old heads count or the new one.

        Args:
            head: the head of the ledger that counts from now on.
            signed: the same head with the server's signature.
            label: the suffix of the folder's name.
            accepted: names of the restored backups accepted as the reason, so that none is accepted twice.
        """
        aside = self.folder / f"replaced-{label}"
        files.make_folder(aside)
        old = [_name(other) for other in self._listed() if other != head]
        for name in old:
            shutil.copy2(self.folder / name, aside / name)
        files.sync_folder(aside)
        self.keep(head, signed)
        retired = {
            "heads": sorted({*self._retired("heads"), *old}),
            "accepted": sorted({*self.accepted(), *accepted}),
        }
        # the commit point: from here on, the new head counts
        files.write_bytes(self.folder / _RETIRED, dumps(retired))
        for name in old:
            files.erase(self.folder / name)
        return aside

    def accepted(self) -> frozenset[str]:
        """Return the names of restored backups that were accepted as a reason to start over."""
        return self._retired("accepted")

    def compare(self, head: TreeHead, consistency: Consistency) -> None:
        """Compare a head of any age with the newest pinned one, which continues all others; see `compare`."""
        compare(self.heads()[-1:], head, consistency)

    def _listed(self) -> list[TreeHead]:
        """Return the heads that count, by the names of their files, smallest first."""
        heads, retired = [], self._retired("heads")
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.name in retired or path.name == _RETIRED or path.name.startswith(files.TEMPORARY) or path.is_dir():
                continue
            match = _NAME.fullmatch(path.name)
            head = TreeHead(int(match[1]), match[2]) if match else None
            if head is None or _name(head) != path.name:  # each head has one spelling
                raise self._altered(path.name)
            heads.append(head)
        return sorted(heads)

    def _retired(self, part: str) -> frozenset[str]:
        """Return a part of the file about heads that count no longer."""
        path = self.folder / _RETIRED
        return frozenset(loads(path.read_bytes(), "list of heads").get(part, ()) if path.exists() else ())

    def _read(self, head: TreeHead) -> dict[str, Any] | None:
        """Return the contents of a head's file; None if it has just been deleted."""
        try:
            text = read_limited(self.folder / _name(head))
        except NotFoundError:
            return None
        if text == dumps(head.to_dict()):
            return head.to_dict()
        with suppress(FormatError, KeyError, TypeError):
            content: dict[str, Any] = loads(text, "pinned head")
            if SignedHead.read(content["signed"]).head == head == TreeHead(content["size"], content["root"]):
                return content
        raise self._altered(_name(head))

    def _altered(self, name: str) -> CorruptError:
        return CorruptError(f"{self.folder / name} is not a pinned head, or was altered: restore it from a backup.")


def compare(pinned: Iterable[TreeHead], head: TreeHead, consistency: Consistency) -> None:
    """Compare a head of any age with others, or raise `ForkError`; see `require`."""
    for other in pinned:
        require(min(other, head), max(other, head), consistency)


def require(old: TreeHead, new: TreeHead, consistency: Consistency) -> None:
    """Require the ledger of one head to be a prefix of that of another, or raise `ForkError`."""
    if old == new:
        return
    proof = [] if old.size == new.size else consistency(old.size, new.size)
    if proof is None:
        raise ForkError(
            f"there is no proof that the ledger with {old} grew into the one with {new}: ask the server for it, and "
            "treat one that refuses as one that shows different ledgers to different clients."
        )
    if not follows(old, new, proof):
        raise ForkError(f"the ledger was forked: {old} is not the beginning of {new}. {ADVICE}")


def _name(head: TreeHead) -> str:
    return f"{head.size:012d}-{head.root}.json"
