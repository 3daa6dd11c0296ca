"""How ``splitwiper certs`` shows certificates and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from splitwiper.cli import output

if TYPE_CHECKING:
    from splitwiper.service.identity import Authority, Issued, Token

STYLES = {"valid": "green", "ending": "yellow", "expired": "bold yellow", "revoked": "bold red"}


def issued_of(made: Authority, one: Issued) -> dict[str, Any]:
    """Return a certificate for machines."""
    from splitwiper.service.identity.index import utc_now

    return {
        "kind": one.kind,
        "name": one.name,
        "serial": one.serial,
        "authority": one.authority,
        "state": one.state(utc_now()),
        "not_before": one.not_before.isoformat(),
        "not_after": one.not_after.isoformat(),
        "ends": one.ends.isoformat() if one.ends else None,
        "revoked": one.revoked.isoformat() if one.revoked else None,
        "hosts": list(one.hosts),
        "folder": made.folder_of(one),
    }


def token_of(one: Token) -> dict[str, Any]:
    """Return what is known of a token, for machines."""
    from splitwiper.service.identity.index import utc_now

    return {
        "id": one.id,
        "kind": one.kind,
        "name": one.name,
        "state": one.state(utc_now()),
        "created": one.created.isoformat(),
        "expires": one.expires.isoformat() if one.expires else None,
        "revoked": one.revoked.isoformat() if one.revoked else None,
    }


def show(
    made: Authority,
    issued: Sequence[Issued],
    tokens: Sequence[Token] | None = None,
    *,
    as_json: bool,
    notes: Sequence[str] = (),
    **more: Any,
) -> None:
    """Print certificates and tokens.

    Args:
        made: the authority.
        issued: certificates.
        tokens: tokens; None for a command that has nothing to do with tokens.
        as_json: print JSON instead of tables and notes.
        notes: what to do with them, below the tables.
        more: further fields of the JSON.
    """
    if as_json:
        told: dict[str, Any] = {"folder": made.folder, **more}
        told["certificates"] = [issued_of(made, one) for one in issued]
        if tokens is not None:
            told["tokens"] = [token_of(one) for one in tokens]
        output.emit(told)
        return
    from splitwiper.service.identity.index import utc_now

    out, now = output.output(), utc_now()
    if issued:
        rows = []
        for one in issued:
            kind = "CA" if one.kind == "authority" else one.kind
            name = ", ".join(one.hosts) if one.kind == "server" else one.name
            rows.append((kind, name, _state(one.state(now)), f"{one.ends or one.not_after:%Y-%m-%d}", one.serial[:16]))
        out.print(output.table(("kind", "name or hosts", "state", "until", "serial"), rows))
    if issued and tokens:
        out.print()
    if tokens:
        rows = []
        for token in tokens:
            until = f"{token.expires:%Y-%m-%d}" if token.expires else "–"
            rows.append((token.kind, token.name, _state(token.state(now)), until, token.id))
        out.print(output.table(("token of", "name", "state", "until", "id"), rows))
    if notes and (issued or tokens):
        out.print()
    for note in notes:
        output.line(out, note)


def show_issued(made: Authority, one: Issued, *, as_json: bool, notes: Sequence[str] = ()) -> None:
    """Print a new certificate, and where it goes."""
    if as_json:
        output.emit(issued_of(made, one))
        return
    place = made.folder_of(one)
    if one.kind == "server":
        where = [f"{place} goes to the server."]
    else:
        where = [f"{place} goes to the {one.kind}. Send it over a private channel, then delete it here."]
    show(made, [one], as_json=False, notes=[*where, *notes])


def _state(state: str) -> Text:
    return Text(state, STYLES.get(state, ""))
