"""Pinned heads: what a client remembers of the server's ledger, so that no other one can be shown to it later.

One file for each head, written once and never replaced, so two processes that pin at the same time lose nothing. Being
the beginning of another ledger is transitive: only the newest head counts for what comes next. A few older ones are
kept, signed, to show to others.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from splitwiper.errors import CorruptError, ForkError, FormatError
from splitwiper.service.certificate.canonical import LIMIT, dumps, loads
from splitwiper.service.certificate.heads import SignedHead
from splitwiper.service.certificate.log import Head, follows
from splitwiper.store import files

Consistency = Callable[[int, int], Sequence[str] | None]
"""Gives the proof (hashes in hex) that the ledger of the first size is the beginning of that of the second; None where
there is none to be had. `Log.consistency` is one."""
_NAME = re.compile(r"(\d{12,})-([0-9a-f]{64})\.json")
_RETIRED = "retired.json"
_KEPT = 16
"""Heads that are kept."""
ADVICE = (
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
        with_names = ((name, self._read(name)) for name in self._names())
        return tuple(sorted(_head(name) for name, found in with_names if found is not None))

    def newest(self) -> Head | None:
        """The newest pinned head, which all others lead to.

        Raises:
            CorruptError: it was altered.
        """
        for name in reversed(self._names()):
            if self._read(name) is not None:
                return _head(name)
        return None

    def signed(self, head: Head) -> SignedHead | None:
        """A pinned head as the server signed it; None where it was pinned without its signature.

        Raises:
            CorruptError: it was altered.
        """
        found = self._read(_name(head))
        return SignedHead.read(found["signed"]) if found and "signed" in found else None

    def pin(self, head: Head, consistency: Consistency, *, signed: SignedHead | None = None) -> None:
        """Remember the server's head as it is now, once it has shown that its ledger only grew.

        Args:
            head: what the server shows.
            consistency: the server's proofs.
            signed: the same head as the server signed it, to be kept with it.

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
        before = set(self._names())
        self.keep(head, signed)
        meanwhile = [_head(name) for name in self._names() if name not in before and name != _name(head)]
        compare(meanwhile, head, consistency)  # pinned by another process meanwhile

    def keep(self, head: Head, signed: SignedHead | None = None) -> None:
        """Write a head down without comparing it with others, and let go of all but the newest few."""
        files.make_folder(self.folder)
        told = head.to_dict() if signed is None else {**head.to_dict(), "signed": signed.envelope.to_dict()}
        files.write_bytes(self.folder / _name(head), dumps(told), replace=False)
        for name in self._names()[:-_KEPT]:
            (self.folder / name).unlink(missing_ok=True)

    def retire(self, head: Head, signed: SignedHead, *, label: str, accepted: Iterable[str]) -> Path:
        """Begin again with one head; those before it are moved to a folder of their own, as evidence.

        Killed at any instant, either the old heads count or the new one.

        Args:
            head: of the ledger that counts from now on.
            signed: the same, as the server signed it.
            label: names the folder.
            accepted: names of what explains this to the site, so that it explains nothing a second time.

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
        said = {"heads": sorted({*self._retired(), *old}), "accepted": sorted({*self.accepted(), *accepted})}
        files.write_bytes(self.folder / _RETIRED, dumps(said))  # from here on, the new one counts
        for name in old:
            files.erase(self.folder / name)
        return aside

    def _names(self) -> list[str]:
        """The files of heads that count, smallest head first."""
        retired = self._retired()
        return sorted(
            (name for name in self._listed() if name not in retired), key=lambda name: (_head(name).size, name)
        )

    def _listed(self) -> list[str]:
        out = []
        for path in self.folder.iterdir() if self.folder.is_dir() else []:
            if path.name.startswith(files.TEMPORARY) or path.name == _RETIRED or path.is_dir():
                continue
            if not _NAME.fullmatch(path.name):
                raise CorruptError(f"{path} is no pinned head, or was altered: restore it from a backup.")
            out.append(path.name)
        return out

    def accepted(self) -> frozenset[str]:
        """Names of what was accepted as a reason to begin again."""
        return frozenset(self._begun_again().get("accepted", ()))

    def _retired(self) -> frozenset[str]:
        return frozenset(self._begun_again().get("heads", ()))

    def _begun_again(self) -> dict[str, list[str]]:
        path = self.folder / _RETIRED
        found: dict[str, list[str]] = loads(path.read_bytes(), "list of heads") if path.exists() else {}
        return found

    def _read(self, name: str) -> dict[str, Any] | None:
        """What a file of a head says; None where it is gone meanwhile."""
        try:
            with (self.folder / name).open("rb") as file:
                text = file.read(LIMIT)
        except FileNotFoundError:
            return None
        head = _head(name)
        if text == dumps(head.to_dict()):
            return head.to_dict()
        with suppress(FormatError, KeyError, TypeError):
            found: dict[str, Any] = loads(text, "pinned head")
            if SignedHead.read(found["signed"]).head == head == Head(found["size"], found["root"]):
                return found
        raise CorruptError(f"{self.folder / name} is no pinned head, or was altered: restore it from a backup.")

    def compare(self, head: Head, consistency: Consistency) -> None:
        """Compare a head of any age, such as a certificate's, with the newest pinned one, which stands for all before.

        Raises:
            ForkError: they contradict each other, or a proof is missing.
        """
        compare(self.heads()[-1:], head, consistency)


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
        raise ForkError(f"the ledger was forked: {old} is not the beginning of {new}. {ADVICE}")


def _name(head: Head) -> str:
    return f"{head.size:012d}-{head.root}.json"


def _head(name: str) -> Head:
    size, _, root = name.removesuffix(".json").partition("-")
    return Head(int(size), root)
