"""``splitwiper certs signing``: the keys that certificates of unlearning are signed with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splitwiper.cli import show
from splitwiper.cli.unlearn import Json
from splitwiper.errors import NotFoundError


def signing(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="The server's store, or a run's folder server.", show_default=False)
    ],
    rotate: Annotated[bool, typer.Option("--rotate", help="Sign with a fresh key from now on.")] = False,
    as_json: Json = False,
) -> None:
    """Show the keys that certificates of unlearning are signed with, or take a fresh one.

    The old key signs the new one before it is erased: clients that know the old one
    follow by themselves. Outsiders check old certificates with the old public key,
    which stays listed.

    Example:
      splitwiper certs signing store
      splitwiper certs signing store --rotate
    """
    from splitwiper.service.certificate import Keyring

    if not (store / "server.db").exists():
        raise NotFoundError(f"there is no server's store in {store}. Check the path.")
    ring = Keyring(store / "signing")
    current = (ring.rotate() if rotate else ring.key()).public
    keys = [{"key": key.id, "file": ring.path_of(key), "signs": key == current} for key in ring.public()]
    if as_json:
        show.emit({"store": store, "keys": keys})
        return
    rows = [(str(one["key"])[:16], "signs" if one["signs"] else "signed", str(one["file"])) for one in keys]
    show.output().print(show.table(("key", "", "public half, for outsiders"), rows))
