"""How ``splitwiper certs`` tells of certificates and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from splitwiper.cli import output

if TYPE_CHECKING:
    from splitwiper.service.identity import Authority, Issued, Token

STYLES = {"valid": "green", "ending": "yellow", "expired": "bold yellow", "revoked": "bold red", "retired": "red"}


def issued_of(made: Authority, one: Issued) -> dict[str, Any]:
    """A certificate for machines."""
    from splitwiper.service.identity.records import utc_now

    return {
        "kind": one.kind,
        "name": one.name,
        "serial": one.serial,
        "authority": one.authority,
        "state": one.state(utc_now()),
        "not_before": _iso(one.not_before),
        "not_after": _iso(one.not_after),
        "ends": _iso(one.ends),
        "revoked": _iso(one.revoked),
        "hosts": list(one.hosts),
        "folder": made.folder_of(one),
    }


def token_of(one: Token) -> dict[str, Any]:
    """What is known of a token, for machines."""
    from splitwiper.service.identity.records import utc_now

    return {
        "id": one.id,
        "kind": one.kind,
        "name": one.name,
        "state": one.state(utc_now()),
        "created": _iso(one.created),
        "expires": _iso(one.expires),
        "revoked": _iso(one.revoked),
    }


def print_all(made: Authority, issued: Sequence[Issued], tokens: Sequence[Token] = ()) -> None:
    """Tables of certificates and of tokens, where there are any."""
    from splitwiper.service.identity.records import utc_now

    out, now = output.output(), utc_now()
    if issued:
        rows = [
            (
                "CA" if one.kind == "authority" else one.kind,
                one.name if one.kind != "server" else ", ".join(one.hosts),
                _state(one.state(now)),
                f"{one.ends or one.not_after:%Y-%m-%d}",
                one.serial[:16],
            )
            for one in issued
        ]
        out.print(output.table(("kind", "name or hosts", "state", "until", "serial"), rows))
    if issued and tokens:
        out.print()
    if tokens:
        rows = [
            (one.kind, one.name, _state(one.state(now)), f"{one.expires:%Y-%m-%d}" if one.expires else "–", one.id)
            for one in tokens
        ]
        out.print(output.table(("token of", "name", "state", "until", "id"), rows))


def tell_issued(made: Authority, one: Issued, *, as_json: bool) -> None:
    """A new certificate, and where it goes."""
    if as_json:
        output.emit(issued_of(made, one))
        return
    out, place = output.output(), made.folder_of(one)
    print_all(made, [one])
    out.print()
    if one.kind == "authority":
        output.line(out, f"Hand out {made.folder / 'server' / 'ca.pem'} to the server and all clients.")
        output.line(out, f"{made.folder / 'server' / 'revoked.pem'} goes to the server, too.")
    elif one.kind == "server":
        output.line(out, f"{place} goes to the server.")
    else:
        output.line(out, f"{place} goes to the {one.kind}, by a way that nobody else can read. Delete it here then.")


def _state(state: str) -> Text:
    return Text(state, STYLES.get(state, ""))


def _iso(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()
