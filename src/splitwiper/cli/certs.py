"""``splitwiper certs``: who may speak to a server, by certificates and tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.certs_change import Hosts, Place, revoke, rotate
from splitwiper.cli.certs_show import issued_of, print_all, tell_issued, token_of
from splitwiper.cli.certs_signing import signing
from splitwiper.cli.exit_codes import guarded
from splitwiper.cli.unlearn import Json
from splitwiper.errors import InputError

certs = typer.Typer(
    name="certs",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Certificates and tokens: who may speak to a server.",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The identity's name.", show_default=False)]
Days = Annotated[int, typer.Option("--days", metavar="N", help="How long the certificate holds.")]


def init(
    folder: Place,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What certificates call the organisation.")],
    hosts: Hosts = None,
    days: Annotated[int, typer.Option("--days", metavar="N", help="How long the CA's certificate holds.")] = 3650,
    server_days: Annotated[int, typer.Option("--server-days", metavar="N", help="How long the server's does.")] = 365,
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

    made = Authority.create(folder, name, hosts or (), days=days, server_days=server_days)
    listed = made.listed()
    if as_json:
        output.emit({"folder": folder, "name": made.name, "certificates": [issued_of(made, one) for one in listed]})
        return
    out = output.output()
    print_all(made, listed)
    out.print()
    output.line(
        out, f"{folder / 'authority'} has the CA's key: keep it here, and a backup where nobody else can read it."
    )
    if hosts:
        output.line(out, f"{folder / 'server'} goes to the server.")
    else:
        output.line(out, f"'splitwiper certs server {folder} --host HOST' makes the server's certificate.")
    output.line(out, f"'splitwiper certs client {folder} NAME' makes a client's.")


def client(folder: Place, name: Name, days: Days = 365, as_json: Json = False) -> None:
    """Make a client's key and certificate.

    FOLDER/clients/NAME goes to the client, by a way that nobody else can read;
    delete it here then.

    Example:
      splitwiper certs client certs north
      splitwiper certs client certs north --days 90
    """
    from splitwiper.service.identity import Authority

    made = Authority(folder)
    tell_issued(made, made.issue_client(name, days=days), as_json=as_json)


def operator(folder: Place, name: Name, days: Days = 365, as_json: Json = False) -> None:
    """Make an operator's key and certificate, for actions that clients may not do.

    FOLDER/operators/NAME goes to the operator.

    Example:
      splitwiper certs operator certs anna
    """
    from splitwiper.service.identity import Authority

    made = Authority(folder)
    tell_issued(made, made.issue_operator(name, days=days), as_json=as_json)


def auditor(folder: Place, name: Name, days: Days = 365, as_json: Json = False) -> None:
    """Make an auditor's key and certificate, to recompute the server half.

    FOLDER/auditors/NAME goes to the auditor, who can download every client's
    activations with it: give it to whoever all clients trust with them.

    Example:
      splitwiper certs auditor certs tuv
    """
    from splitwiper.service.identity import Authority

    made = Authority(folder)
    tell_issued(made, made.issue_auditor(name, days=days), as_json=as_json)


def server(folder: Place, hosts: Hosts = None, days: Days = 365, as_json: Json = False) -> None:
    """Make the server's key and certificate, where 'init' did not.

    FOLDER/server goes to the server. For other hosts later, use 'certs rotate'.

    Example:
      splitwiper certs server certs --host splitwiper.example.org
    """
    from splitwiper.service.identity import Authority

    if not hosts:
        raise InputError("give the names and addresses by which clients reach the server: --host HOST.")
    made = Authority(folder)
    tell_issued(made, made.issue_server(hosts, days=days), as_json=as_json)


def token(
    folder: Place,
    name: Name,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="client, operator or auditor.")] = "client",
    days: Annotated[
        int | None, typer.Option("--days", metavar="N", help="How long it is good; for ever unless given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a bearer token, for use behind a proxy that ends TLS.

    It is shown once: the server keeps a hash of it alone. 'certs revoke' with
    its id or the name ends it.

    Example:
      splitwiper certs token certs north --days 90
    """
    from splitwiper.service.identity import Authority, Principal, Tokens
    from splitwiper.service.identity.names import SERVER, check_kind
    from splitwiper.service.identity.records import check_days, utc_now

    Authority(folder)  # says so where the folder is not one
    tokens = Tokens(folder / SERVER)
    expires = None if days is None else utc_now() + check_days(days)
    text = tokens.add(Principal(check_kind(kind), name), expires)
    (new,) = (one for one in tokens.listed() if one.id == text.split("_")[1])
    if as_json:
        output.emit({"folder": folder, "token": text} | token_of(new))
        return
    typer.echo(text)
    until = "for ever" if expires is None else f"until {expires:%Y-%m-%d}"
    output.line(
        output.errors(), f"Good {until}, and not shown again. 'splitwiper certs revoke {folder} {new.id}' ends it."
    )


def list_(folder: Place, as_json: Json = False) -> None:
    """List all certificates and tokens, and which of them hold.

    It needs no passphrase and changes nothing.

    Example:
      splitwiper certs list certs
      splitwiper certs list certs --json
    """
    from splitwiper.service.identity import Authority, Tokens
    from splitwiper.service.identity.names import SERVER

    made = Authority(folder)
    listed, tokens = made.listed(), Tokens(folder / SERVER).listed()
    if as_json:
        rows = [issued_of(made, one) for one in listed]
        output.emit(
            {"folder": folder, "name": made.name, "certificates": rows, "tokens": [token_of(one) for one in tokens]}
        )
    else:
        print_all(made, listed, tokens)


certs.command("init", no_args_is_help=True)(guarded(init))
for _command in (client, operator, auditor, server, revoke, rotate, signing, token):
    certs.command(no_args_is_help=True)(guarded(_command))
certs.command("list", no_args_is_help=True)(guarded(list_))
