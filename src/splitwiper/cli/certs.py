"""``splitwiper certs``: certificates and tokens that let people and sites call a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from splitwiper.cli import output
from splitwiper.cli.certs_show import show, show_issued, token_values
from splitwiper.cli.certs_signing import signing
from splitwiper.cli.exit_codes import guarded
from splitwiper.cli.options import Json
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from splitwiper.service.identity.names import Kind

KINDS = ("client", "operator", "auditor", "server")
certs = typer.Typer(
    name="certs", no_args_is_help=True, rich_markup_mode="rich", help="Certificates and tokens: who may call a server."
)
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
    typer.Option("--kind", metavar="KIND", help="client, operator, auditor or server, where several have the name."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The identity's name.", show_default=False)]
Days = Annotated[int, typer.Option("--days", metavar="N", help="Days for which the certificate is valid.")]


def init(
    folder: Place,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The organisation's name in the certificates.")],
    hosts: Hosts = None,
    days: Annotated[
        int, typer.Option("--days", metavar="N", help="Days for which the CA's certificate is valid.")
    ] = 3650,
    server_days: Annotated[
        int, typer.Option("--server-days", metavar="N", help="Days for which the server's is valid.")
    ] = 365,
    as_json: Json = False,
) -> None:
    """Make a certificate authority, and the server's certificate.

    FOLDER/authority has the CA's key and stays where it is; FOLDER/server goes to
    the server. The key is encrypted if SPLITWIPER_CA_PASSPHRASE is set.

    Example:
      splitwiper certs init certs --name ward --host splitwiper.example.org
      splitwiper certs init certs --name ward --host localhost --host 10.0.0.5
    """
    from splitwiper.service.identity import Authority

    authority = Authority.create(folder, name, hosts or (), days=days, server_days=server_days)
    notes = [f"{folder / 'authority'} has the CA's key: keep it here, and a backup where nobody else can read it."]
    if hosts:
        notes.append(f"{folder / 'server'} goes to the server.")
    else:
        notes.append(f"'splitwiper certs server {folder} --host HOST' makes the server's certificate.")
    notes.append(f"'splitwiper certs client {folder} NAME' makes a client's.")
    show(authority, authority.listed(), as_json=as_json, notes=notes, name=authority.name)


def client(folder: Place, name: Name, days: Days = 365, as_json: Json = False) -> None:
    """Make a client's key and certificate.

    Send FOLDER/clients/NAME to the client over a private channel, then delete it
    here.

    Example:
      splitwiper certs client certs north
      splitwiper certs client certs north --days 90
    """
    from splitwiper.service.identity import Authority

    authority = Authority(folder)
    show_issued(authority, authority.issue_client(name, days=days), as_json=as_json)


def operator(folder: Place, name: Name, days: Days = 365, as_json: Json = False) -> None:
    """Make an operator's key and certificate, for actions that clients may not do.

    FOLDER/operators/NAME goes to the operator.

    Example:
      splitwiper certs operator certs anna
    """
    from splitwiper.service.identity import Authority

    authority = Authority(folder)
    show_issued(authority, authority.issue_operator(name, days=days), as_json=as_json)


def auditor(folder: Place, name: Name, days: Days = 365, as_json: Json = False) -> None:
    """Make an auditor's key and certificate, to recompute the server half.

    FOLDER/auditors/NAME goes to the auditor, who can download every client's
    activations with it: give it only to somebody whom all clients trust with them.

    Example:
      splitwiper certs auditor certs tuv
    """
    from splitwiper.service.identity import Authority

    authority = Authority(folder)
    show_issued(authority, authority.issue_auditor(name, days=days), as_json=as_json)


def server(folder: Place, hosts: Hosts = None, days: Days = 365, as_json: Json = False) -> None:
    """Make the server's key and certificate, if 'init' did not make them.

    FOLDER/server goes to the server. For other hosts later, use 'certs rotate'.

    Example:
      splitwiper certs server certs --host splitwiper.example.org
    """
    from splitwiper.service.identity import Authority

    if not hosts:
        raise InputError("give the names and addresses by which clients reach the server: --host HOST.")
    authority = Authority(folder)
    show_issued(authority, authority.issue_server(hosts, days=days), as_json=as_json)


def token(
    folder: Place,
    name: Name,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="client, operator or auditor.")] = "client",
    days: Annotated[
        int | None, typer.Option("--days", metavar="N", help="Days until it expires; never if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a bearer token, for use behind a proxy that terminates TLS.

    It is shown once: the server keeps only a hash of it. 'certs revoke' with its id or
    the name revokes it.

    Example:
      splitwiper certs token certs north --days 90
    """
    from splitwiper.service.identity import Authority, Principal, Tokens
    from splitwiper.service.identity.index import check_days, utc_now
    from splitwiper.service.identity.names import SERVER, check_kind

    Authority(folder)  # says so where the folder is not one
    tokens = Tokens(folder / SERVER)
    expires = None if days is None else utc_now() + check_days(days)
    text = tokens.add(Principal(check_kind(kind), name), expires)
    token_id = text.split("_")[1]
    (new,) = (listed for listed in tokens.listed() if listed.id == token_id)
    if as_json:
        output.emit({"folder": folder, "token": text} | token_values(new))
        return
    typer.echo(text)  # alone on standard output, so that it can be piped
    until = "until it is revoked" if expires is None else f"until {expires:%Y-%m-%d}"
    output.note(f"Valid {until}, and not shown again. 'splitwiper certs revoke {folder} {token_id}' revokes it.")


