"""How ``splitwiper certs`` shows certificates and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from splitwiper.cli import output

if TYPE_CHECKING:
    from splitwiper.service.identity import Authority, Issued, Token

STYLES = {"valid": "green", "ending": "yellow", "expired": "bold yellow", "revoked": "bold red"}


def certificate_values(authority: Authority, issued: Issued) -> dict[str, Any]:
    """Return a certificate for programs."""
    from splitwiper.service.identity.index import utc_now

    return {
        "kind": issued.kind,
        "name": issued.name,
        "serial": issued.serial,
        "authority": issued.authority,
        "state": issued.state(utc_now()),
        "not_before": issued.not_before.isoformat(),
        "not_after": issued.not_after.isoformat(),
        "ends": _iso(issued.ends),
        "revoked": _iso(issued.revoked),
        "hosts": list(issued.hosts),
        "folder": authority.folder_of(issued),
    }


def token_values(token: Token) -> dict[str, Any]:
    """Return what is known of a token, for programs."""
    from splitwiper.service.identity.index import utc_now

    return {
        "id": token.id,
        "kind": token.kind,
        "name": token.name,
        "state": token.state(utc_now()),
        "created": token.created.isoformat(),
        "expires": _iso(token.expires),
        "revoked": _iso(token.revoked),
    }


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None


def show(
    authority: Authority,
    issued: Sequence[Issued],
    tokens: Sequence[Token] | None = None,
    *,
    as_json: bool,
    notes: Sequence[str] = (),
    **more: Any,
) -> None:
    """Print certificates and tokens.

    Args:
        authority: the authority.
        issued: certificates.
        tokens: tokens; None for a command that has nothing to do with tokens.
        as_json: print JSON instead of tables and notes.
        notes: what to do with them, below the tables.
        more: further fields of the JSON.
    """
    if as_json:
        fields: dict[str, Any] = {"folder": authority.folder, **more}
        fields["certificates"] = [certificate_values(authority, one) for one in issued]
        if tokens is not None:
            fields["tokens"] = list(map(token_values, tokens))
        output.emit(fields)
        return
    from splitwiper.service.identity.index import utc_now

    now = utc_now()
    rows: list[Sequence[str | Text]] = []
    for one in issued:
        kind = "CA" if one.kind == "authority" else one.kind
        name = ", ".join(one.hosts) if one.kind == "server" else one.name
        rows.append((kind, name, _state(one.state(now)), f"{one.ends or one.not_after:%Y-%m-%d}", one.serial[:16]))
    if rows:
        output.show(("kind", "name or hosts", "state", "until", "serial"), rows)
    if issued and tokens:
        output.say()
    rows = []
    for token in tokens or ():
        until = f"{token.expires:%Y-%m-%d}" if token.expires else "–"
        rows.append((token.kind, token.name, _state(token.state(now)), until, token.id))
    if rows:
        output.show(("token of", "name", "state", "until", "id"), rows)
    if notes and (issued or tokens):
        output.say()
    for note in notes:
        output.say(note)


def show_issued(authority: Authority, issued: Issued, *, as_json: bool, notes: Sequence[str] = ()) -> None:
    """Print a new certificate, and where it goes."""
    if as_json:
        output.emit(certificate_values(authority, issued))
        return
    where = f"{authority.folder_of(issued)} goes to the {issued.kind}."
    if issued.kind != "server":
        where += " Send it over a private channel, then delete it here."
    show(authority, [issued], as_json=False, notes=[where, *notes])


def _state(state: str) -> Text:
    return Text(state, STYLES.get(state, ""))
