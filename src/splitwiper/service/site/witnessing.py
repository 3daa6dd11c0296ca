"""Exchanging heads with other sites: through the server, which relays countersigned ones, or by files.

A server that shows different ledgers to different sites has to keep their countersignatures apart permanently. It can
withhold them, which shows as a site whose last countersigned head is old.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from splitwiper.errors import ForkError, FormatError, NotFoundError, SplitWiperError
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.certificate import SignedHead, TreeHead
from splitwiper.service.certificate.canonical import dumps, loads
from splitwiper.service.certificate.envelope import read_limited
from splitwiper.service.certificate.heads import read_countersigned, write_evidence
from splitwiper.service.certificate.log import follows
from splitwiper.service.certificate.pins import ADVICE
from splitwiper.service.site.notary import Notary
from splitwiper.service.site.own_key import OwnKey
from splitwiper.store import files

FILE = "witnesses.json"
_DAY = 86_400.0


@dataclass(frozen=True)
class SeenHeads:
    """The newest head that another site countersigned, as far as this site knows.

    Attributes:
        size: the head's number of entries.
        root: the Merkle root over them.
        countersigned: the time of signing, by the other site's clock.
        key: the other site's signing key, as first seen by this site.
        note: a remark if something is suspicious; otherwise empty.
    """

    size: int
    root: str
    countersigned: str
    key: str
    note: str = ""


class Witnessing:
    """A site's exchange of heads with other sites."""

    def __init__(self, folder: Path, name: str, guard: LedgerGuard, notary: Notary, own_key: OwnKey) -> None:
        self._path, self._name, self._guard, self._notary, self._own_key = folder / FILE, name, guard, notary, own_key

    def seen(self) -> dict[str, SeenHeads]:
        """Return the newest known head of each other site."""
        return {site: SeenHeads(**values) for site, values in self._state()["sites"].items()}

    def newest(self) -> SignedHead:
        """Return the newest head that this site has pinned, with the server's signature.

        Raises:
            NotFoundError: no head is pinned, or an older version pinned it without a signature.
        """
        head = self._guard.pins.newest()
        signed = self._guard.pins.signed(head) if head else None
        if signed is None:
            raise NotFoundError("this site has no signed head yet: let it call its server once, say with predict.")
        return signed

    def try_exchange(self, *, daily: bool = False) -> None:
        """Exchange heads; errors on the way are ignored, except a forked ledger.

        With ``daily``, nothing is done if the last exchange was less than a day ago.

        Raises:
            ForkError: the server showed another ledger to another site.
        """
        if daily and 0 <= time.time() - self._state()["exchanged"] < _DAY:
            return
        try:
            self.exchange()
        except ForkError:
            raise
        except (SplitWiperError, httpx.HTTPError):  # retried next time
            return

    def exchange(self) -> None:
        """Publish a countersignature of the newest head, and compare the heads that other sites countersigned."""
        if self._guard.pins.newest() is None:
            self._notary.head()
        self._guard.refresh(self._notary.ask)  # there may be a new revocation
        self._notary.countersign(self._own_key.countersign(self.newest(), self._name))
        newer: dict[str, SeenHeads] = {}
        for witness in self._notary.witnesses():
            site = str(witness.get("site", ""))
            if site != self._name and (seen := self._compared(site, witness)) is not None:
                newer.setdefault(site, seen)  # the newest comes first
        sites = self._state()["sites"]
        for site, seen in newer.items():
            sites[site] = asdict(seen)
        files.write_bytes(self._path, dumps({"exchanged": time.time(), "sites": sites}))

    def _compared(self, site: str, witness: Mapping[str, Any]) -> SeenHeads | None:
        """Return another site's countersigned head, checked to be of the same ledger; None if it does not count."""
        try:
            head, countersigned = read_countersigned(witness["head"], witness["countersignature"])
        except (FormatError, KeyError, TypeError):
            return None
        keys, own = self._guard.server_keys.read(), self._guard.pins.newest()
        if countersigned.site != site or head.federation != self._guard.federation or own is None:
            return None
        if keys.signed(head.envelope):
            self.compare(head, whose=f"site {site!r}")
        elif keys.doubtful(head.envelope, head.head.size) is None or not self._is_beginning(head.head, own):
            return None  # a thief of a revoked key may have signed it, so it proves nothing
        before, key, note = self.seen().get(site), countersigned.key, ""
        if before is not None and before.key != key:
            key, note = before.key, "countersigned with another key than before: ask the site whether it changed it"
        return SeenHeads(head.head.size, head.head.root, countersigned.time, key, note)

    def compare(self, head: SignedHead, *, whose: str) -> None:
        """Compare a head that another party saw with the ledger that this site is shown.

        Raises:
            ForkError: they are of two ledgers, or the head is not the server's.
        """
        self._guard.signed(head, self._notary.ask)
        own = self._guard.pins.newest()
        # of two heads of one ledger, the smaller is the beginning of the larger
        if own is None or own.size < head.head.size:
            self._notary.head()  # the ledger may have grown since
            own = self._guard.pins.newest()
        if own is None or own == head.head or self._is_beginning(head.head, own):
            return
        story = f"{whose} was shown a ledger with {head.head} that is not the beginning of this site's, {own}."
        raise ForkError(f"the server keeps two ledgers: {story} {self._evidence(head, own, story)}{ADVICE}")

    def _is_beginning(self, head: TreeHead, own: TreeHead) -> bool:
        return head.size < own.size and follows(head, own, self._notary.consistency(head.size, own.size))

    def _evidence(self, head: SignedHead, own: TreeHead, story: str) -> str:
        """Write the evidence of the fork to a file, if it can be obtained, and return a sentence naming the file."""
        other = self._guard.pins.signed(own)
        with suppress(SplitWiperError, httpx.HTTPError):
            if own.size > head.head.size:
                other = self._guard.signed(self._notary.head(head.head.size), self._notary.ask)
        if other is None or other.head.size != head.head.size or other.head == head.head:
            return ""
        path = write_evidence(self._guard.site, head, other, story=story)
        return f"It signed both: {path} proves it to anybody. "

    def _state(self) -> dict[str, Any]:
        if not self._path.exists():
            return {"exchanged": 0.0, "sites": {}}
        state: dict[str, Any] = loads(read_limited(self._path), "list of other sites' heads")
        return state
