"""The server's ring of signing keys: one to sign with, and the public halves of all it ever signed with.

The ring is a folder: ``private.pem`` (PKCS 8, readable by its owner alone) and ``public/ID.pem``, which outsiders get.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splitwiper.errors import StoreError
from splitwiper.service.certificate.canonical import dumps, loads
from splitwiper.service.certificate.keys import PublicKey, SigningKey
from splitwiper.service.certificate.succession import succeed
from splitwiper.store import ServerTree, files


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

    def succession(self) -> list[dict[str, Any]]:
        """What each key said of the one after it."""
        listed = sorted((self.folder / "succession").glob("*.json"))
        return [loads(path.read_bytes(), "succession of keys") for path in listed]

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
