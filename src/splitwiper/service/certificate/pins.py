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
    """The heads of its server's ledger that one client has seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def heads(self) -> tuple[TreeHead, ...]:
        """Return all pinned heads, smallest first.

        Raises:
            CorruptError: a pin was altered.
        """
        return tuple(sorted(_head(name) for name in self._names() if self._read(name) is not None))

    def newest(self) -> TreeHead | None:
        """Return the newest pinned head, which continues all others.

        Raises:
            CorruptError: it was altered.
        """
        for name in reversed(self._names()):
            if self._read(name) is not None:
                return _head(name)
        return None

    def signed(self, head: TreeHead) -> SignedHead | None:
        """Return a pinned head with the server's signature; None if it was pinned without.

        Raises:
            CorruptError: it was altered.
        """
        found = self._read(_name(head))
        return SignedHead.read(found["signed"]) if found and "signed" in found else None

    def pin(self, head: TreeHead, consistency: Consistency, *, signed: SignedHead | None = None) -> None:
        """Pin the server's current head, once it has proved that its ledger only grew.

        Args:
            head: the head that the server shows.
            consistency: fetches the server's proofs.
            signed: the same head with the server's signature, to keep with it.

        Raises:
            ForkError: it contradicts the newest pinned head, has fewer entries, or comes without a proof.
        """
        known = self.newest()
        if known and known.size > head.size:
            raise ForkError(
                f"the server's ledger was rolled back: it has {head}, and had {known} when that was pinned. {ADVICE}"
            )
        if head == known:
            return
        if known:
            require(known, head, consistency)
        before = {*self._names(), _name(head)}
        self.keep(head, signed)
        for name in self._names():
            if name not in before:  # another process pinned it in between
                compare([_head(name)], head, consistency)

    def keep(self, head: TreeHead, signed: SignedHead | None = None) -> None:
        """Write a head without comparing it with others, and delete all but the newest few."""
        files.make_folder(self.folder)
        content = head.to_dict() if signed is None else {**head.to_dict(), "signed": signed.envelope.to_dict()}
        files.write_bytes(self.folder / _name(head), dumps(content), replace=False)
        for name in self._names()[:-_KEPT]:
            (self.folder / name).unlink(missing_ok=True)

    def retire(self, head: TreeHead, signed: SignedHead, *, label: str, accepted: Iterable[str]) -> Path:
        """Start over with one head; earlier ones are moved to a folder of their own, as evidence.

        If the process is killed at any point, either the old heads count or the new one.

        Args:
            head: the head of the ledger that counts from now on.
            signed: the same head with the server's signature.
            label: the suffix of the folder's name.
            accepted: names of the restored backups accepted as the reason, so that none is accepted twice.

        Returns:
            The folder with the old heads.
        """
        aside = self.folder / f"replaced-{label}"
        files.make_folder(aside)
        old = [name for name in self._names() if name != _name(head)]
        for name in old:
            shutil.copy2(self.folder / name, aside / name)
        files.sync_folder(aside)
        self.keep(head, signed)
        replaced = {"heads": sorted({*self._retired(), *old}), "accepted": sorted({*self.accepted(), *accepted})}
        # the commit point: from here on, the new head counts
        files.write_bytes(self.folder / _RETIRED, dumps(replaced))
        for name in old:
            files.erase(self.folder / name)
        return aside

    def _names(self) -> list[str]:
        """Return the file names of heads that count, smallest head first."""
        retired = self._retired()
        # by size first: names of heads above 10**12 entries have more digits, and would sort wrongly as texts
        counting = [name for name in self._listed() if name not in retired]
        return sorted(counting, key=lambda name: (_head(name).size, name))

    def _listed(self) -> list[str]:
        out = []
        for path in self.folder.iterdir() if self.folder.is_dir() else []:
            if path.name.startswith(files.TEMPORARY) or path.name == _RETIRED or path.is_dir():
                continue
            if not _NAME.fullmatch(path.name):
                raise CorruptError(f"{path} is not a pinned head, or was altered: restore it from a backup.")
            out.append(path.name)
        return out

    def accepted(self) -> frozenset[str]:
        """Return the names of restored backups that were accepted as a reason to start over."""
        return frozenset(self._begun_again().get("accepted", ()))

    def _retired(self) -> frozenset[str]:
        return frozenset(self._begun_again().get("heads", ()))

    def _begun_again(self) -> dict[str, list[str]]:
        path = self.folder / _RETIRED
        found: dict[str, list[str]] = loads(path.read_bytes(), "list of heads") if path.exists() else {}
        return found

    def _read(self, name: str) -> dict[str, Any] | None:
        """Return the contents of a head's file; None if it has just been deleted."""
        try:
            text = read_limited(self.folder / name)
        except NotFoundError:
            return None
        head = _head(name)
        if text == dumps(head.to_dict()):
            return head.to_dict()
        with suppress(FormatError, KeyError, TypeError):
            found: dict[str, Any] = loads(text, "pinned head")
            if SignedHead.read(found["signed"]).head == head == TreeHead(found["size"], found["root"]):
                return found
        raise CorruptError(f"{self.folder / name} is not a pinned head, or was altered: restore it from a backup.")

    def compare(self, head: TreeHead, consistency: Consistency) -> None:
        """Compare a head of any age, such as a certificate's, with the newest pinned one, which continues all others.

        Raises:
            ForkError: they contradict each other, or a proof is missing.
        """
        compare(self.heads()[-1:], head, consistency)


def compare(pinned: Iterable[TreeHead], head: TreeHead, consistency: Consistency) -> None:
    """Compare a head of any age with others.

    Raises:
        ForkError: they contradict each other, or a proof is missing.
    """
    for other in pinned:
        require(min(other, head), max(other, head), consistency)


def require(old: TreeHead, new: TreeHead, consistency: Consistency) -> None:
    """Require the ledger of one head to be a prefix of that of another.

    Raises:
        ForkError: it is not, or there is no proof.
    """
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


def _head(name: str) -> TreeHead:
    size, _, root = name.removesuffix(".json").partition("-")
    return TreeHead(int(size), root)
