"""Exchanging heads with other sites: through the server, which relays countersigned ones, or by files.

A server that shows different ledgers to different sites has to keep their countersignatures apart for ever. It can
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
from splitwiper.service.certificate import Head, SignedHead
from splitwiper.service.certificate.canonical import dumps, loads
from splitwiper.service.certificate.countersigning import Countersignature, read_countersigned
from splitwiper.service.certificate.envelope import read_limited
from splitwiper.service.certificate.evidence import write_evidence
from splitwiper.service.certificate.log import follows
from splitwiper.service.certificate.pins import ADVICE
from splitwiper.service.home.link import HttpsLink
from splitwiper.service.home.own_key import OwnKey
from splitwiper.store import files

FILE = "witnesses.json"
_DAY = 86_400.0


@dataclass(frozen=True)
class Seen:
    """What this site last saw of another one.

    Attributes:
        size: entries of the newest head that it countersigned.
        root: the root over them.
        countersigned: when, by the other site's clock.
        key: what it signs with, as this site saw it first.
        note: what is odd about it; empty where nothing is.
    """

    size: int
    root: str
    countersigned: str
    key: str
    note: str = ""


class Witnessing:
    """A site's exchange of heads with others.

    Args:
        folder: the client's own, in the site.
        name: the site's.
        guard: holds the server to its ledger.
        link: to the server.
        own_key: countersigns.
    """

    def __init__(self, folder: Path, name: str, guard: LedgerGuard, link: HttpsLink, own_key: OwnKey) -> None:
        self._path, self._name, self._guard, self._link, self._own_key = folder / FILE, name, guard, link, own_key

    def seen(self) -> dict[str, Seen]:
        """Return what was last seen of each other site."""
        return {site: Seen(**values) for site, values in self._state()["sites"].items()}

    def newest(self) -> SignedHead:
        """Return the newest head that this site has pinned, as the server signed it.

        Raises:
            NotFoundError: it has none: it was pinned by an older version, or nothing was.
        """
        head = self._guard.pins.newest()
        signed = self._guard.pins.signed(head) if head else None
        if signed is None:
            raise NotFoundError("this site has no signed head yet: let it call its server once, say with predict.")
        return signed

    def try_exchange(self, *, daily: bool = False) -> None:
        """Exchange heads; trouble on the way stops nobody, a forked ledger does.

        Args:
            daily: do nothing if the last exchange was less than a day ago.

        Raises:
            ForkError: the server showed another ledger to another site.
        """
        if daily and 0 <= time.time() - self._state()["exchanged"] < _DAY:
            return
        try:
            self.exchange()
        except ForkError:
            raise
        except (SplitWiperError, httpx.HTTPError):  # next time
            return

    def exchange(self) -> None:
        """Leave a countersignature of the newest head with the server, and compare those of other sites.

        Raises:
            ForkError: the server showed another ledger to another site.
        """
        if self._guard.pins.newest() is None:
            self._link.head()
        self._guard.refresh(self._link.ask)  # a revocation may have come
        self._link.countersign(self._own_key.countersign(self.newest(), self._name))
        found: dict[str, Seen] = {}
        for one in self._link.witnesses():
            site = str(one.get("site", ""))
            if site != self._name and (seen := self._compared(site, one)) is not None and site not in found:
                found[site] = seen  # the newest comes first
        state = self._state()
        sites = {**state["sites"], **{site: asdict(seen) for site, seen in found.items()}}
        files.write_bytes(self._path, dumps({"exchanged": time.time(), "sites": sites}))

    def _compared(self, site: str, one: Mapping[str, Any]) -> Seen | None:
        """What another site has countersigned, if it is shown to be of the same ledger; None if it counts for nothing.

        Raises:
            ForkError: it is of another ledger, and the server signed it with a key in good standing.
        """
        try:
            head, said = read_countersigned(one["head"], one["countersignature"])
        except (FormatError, KeyError, TypeError):
            return None
        keys, own = self._guard.server_keys.read(), self._guard.pins.newest()
        if said.site != site or head.federation != self._guard.federation or own is None:
            return None
        if keys.signed(head.envelope):
            self.compare(head, whose=f"site {site!r}")
        elif keys.doubtful(head.envelope, head.head.size) is None or not self._is_beginning(head.head, own):
            return None  # a thief of a revoked key may have signed it: it proves nothing
        return self._noted(site, head, said)

    def _noted(self, site: str, head: SignedHead, said: Countersignature) -> Seen:
        before = self.seen().get(site)
        key, note = said.key, ""
        if before is not None and before.key != said.key:
            key, note = before.key, "countersigned with another key than before: ask the site whether it changed it"
        return Seen(head.head.size, head.head.root, said.time, key, note)

    def compare(self, head: SignedHead, *, whose: str) -> None:
        """Compare a head that somebody else saw with the ledger that this site is shown.

        Args:
            head: as the server signed it.
            whose: who saw it, for the message.

        Raises:
            ForkError: they are of two ledgers, or the head is not the server's.
        """
        self._guard.signed(head, self._link.ask)
        own = self._guard.pins.newest()
        if own is None or own.size < head.head.size:
            self._link.head()  # the ledger may have grown since
            own = self._guard.pins.newest()
        if own is None or own == head.head or self._is_beginning(head.head, own):
            return
        told = f"{whose} was shown a ledger with {head.head} that is not the beginning of this site's, {own}."
        raise ForkError(f"the server keeps two ledgers: {told} {self._evidence(head, own, told)}{ADVICE}")

    def _is_beginning(self, head: Head, own: Head) -> bool:
        return head.size < own.size and follows(head, own, self._link.consistency(head.size, own.size))

    def _evidence(self, head: SignedHead, own: Head, told: str) -> str:
        """Write down what proves the fork to others, if that can be had, and return a sentence that names the file."""
        other = self._guard.pins.signed(own)
        with suppress(SplitWiperError, httpx.HTTPError):
            if own.size > head.head.size:
                other = self._guard.signed(self._link.head(head.head.size), self._link.ask)
        if other is None or other.head.size != head.head.size or other.head == head.head:
            return ""
        path = write_evidence(self._guard.site, head, other, story=told)
        return f"It signed both: {path} proves it to anybody. "

    def _state(self) -> dict[str, Any]:
        if not self._path.exists():
            return {"exchanged": 0.0, "sites": {}}
        found: dict[str, Any] = loads(read_limited(self._path), "list of other sites' heads")
        return found
