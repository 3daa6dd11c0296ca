"""A client's own key, which signs its requests to forget: made in its home, and never sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splitwiper.service.certificate import SignedHead, SignedRequest, SigningKey
from splitwiper.service.certificate.countersigning import countersign
from splitwiper.store import files
from splitwiper.store.tickets import now
from splitwiper.wire import Request

FILE = "request-key.pem"


class OwnKey:
    """The key in a client's folder.

    Args:
        folder: the client's.
        federation: the store that requests are for.
    """

    def __init__(self, folder: Path, federation: str) -> None:
        self._path, self._federation = folder / FILE, federation

    def key(self) -> SigningKey:
        """The key; made when it is first asked for."""
        if not self._path.exists():
            files.write_bytes(self._path, SigningKey.generate().pem(), replace=False)
        return SigningKey.from_pem(self._path.read_bytes())

    def sign(self, request: Request) -> dict[str, Any]:
        """A request, signed."""
        key = self.key()
        made = SignedRequest(
            federation=self._federation,
            client=request.client,
            ticket=request.ticket,
            level=request.level,
            commitment=request.commitment,
            made=now(),
            key=key.public.raw.hex(),
        )
        return made.sign(key)

    def countersign(self, head: SignedHead, site: str) -> dict[str, Any]:
        """A head that the server signed, together with this site's countersignature."""
        return countersign(head, site, self.key(), now())
