"""A site's own key, which signs its registration, shards and requests to forget: made there, and never sent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from splitwiper.service.certificate import PublicKey, SignedHead, SignedRequest, SigningKey
from splitwiper.service.certificate.heads import countersign
from splitwiper.service.certificate.signed import Registration, ShardStatement
from splitwiper.store import files
from splitwiper.store.keys import check_private
from splitwiper.store.tickets import now
from splitwiper.wire import Request, Statement
from splitwiper.wire.commitments import shard_commitment

FILE, PUBLIC = "request-key.pem", "request-key.pub.pem"
SERIAL = "shard-serial"
"""File with the last shard statement's serial number: the site's database is locked while a number is drawn."""


_REMEDY = "if somebody may have read it, ask the operator to drop this site's key, remove the file, and join again"


class OwnKey:
    """The key in a site's folder.

    Args:
        folder: the client's folder in the site.
        federation: the id of the store that it signs for.
        keep: stores a signed request under its ticket, unless one is stored already, and returns the stored one.
    """

    def __init__(self, folder: Path, federation: str, keep: Callable[[str, str], str] | None = None) -> None:
        self._path, self._federation, self._keep = folder / FILE, federation, keep

    def key(self) -> SigningKey:
        """Return the key. It is created on first use, and its public half stored next to it for others.

        Raises:
            IdentityError: others may read it.
        """
        if not self._path.exists():
            # if another process writes a key at the same time, one of them stays, and both use that one
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

    def next_serial(self, last: int) -> int:
        """Return a serial number for a statement about a shard: larger than the server's last and all drawn before.

        A server restored from a backup counts from an older number. If the site followed it, statements signed before
        the restoration would have larger numbers than those signed after it, and could be replayed.
        """
        # written before it is used, so that no number is used twice even if this process dies in between
        path = self._path.with_name(SERIAL)
        number = max(last, int(path.read_text(encoding="ascii")) if path.exists() else 0) + 1
        files.write_bytes(path, str(number).encode())
        return number

    def sign_shard(self, client: str, digest: str, statement: Statement, *, serial: int) -> dict[str, Any]:
        """Return a signed statement about a shard; with an empty digest, that the shard is withdrawn."""
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
        """Return a signed request. If it was signed and stored before, return that one, byte for byte."""
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
        """Return a head that the server signed, with this site's countersignature."""
        return countersign(head, site, self.key(), now())
