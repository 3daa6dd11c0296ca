"""The server's ring of signing keys: the present private key, and the public halves of all keys ever used.

The ring is a folder: ``private.pem`` (PKCS 8, readable only by its owner), ``public/ID.pem`` for third parties, and
statements by keys about each other: ``succession/ID.json`` and ``revoked/ID.json``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from splitwiper.errors import StoreError
from splitwiper.service.certificate.canonical import dumps, loads
from splitwiper.service.certificate.envelope import Envelope, PublicKey, SigningKey
from splitwiper.service.certificate.log import Log
from splitwiper.service.certificate.standing import Keys, Revocation, succeed
from splitwiper.store import ServerStore, files, ledger
from splitwiper.store.tickets import now

ENTRY = "key-revoked"
"""The kind of the ledger entry for a revocation."""


class Keyring:
    """A server's signing keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._private = folder / "private.pem"

    @classmethod
    def of(cls, store: ServerStore) -> Keyring:
        """Return the ring in a server's folder."""
        return cls(store.root / "signing")

    def key(self) -> SigningKey:
        """Return the signing key; it is created on first use.

        Raises:
            StoreError: the file is missing although there was a key, or others can read it.
        """
        if not self._private.exists():
            if self._listed():
                raise StoreError(
                    f"{self._private} is gone, though keys are listed next to it: restore it from a backup, or rotate "
                    "the ring and give verifiers the new public key."
                )
            files.make_folder(self.folder)
            files.write_bytes(self._private, SigningKey.generate().pem(), replace=False)
        if self._private.stat().st_mode & 0o077:
            raise StoreError(f"{self._private} can be read by others: chmod 600 it, and rotate if somebody has.")
        key = SigningKey.from_pem(self._private.read_bytes())
        # listed before it signs anything: third parties must find the key of every signature
        _keep(self.path_of(key.public), key.public.pem())
        return key

    def rotate(self) -> SigningKey:
        """Replace the signing key; the old private key is erased, and its public half stays listed.

        The old key first signs the new one, so that clients that know the old key follow automatically.
        """
        old, new = self.key() if self._private.exists() else None, SigningKey.generate()
        files.make_folder(self.folder)
        if old is not None:
            _keep(self.folder / "succession" / f"{new.public.id}.json", dumps(succeed(old, new.public)))
        # the succession is on disk before the old key is gone: otherwise clients could never follow
        files.write_bytes(self._private, new.pem())
        return self.key()

    def revoke(self, store: ServerStore, key: PublicKey, *, reason: str, size: int | None = None) -> Revocation:
        """Revoke a key: its signatures no longer count for ledgers of more than ``size`` entries.

        The present key is rotated first if it is the one to revoke. The then present key signs the revocation, and the
        ledger gets an entry. If the process is killed in between, repeating the call completes it.

        ``key`` is one of `public`. The size is the ledger's present one by default; smaller if the key was stolen
        earlier. Everybody can read the reason.
        """
        # a revoked key must not sign its own revocation, nor anything after it
        if self._private.exists() and self.key().public == key:
            self.rotate()
        present, log = self.key(), Log.begin(store)
        revoked, by = key.raw.hex(), present.public.raw.hex()
        revocation = Revocation(store.federation, revoked, by, log.head(size).size, now(), reason)
        signed, path = revocation.envelope(present), self.folder / "revoked" / f"{key.id}.json"
        Revocation.unpack(signed)  # refuses a reason that nobody would accept, before anything is written
        # not replaced: the file may be from a call that was killed before it wrote the entry, and then it counts
        _keep(path, dumps(signed.to_dict()))
        envelope = Envelope.from_bytes(path.read_bytes())
        revocation = Revocation.unpack(envelope)
        with store.database.change() as db:
            for entry in ledger.entries(store.database):
                if entry.get("kind") == ENTRY and entry.get("key") == key.id:
                    return revocation
            entry = {"kind": ENTRY, "key": key.id, "size": revocation.size, "time": revocation.time}
            statement = hashlib.sha256(envelope.payload).hexdigest()
            ledger.append(db, {**entry, "reason": revocation.reason, "statement": statement})
        return revocation

    def statements(self) -> list[dict[str, Any]]:
        """Return statements by keys about each other: on their successors, and on revoked keys."""
        paths = [*sorted(self.folder.glob("succession/*.json")), *sorted(self.folder.glob("revoked/*.json"))]
        return [loads(path.read_bytes(), "statement about keys") for path in paths]

    def keys(self) -> Keys:
        """Return the public halves of all keys that ever signed, with revocations."""
        return Keys.of(self.public(), self.statements())

    def public(self) -> tuple[PublicKey, ...]:
        """Return the public halves of all keys that ever signed, by id. The private key need not be readable."""
        return tuple(PublicKey.from_pem(path.read_bytes()) for path in self._listed())

    def path_of(self, key: PublicKey) -> Path:
        """Return the path of a key's public file."""
        return self.folder / "public" / f"{key.id}.pem"

    def _listed(self) -> list[Path]:
        return sorted((self.folder / "public").glob("*.pem"))


def _keep(path: Path, data: bytes) -> None:
    """Write a file, and its folder, unless it exists."""
    if not path.exists():
        files.make_folder(path.parent)
        files.write_bytes(path, data, replace=False)
