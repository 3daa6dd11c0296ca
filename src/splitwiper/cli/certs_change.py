"""``splitwiper certs revoke`` and ``rotate``: certificates that end, and those that take their place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from splitwiper.cli import output
from splitwiper.cli.certs_show import issued_of, print_all, tell_issued, token_of
from splitwiper.cli.unlearn import Json
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from datetime import timedelta

    from splitwiper.service.identity import Authority
    from splitwiper.service.identity.names import Kind

Place = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the CA.", show_default=False)]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST", help="A name or address that clients connect to. May be repeated."),
]
Which = Annotated[
    str, typer.Argument(metavar="NAME|SERIAL", help="A name, or a serial number (8 digits do).", show_default=False)
]
KindOf = Annotated[
    str | None,
    typer.Option("--kind", metavar="KIND", help="client, operator or server, where several have the name."),
]


def revoke(folder: Place, which: Which, kind: KindOf = None, as_json: Json = False) -> None:
    """Refuse an identity's certificates and tokens from now on.

    A serial number revokes that certificate alone, a token's id that token. A
    running server notices as soon as the files in its folder change.

    Example:
      splitwiper certs revoke certs north
      splitwiper certs revoke certs anna --kind operator
    """
    from splitwiper.service.identity import Authority, Tokens
    from splitwiper.service.identity.names import SERVER

    made, chosen = Authority(folder), _kind(kind)
    tokens = Tokens(folder / SERVER)
    gone, missing = [], None
    try:
        gone = made.revoke(which, kind=chosen)
    except NotFoundError as problem:
        missing = problem
    owner = gone[0].kind if gone else chosen
    known = [one for one in tokens.listed() if which in (one.id, one.name) and owner in (None, one.kind)]
    ended = tokens.revoke(which, kind=known[0].kind if owner else None) if known else []
    if missing is not None and not ended:
        raise missing
    if as_json:
        rows = [issued_of(made, one) for one in gone]
        output.emit({"folder": folder, "certificates": rows, "tokens": [token_of(one) for one in ended]})
        return
    out = output.output()
    print_all(made, gone, ended)
    out.print()
    if gone:
        output.line(out, f"Copy {folder / SERVER / 'revoked.pem'} to the server if its folder is elsewhere.")
    if ended:
        output.line(out, f"Copy {folder / SERVER / 'tokens.jsonl'} to the server if its folder is elsewhere.")


def rotate(
    folder: Place,
    which: Annotated[
        str | None,
        typer.Argument(metavar="NAME|SERIAL", help="Whose certificate; none with --ca.", show_default=False),
    ] = None,
    kind: KindOf = None,
    hosts: Hosts = None,
    days: Annotated[
        int | None, typer.Option("--days", metavar="N", help="How long the new one holds: 365, for the CA 3650.")
    ] = None,
    overlap: Annotated[
        int, typer.Option("--overlap", metavar="N", help="Days for which the old one is still accepted.")
    ] = 0,
    authority: Annotated[bool, typer.Option("--ca", help="Make a new CA; the old one stays trusted.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="With --ca: stop trusting the old CAs.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --finish: also where certificates of an old CA still hold.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Replace a certificate, or the CA, by a new one.

    To replace the CA: rotate --ca; hand out the new ca.pem to the server and all
    clients; rotate every client and the server; rotate --ca --finish.

    Example:
      splitwiper certs rotate certs north --overlap 7
      splitwiper certs rotate certs server --host new.example.org
      splitwiper certs rotate certs --ca
    """
    from splitwiper.service.identity import Authority

    _check(which, authority, finish=finish, force=force, more=bool(kind or hosts or overlap))
    made = Authority(folder)
    if finish:
        _finish(made, force=force, as_json=as_json)
    elif which is None:
        tell_issued(made, made.rotate_authority(days=_or(days, 3650)), as_json=as_json)
    else:
        span = _overlap(overlap)
        new = made.rotate(which, kind=_kind(kind), hosts=hosts or None, days=_or(days, 365), overlap=span)
        tell_issued(made, new, as_json=as_json)
        if not as_json and new.kind != "server":
            lists = f"{folder / 'server' / 'revoked.pem'} and superseded.pem beside it"
            output.line(output.output(), f"Copy {lists} to the server if its folder is elsewhere.")


def _check(which: str | None, authority: bool, *, finish: bool, force: bool, more: bool) -> None:
    """Refuse options that do not go together."""
    if authority == (which is not None):
        raise InputError("name the identity whose certificate is replaced, or give --ca for the CA, not both.")
    if (finish and not authority) or (force and not finish):
        raise InputError("--finish goes with --ca, and --force with --finish.")
    if authority and more:
        raise InputError("--kind, --host and --overlap are for certificates of identities, not for --ca.")


def _kind(word: str | None) -> Kind | None:
    if word in (None, "client", "operator", "server"):
        return cast("Kind | None", word)
    raise InputError(f"--kind {word!r}: use 'client', 'operator' or 'server'.")


def _overlap(days: int) -> timedelta:
    from splitwiper.service.identity.records import check_days

    return check_days(days, least=0)


def _or(days: int | None, usual: int) -> int:
    return usual if days is None else days


def _finish(made: Authority, *, force: bool, as_json: bool) -> None:
    old = made.retire_authorities(force=force)
    if as_json:
        output.emit({"folder": made.folder, "certificates": [issued_of(made, one) for one in old]})
    elif old:
        print_all(made, old)
        output.output().print()
        output.line(output.output(), f"Hand out {made.folder / 'server' / 'ca.pem'} to the server and all clients.")
    else:
        output.line(output.output(), "There is no old CA: nothing to do.")
