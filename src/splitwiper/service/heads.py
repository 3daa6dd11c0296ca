"""The signed head that goes out with every answer: signed once for each state of the ledger, by a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from splitwiper.errors import SplitWiperError
from splitwiper.service.certificate import Keyring, Log, SignedHead, SigningKey
from splitwiper.service.certificate.heads import HEAD, PROOF, SIZE, proof_to_header
from splitwiper.store import ServerTree
from splitwiper.store.tickets import now

_log = logging.getLogger("splitwiper.service")
_DIGITS = 13
"""Of the largest size that callers may name."""
Stamp = tuple[int, str, int, int]
"""Changes with the ledger and with the signing key."""
Headers = list[tuple[bytes, bytes]]


class Heads:
    """Signed heads of a store's ledger."""

    def __init__(self, root: Path) -> None:
        self._tree = ServerTree(root)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="heads")
        self._stamp: Stamp | None = None
        self._signed: SignedHead | None = None
        self._ledger: Log | None = None
        self._key: SigningKey | None = None
        self._header = b""

    async def headers(self, asked: Headers) -> Headers:
        """Return the headers that show the ledger as it is now, and that it continues what the caller knows.

        Args:
            asked: the headers of the call.

        Returns:
            None of them where the ledger cannot be read or nothing can be signed, which is in the log.
        """
        size = next((value for name, value in asked if name == SIZE.lower().encode()), b"")
        known = int(size) if size.isdigit() and len(size) <= _DIGITS else 0
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._made, known)
        except (SplitWiperError, OSError, sqlite3.Error) as problem:
            _log.error("the ledger's head cannot be signed: %s: %s", type(problem).__name__, problem)
            return []

    def _made(self, known: int) -> Headers:
        stamp = self._look()
        if stamp != self._stamp or self._signed is None or self._ledger is None:
            if self._key is None or self._stamp is None or stamp[2:] != self._stamp[2:]:
                self._key = Keyring.of(self._tree).key()  # made now, where nothing was signed yet
                stamp = self._look()
            self._ledger = Log.begin(self._tree)
            federation = self._tree.book.meta("run") or ""
            head, model = self._ledger.head(), self._ledger.model()
            self._signed = SignedHead.sign(federation, head, now(), self._key, model=model)
            self._header = self._signed.to_header().encode("ascii")
            self._stamp = stamp
        headers = [(HEAD.lower().encode(), self._header)]
        if 0 < known <= self._signed.head.size:
            proof = self._ledger.consistency(known, self._signed.head.size)
            headers.append((PROOF.lower().encode(), proof_to_header(proof).encode("ascii")))
        return headers

    def _look(self) -> Stamp:
        """Where ledger and key stand, without reading either."""
        row = self._tree.book.one("SELECT seq, hash FROM ledger ORDER BY seq DESC LIMIT 1")
        ledger = (int(row["seq"]), str(row["hash"])) if row else (0, "")
        try:
            key = (self._tree.root / "signing" / "private.pem").stat()
        except FileNotFoundError:
            return (*ledger, 0, 0)
        return (*ledger, key.st_ino, key.st_mtime_ns)

    def close(self) -> None:
        """Finish what was begun."""
        self._thread.shutdown(wait=True)
        self._tree.book.close()