def list_(folder: Place, as_json: Json = False) -> None:
    """List all certificates and tokens, and which of them are valid.

    It needs no passphrase and changes nothing.

    Example:
      splitwiper certs list certs
      splitwiper certs list certs --json
    """
    from splitwiper.service.identity import Authority, Tokens
    from splitwiper.service.identity.names import SERVER

    authority = Authority(folder)
    tokens = Tokens(folder / SERVER).listed()
    show(authority, authority.listed(), tokens, as_json=as_json, name=authority.name)


def revoke(folder: Place, which: Which, kind: KindOf = None, as_json: Json = False) -> None:
    """Refuse an identity's certificates and tokens from now on.

    A serial number revokes only that certificate, a token's id that token. A
    running server notices as soon as the files in its folder change.

    Example:
      splitwiper certs revoke certs north
      splitwiper certs revoke certs anna --kind operator
    """
    from splitwiper.service.identity import Authority, Tokens
    from splitwiper.service.identity.names import SERVER

    authority, tokens = Authority(folder), Tokens(folder / SERVER)
    owner = _kind(kind)
    revoked, missing = [], None
    try:
        revoked = authority.revoke(which, kind=owner)
        owner = revoked[0].kind if revoked else owner
    except NotFoundError as problem:  # an error only if there is no token either
        missing = problem
    # a name may belong to a certificate and to tokens; if both were revoked, then of one kind of identity
    known = [token for token in tokens.listed() if which in (token.id, token.name) and owner in (None, token.kind)]
    ended = tokens.revoke(which, kind=known[0].kind if owner else None) if known else []
    if missing is not None and not ended:
        raise missing
    notes = []
    for changed, file in ((revoked, "revoked.pem"), (ended, "tokens.jsonl")):
        if changed:
            notes.append(f"Copy {folder / SERVER / file} to the server if its folder is elsewhere.")
    show(authority, revoked, ended, as_json=as_json, notes=notes)


def rotate(
    folder: Place,
    which: Which,
    kind: KindOf = None,
    hosts: Hosts = None,
    days: Days = 365,
    overlap: Annotated[
        int, typer.Option("--overlap", metavar="N", help="Days for which the old one is still accepted.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Replace an identity's certificate by a new one, with a new key.

    The old one is refused from now on, or after as many days as --overlap says.

    Example:
      splitwiper certs rotate certs north --overlap 7
      splitwiper certs rotate certs server --host new.example.org
    """
    from splitwiper.service.identity import Authority
    from splitwiper.service.identity.index import check_days

    authority, span = Authority(folder), check_days(overlap, least=0)
    new = authority.rotate(which, kind=_kind(kind), hosts=hosts or None, days=days, overlap=span)
    lists = f"{folder / 'server' / 'revoked.pem'} and superseded.pem next to it"
    note = f"Copy {lists} to the server if its folder is elsewhere."
    show_issued(authority, new, as_json=as_json, notes=[] if new.kind == "server" else [note])


def _kind(word: str | None) -> Kind | None:
    if word is None or word in KINDS:
        return cast("Kind | None", word)
    raise InputError(f"--kind {word!r}: use 'client', 'operator', 'auditor' or 'server'.")


certs.command("init", no_args_is_help=True)(guarded(init))
for _command in (client, operator, auditor, server, revoke, rotate, signing, token):
    certs.command(no_args_is_help=True)(guarded(_command))
certs.command("list", no_args_is_help=True)(guarded(list_))
