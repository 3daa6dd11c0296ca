"""``splitwiper certs signing``: the keys that certificates and the ledger's heads are signed with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.options import LONGEST_REASON, Json, is_reason
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from splitwiper.service.certificate import Keyring, PublicKey

_SHORTEST = 8  # characters of a key's id that are taken for it

KeyId = Annotated[
    str, typer.Option("--revoke", metavar="KEYID", help="A key that was stolen; its first characters will do.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason; everybody can read it.")]
Since = Annotated[
    int | None,
    typer.Option("--from", metavar="SIZE", min=0, help="Entries of the ledger before the theft; all if not given."),
]


def signing(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="The server's store, or a run's folder server.", show_default=False)
    ],
    rotate: Annotated[bool, typer.Option("--rotate", help="Sign with a fresh key from now on.")] = False,
    revoke: KeyId = "",
    reason: Reason = "",
    since: Since = None,
    as_json: Json = False,
) -> None:
    """Show the keys that certificates and the ledger's heads are signed with, or switch to a fresh one.

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
        if rotate or not is_reason(reason):
            raise InputError(
                f"--revoke takes --reason TEXT, of one line and {LONGEST_REASON} characters, and no --rotate."
            )
        ring.revoke(ServerStore(store), _key_named(ring, revoke), reason=reason.strip(), size=since)
    elif reason or since is not None:  # somebody meant to revoke a key, and would believe that it was done
        raise InputError("--reason and --from go with --revoke.")
    current = (ring.rotate() if rotate else ring.key()).public
    _show(store, ring, current, as_json=as_json)
    if revoke and not as_json:
        output.say(f"Give outsiders {store / 'signing' / 'revoked'} too: it says which signatures no longer count.")


def _show(store: Path, ring: Keyring, current: PublicKey, *, as_json: bool) -> None:
    """Show all keys that ever signed, with their files and what they are used for."""
    revocations, keys, rows = ring.keys().revoked, [], []
    for key in ring.public():
        file, revocation = ring.path_of(key), revocations.get(key.id)
        keys.append({"key": key.id, "file": file, "signs": key == current, "revoked": revocation})
        state = "signs" if key == current else "signed"
        if revocation is not None:
            state = f"revoked from {revocation.size} entries on"
        rows.append((key.id[:16], state, str(file)))
    if as_json:
        output.emit({"store": store, "keys": keys})
    else:
        output.show(("key", "", "public half, for outsiders"), rows)


def _key_named(ring: Keyring, start: str) -> PublicKey:
    """Return the one key whose id begins so."""
    matching = [key for key in ring.public() if key.id.startswith(start.lower())]
    if len(matching) != 1 or len(start) < _SHORTEST:
        raise NotFoundError(
            f"{len(matching)} keys of {ring.folder} begin with {start!r}: give at least {_SHORTEST} characters of one."
        )
    return matching[0]
