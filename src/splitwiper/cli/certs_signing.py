"""``splitwiper certs signing``: the keys that certificates and the ledger's heads are signed with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.unlearn import Json
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from splitwiper.service.certificate import Keyring, PublicKey

_LONGEST = 200
"""Characters of a reason."""
_SHORTEST = 8
"""Characters of a key's id that are taken for it."""


def signing(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="The server's store, or a run's folder server.", show_default=False)
    ],
    rotate: Annotated[bool, typer.Option("--rotate", help="Sign with a fresh key from now on.")] = False,
    revoke: Annotated[
        str, typer.Option("--revoke", metavar="KEYID", help="A key that was stolen; its first characters will do.")
    ] = "",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why it is revoked; everybody reads it.")
    ] = "",
    since: Annotated[
        int | None,
        typer.Option("--from", metavar="SIZE", min=0, help="Entries of the ledger before the theft; all if not given."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the keys that certificates and the ledger's heads are signed with, or take a fresh one.

    The old key signs the new one before it is erased: clients that know the old one
    follow by themselves. Outsiders check old certificates with the old public key,
    which stays listed. Rotating does not revoke.

    --revoke says that a key's signatures no longer count for ledgers of more than
    --from entries. If it is the present key, a fresh one takes its place. The
    present key signs that, and it becomes an entry of the ledger. Sites follow by
    themselves; certificates that are handed out again get a signature by the
    present key. Give outsiders the file that is named, with the public keys.

    Example:
      splitwiper certs signing store
      splitwiper certs signing store --rotate
      splitwiper certs signing store --revoke 5f0c2a91 --reason stolen --from 214
    """
    from splitwiper.service.certificate import Keyring
    from splitwiper.store import ServerStore

    if not (store / "server.db").exists():
        raise NotFoundError(f"there is no server's store in {store}. Check the path.")
    ring = Keyring(store / "signing")
    if revoke:
        if rotate or not reason.strip() or not reason.isprintable() or len(reason) > _LONGEST:
            raise InputError(f"--revoke takes --reason TEXT, of one line and {_LONGEST} characters, and no --rotate.")
        ring.revoke(ServerStore(store), _named(ring, revoke), reason=reason.strip(), size=since)
    elif reason or since is not None:
        raise InputError("--reason and --from go with --revoke.")
    current = (ring.rotate() if rotate else ring.key()).public
    keys = _keys(ring, current)
    if as_json:
        output.emit({"store": store, "keys": keys})
        return
    rows = [(str(one["key"])[:16], _state(one), str(one["file"])) for one in keys]
    output.output().print(output.table(("key", "", "public half, for outsiders"), rows))
    if revoke:
        revoked = store / "signing" / "revoked"
        output.line(output.output(), f"Give outsiders {revoked} too: it says what no longer counts.")


def _keys(ring: Keyring, current: PublicKey) -> list[dict[str, Any]]:
    """Return all keys that ever signed, with their files and what they are used for."""
    revoked = ring.keys().revoked
    keys = []
    for key in ring.public():
        file, signs = ring.path_of(key), key == current
        keys.append({"key": key.id, "file": file, "signs": signs, "revoked": revoked.get(key.id)})
    return keys


def _state(key: dict[str, Any]) -> str:
    if key["revoked"] is not None:
        return f"revoked from {key['revoked'].size} entries on"
    return "signs" if key["signs"] else "signed"


def _named(ring: Keyring, start: str) -> PublicKey:
    """The one key whose id begins so."""
    found = [key for key in ring.public() if key.id.startswith(start.lower())]
    if len(found) != 1 or len(start) < _SHORTEST:
        raise NotFoundError(
            f"{len(found)} keys of {ring.folder} begin with {start!r}: give at least {_SHORTEST} characters of one."
        )
    return found[0]
