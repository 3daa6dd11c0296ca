"""The signed head sent with every answer: signed once for each state of the ledger, on its own thread."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from splitwiper.errors import SplitWiperError
from splitwiper.service.certificate import Keyring, Log, SignedHead, SigningKey
from splitwiper.service.certificate.heads import HEAD_HEADER, PROOF_HEADER, SIZE_HEADER, proof_to_header
from splitwiper.store import ServerStore
from splitwiper.store.tickets import now

_log = logging.getLogger("splitwiper.service")
_DIGITS = 13
"""Number of digits of the largest size that callers may name."""
Stamp = tuple[int, str, int, int]
"""A value that changes with the ledger and with the signing key."""
Headers = list[tuple[bytes, bytes]]


class HeadSigner:
    """Signs heads of a store's ledger, and caches the newest."""

    def __init__(self, root: Path) -> None:
        self._store = ServerStore(root)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="heads")
        self._stamp: Stamp | None = None
        self._signed: SignedHead | None = None
        self._ledger: Log | None = None
        self._key: SigningKey | None = None
        self._header = b""

    async def headers(self, sent: Headers) -> Headers:
        """Return the headers with the ledger's current head, and the proof that it continues the caller's head.

        There are none if the ledger cannot be read or nothing can be signed, which is logged.
        """
        size = next((value for name, value in sent if name == SIZE_HEADER.lower().encode()), b"")
        known = int(size) if size.isdigit() and len(size) <= _DIGITS else 0
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._headers, known)
        except (SplitWiperError, OSError, sqlite3.Error) as problem:
            _log.error("the ledger's head cannot be signed: %s: %s", type(problem).__name__, problem)
            return []

    def _headers(self, known: int) -> Headers:
        stamp = self._stamp_now()
        # signing and reading the ledger take milliseconds, and every answer carries a head
        if stamp != self._stamp or self._signed is None or self._ledger is None:
            if self._key is None or self._stamp is None or stamp[2:] != self._stamp[2:]:
                self._key = Keyring.of(self._store).key()  # creates the key if nothing has been signed yet
                stamp = self._stamp_now()
            self._ledger = Log.begin(self._store)
            head, model = self._ledger.head(), self._ledger.model()
            self._signed = SignedHead.sign(self._store.federation, head, now(), self._key, model=model)
            self._header = self._signed.to_header().encode("ascii")
            self._stamp = stamp
        headers = [(HEAD_HEADER.lower().encode(), self._header)]
        if 0 < known <= self._signed.head.size:
            proof = self._ledger.consistency(known, self._signed.head.size)
            headers.append((PROOF_HEADER.lower().encode(), proof_to_header(proof).encode("ascii")))
        return headers

    def _stamp_now(self) -> Stamp:
        """Return a stamp of the ledger and the key, without reading either."""
        row = self._store.database.one("SELECT seq, hash FROM ledger ORDER BY seq DESC LIMIT 1")
        ledger = (int(row["seq"]), str(row["hash"])) if row else (0, "")
        try:
            key = (self._store.root / "signing" / "private.pem").stat()
        except FileNotFoundError:
            return (*ledger, 0, 0)
        return (*ledger, key.st_ino, key.st_mtime_ns)

    def close(self) -> None:
        """Finish pending work and close."""
        self._thread.shutdown(wait=True)
        self._store.database.close()
