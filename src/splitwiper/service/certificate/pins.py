"""Pinned heads: what a client remembers of the server's ledger, so that no other one can be shown to it later.

One file for each head, written once and never replaced: pins are only ever added, and two processes that pin at the
same time lose nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from splitwiper.errors import CorruptError, ForkError
from splitwiper.service.certificate.canonical import LIMIT, dumps
from splitwiper.service.certificate.log import Head, follows
from splitwiper.store import files

Consistency = Callable[[int, int], Sequence[str] | None]
"""Gives the proof (hashes in hex) that the ledger of the first size is the beginning of that of the second; None where
there is none to be had. `Log.consistency` is one."""
_NAME = re.compile(r"(\d{12,})-([0-9a-f]{64})\.json")
_ADVICE = (
    "Do not send this server anything more. Keep both heads, compare them with those other clients pinned, and ask the "
    "operator whether the server was restored from a backup; if so, forgotten data may be back in it."
)


class Pins:
    """The heads that one client has seen of its server's ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def heads(self) -> tuple[Head, ...]:
        """All pinned heads, smallest first.

        Raises:
            CorruptError: a pin was altered.
        """
        out = []
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else []:
            if path.name.startswith(files.TEMPORARY):
                continue
            named = _NAME.fullmatch(path.name)
            head = Head(int(named[1]), named[2]) if named else None
            with path.open("rb") as file:
                text = file.read(LIMIT)
            if head is None or text != dumps(head.to_dict()):
                raise CorruptError(f"{path} is no pinned head, or was altered: restore it from a backup.")
            out.append(head)
        return tuple(sorted(out))

    def pin(self, head: Head, consistency: Consistency) -> None:
        """Remember the server's head as it is now, once it has shown that its ledger only grew.

        Args:
            head: what the server shows.
            consistency: the server's proofs.

        Raises:
            ForkError: it contradicts a pinned head, has fewer entries than one, or comes without a proof.
        """
        known = self.heads()
        if known and known[-1].size > head.size:
            raise ForkError(
                f"the server's ledger was rolled back: it has {head}, and had {known[-1]} when that was pinned. "
                f"{_ADVICE}"
            )
        if head in known:
            return
        compare(known, head, consistency)
        files.make_folder(self.folder)
        path = self.folder / f"{head.size:012d}-{head.root}.json"
        files.write_bytes(path, dumps(head.to_dict()), replace=False)
        compare(set(self.heads()) - {*known, head}, head, consistency)  # pinned by another process meanwhile

    def compare(self, head: Head, consistency: Consistency) -> None:
        """Compare a head of any age, say a certificate's, with every pinned one.

        Raises:
            ForkError: they contradict each other, or a proof is missing.
        """
        compare(self.heads(), head, consistency)


def compare(pinned: Iterable[Head], head: Head, consistency: Consistency) -> None:
    """Compare a head of any age with others.

    Raises:
        ForkError: they contradict each other, or a proof is missing.
    """
    for other in pinned:
        require(min(other, head), max(other, head), consistency)


def require(old: Head, new: Head, consistency: Consistency) -> None:
    """Demand that the ledger of one head is the beginning of that of another.

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
        raise ForkError(f"the ledger was forked: {old} is not the beginning of {new}. {_ADVICE}")
