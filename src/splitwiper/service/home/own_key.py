"""A site's own key, which signs its registration, its shards and its requests to forget: made there, and never sent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from splitwiper.service.certificate import PublicKey, SignedHead, SignedRequest, SigningKey
from splitwiper.service.certificate.countersigning import countersign
from splitwiper.service.certificate.site import Registration, ShardStatement
from splitwiper.store import files
from splitwiper.store.keys import check_private
from splitwiper.store.tickets import now
from splitwiper.wire import Request, Statement
from splitwiper.wire.commitments import shard_commitment

FILE, PUBLIC = "request-key.pem", "request-key.pub.pem"
SERIAL = "shard-serial"
"""The number of the last statement about a shard; a file, because the site's book is held while it is drawn."""


_REMEDY = "if somebody may have read it, ask the operator to drop this site's key, remove the file, and join again"


class OwnKey:
    """The key in a site's folder.

    Args:
        folder: the site's.
        federation: the store that it signs for.
        keep: keeps a request (by its ticket) as it was first signed, and returns that.
    """

    def __init__(self, folder: Path, federation: str, keep: Callable[[str, str], str] | None = None) -> None:
        self._path, self._federation, self._keep = folder / FILE, federation, keep

    def key(self) -> SigningKey:
        """Return the key; made when it is first asked for, with its public half beside it to be given to others.

        Raises:
            IdentityError: others may read it.
        """
        if not self._path.exists():
            files.write_bytes(self._path, SigningKey.generate().pem(), replace=False)
        check_private(self._path, remedy=_REMEDY)
        key = SigningKey.from_pem(self._path.read_bytes())
        if not (public := self._path.with_name(PUBLIC)).exists() and os.access(self._path.parent, os.W_OK):
            files.write_bytes(public, key.public.pem())
        return key

    @property
    def public(self) -> PublicKey:
        """The key's public half."""
        return self.key().public

    def register(self, client: str) -> dict[str, Any]:
        """Return the site's registration, signed."""
        key = self.key()
        return Registration(self._federation, client, now(), key.public.raw.hex()).sign(key)

    def next_serial(self, told: int) -> int:
        """Return a number for a statement about a shard: larger than the server's last, and than all given before.

        A server that was restored from a backup counts from an older number. If the site followed it, what it signed
        before the restore would have larger numbers than what it signs after, and could be sent again.
        """
        path = self._path.with_name(SERIAL)
        number = max(told, int(path.read_text(encoding="ascii")) if path.exists() else 0) + 1
        files.write_bytes(path, str(number).encode())
        return number

    def sign_shard(self, client: str, digest: str, statement: Statement, *, serial: int) -> dict[str, Any]:
        """Return what is said of a shard, signed; with an empty digest, that it is withdrawn.

        Args:
            client: whose shard it is.
            digest: the shard's.
            statement: what goes with it.
            serial: larger than in every earlier one.
        """
        key = self.key()
        made = ShardStatement(
            federation=self._federation,
            client=client,
            serial=serial,
            digest=digest,
            commitment=shard_commitment(bytes.fromhex(statement.salt), digest) if digest else "",
            codebook=statement.codebook,
            outputs=statement.outputs,
            tickets=statement.tickets,
            made=now(),
            key=key.public.raw.hex(),
        )
        return made.sign(key)

    def sign_request(self, request: Request) -> dict[str, Any]:
        """Return a request, signed; one that is kept is returned as it was, byte for byte."""
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
        signed = made.sign(key)
        if self._keep is None:
            return signed
        kept: dict[str, Any] = json.loads(self._keep(request.ticket, json.dumps(signed)))
        return kept

    def countersign(self, head: SignedHead, site: str) -> dict[str, Any]:
        """A head that the server signed, together with this site's countersignature."""
        return countersign(head, site, self.key(), now())
