"""The server's ring of signing keys: one to sign with, and the public halves of all it ever signed with.

The ring is a folder: ``private.pem`` (PKCS 8, readable by its owner alone), ``public/ID.pem``, which outsiders get, and
what keys said of each other: ``succession/ID.json`` and ``revoked/ID.json``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from splitwiper.errors import StoreError
from splitwiper.service.certificate.canonical import dumps, loads
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.keys import PublicKey, SigningKey
from splitwiper.service.certificate.log import Log
from splitwiper.service.certificate.standing import Keys, Revocation
from splitwiper.service.certificate.succession import succeed
from splitwiper.store import ServerTree, files, ledger
from splitwiper.store.tickets import now

ENTRY = "key-revoked"
"""The kind of the ledger's entry for a revocation."""


class Keyring:
    """A server's signing keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._private = folder / "private.pem"

    @classmethod
    def of(cls, tree: ServerTree) -> Keyring:
        """The ring in a server's folder."""
        return cls(tree.root / "signing")

    def key(self) -> SigningKey:
        """The key to sign with; made when it is first asked for.

        Raises:
            StoreError: it is gone although it was there once, or others can read it.
        """
        if not self._private.exists():
            if self._listed():
                raise StoreError(
                    f"{self._private} is gone, though keys are listed beside it: restore it from a backup, or rotate "
                    "the ring and give verifiers the new public key."
                )
            files.make_folder(self.folder)
            files.write_bytes(self._private, SigningKey.generate().pem(), replace=False)
        if self._private.stat().st_mode & 0o077:
            raise StoreError(f"{self._private} can be read by others: chmod 600 it, and rotate if somebody has.")
        key = SigningKey.from_pem(self._private.read_bytes())
        self._list(key.public)  # before it signs anything
        return key

    def rotate(self) -> SigningKey:
        """Sign with a fresh key from now on; the old private key is erased, its public half stays listed.

        Before it goes, the old key signs the new one: clients that know the old one follow by themselves.
        """
        old, new = self.key() if self._private.exists() else None, SigningKey.generate()
        files.make_folder(self.folder)
        if old is not None:
            folder = self.folder / "succession"
            files.make_folder(folder)
            files.write_bytes(folder / f"{new.public.id}.json", dumps(succeed(old, new.public)), replace=False)
        files.write_bytes(self._private, new.pem())
        return self.key()

    def revoke(self, tree: ServerTree, key: PublicKey, *, reason: str, size: int | None = None) -> Revocation:
        """Revoke a key: its signatures count no longer for ledgers of more than ``size`` entries.

        Where it is the present key, a fresh one takes its place first. The present key signs the revocation, and the
        ledger gets an entry. Killed in between, the same call finishes what was begun.

        Args:
            tree: the server's tree, whose ring this is.
            key: what to revoke; one of `public`.
            reason: why, for everybody to read.
            size: the ledger's size now, if not given. Give a smaller one where the key was stolen earlier.
        """
        if self._private.exists() and self.key().public == key:
            self.rotate()
        present, log = self.key(), Log.begin(tree)
        path = self.folder / "revoked" / f"{key.id}.json"
        files.make_folder(path.parent)
        if not path.exists():
            said = Revocation(
                federation=tree.book.meta("run") or "",
                revoked=key.raw.hex(),
                by=present.public.raw.hex(),
                size=log.head(size).size,
                time=now(),
                reason=reason,
            )
            files.write_bytes(path, dumps(said.sign(present)), replace=False)
        made = Envelope.from_bytes(path.read_bytes())
        said = Revocation(**loads(made.payload, "revocation of a key"))
        with tree.book.change() as db:
            if not any(e.get("kind") == ENTRY and e.get("key") == key.id for e in ledger.entries(tree.book)):
                told = {"kind": ENTRY, "key": key.id, "size": said.size, "time": said.time, "reason": said.reason}
                ledger.append(db, {**told, "statement": hashlib.sha256(made.payload).hexdigest()})
        return said

    def statements(self) -> list[dict[str, Any]]:
        """What keys said of each other: each of the one after it, and of those that were revoked."""
        listed = [path for name in ("succession", "revoked") for path in sorted((self.folder / name).glob("*.json"))]
        return [loads(path.read_bytes(), "statement about keys") for path in listed]

    def keys(self) -> Keys:
        """The public halves of all keys that ever signed, and which of them were revoked."""
        return Keys.of(self.public(), self.statements())

    def public(self) -> tuple[PublicKey, ...]:
        """The public halves of all keys that ever signed, by id. Reading them takes no right to the private one."""
        return tuple(PublicKey.from_pem(path.read_bytes()) for path in self._listed())

    def path_of(self, key: PublicKey) -> Path:
        """The file that outsiders get."""
        return self.folder / "public" / f"{key.id}.pem"

    def _listed(self) -> list[Path]:
        return sorted((self.folder / "public").glob("*.pem"))

    def _list(self, key: PublicKey) -> None:
        if not (path := self.path_of(key)).exists():
            files.make_folder(path.parent)
            files.write_bytes(path, key.pem(), replace=False)
