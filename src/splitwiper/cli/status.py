"""``splitwiper status``: the clients and the model of a run, its unfinished work, and its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from splitwiper.cli import output
from splitwiper.cli.unlearn import Json, Run
from splitwiper.errors import AbsentClientError, NotFoundError, nearest
from splitwiper.formats import counted

if TYPE_CHECKING:
    from splitwiper.federation import RunStatus
    from splitwiper.federation.status import ClientStatus

MODEL = {
    "current": "trained on the present shards",
    "stale": "stale: settle trains it on the present shards",
    "none": "none: settle trains it on the present shards",
    "empty": "none: nothing has reached the server",
}


def status(
    run: Run,
    client: Annotated[
        str | None, typer.Option("--client", metavar="NAME", help="List this client's row ids and labels instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a run holds, what is unfinished, and what is on disk.

    Changes nothing, and needs neither the model's code nor the data.

    Example:
      splitwiper status runs/ward
      splitwiper status runs/ward --client north
    """
    from splitwiper.federation.status import status as look

    found = look(run)
    if client is not None:
        _rows(run, found, client, as_json=as_json)
    elif as_json:
        output.emit(found.to_dict())
    else:
        _print(found)


def _rows(run: Path, found: RunStatus, client: str, *, as_json: bool) -> None:
    rows = row_labels(run, found, client)
    if as_json:
        output.emit({"run": run, "client": client, "rows": [{"id": i, "label": label} for i, label in rows.items()]})
        return
    out = output.output()
    out.print(output.table((">id", "label"), ((str(i), str(label)) for i, label in rows.items())))
    out.print()
    output.line(out, f"{client} holds {output.plural(len(rows), 'row')}.")


def row_labels(run: Path, found: RunStatus, client: str) -> dict[int, str | int]:
    """Return a client's row ids and their labels, read without the model.

    Raises:
        NotFoundError: there is no such client.
        AbsentClientError: its folder is not here.
        CorruptError: a file of it is damaged.
    """
    from splitwiper.client.row_store import RowStore
    from splitwiper.config import ClientConfig, from_dict, read_toml
    from splitwiper.store import ClientStore

    known = {c.name: c for c in found.clients}
    if client not in known:
        raise NotFoundError(f"there is no client {client!r} in {run}.{nearest(client, known)}")
    if not known[client].folder:
        raise AbsentClientError(f"the folder of client {client!r} is not here, and its rows are nowhere else.")
    store = ClientStore(run / "clients" / client)
    return RowStore(store, from_dict(ClientConfig, read_toml(store.root / "config.toml"))).ids()


def _print(found: RunStatus) -> None:
    out = output.output()
    output.line(out, f"Run:    {found.path}")
    start = "" if found.exact is None else f", {output.plural(found.labels, 'code' if found.hidden else 'label')}"
    start += ", labels are hidden" if found.hidden else ""
    start += ", by a warm start: not exact" if found.exact is False else ""
    output.line(out, f"Model:  {MODEL[found.model]}{start}")
    output.line(out, f"Ledger: {counted(found.ledger, 'entry', 'entries')}, head {found.head}")
    if found.work:
        output.line(out, f"Work:   {found.work}")
    out.print()
    _print_clients(out, found.clients)
    if found.tickets:
        out.print()
        out.print(
            output.table(
                ("ticket", "client", "level", "state", "received"),
                ((t.id[:8], t.client, t.level, t.state, t.received) for t in found.tickets),
            )
        )
    if found.remains:
        out.print()
        out.print(
            output.table(
                ("on disk", ">files", ">size", "why"),
                ((r.what, output.count(r.count), output.size(r.size), r.why) for r in found.remains),
            )
        )
    out.print()
    if found.todo:
        output.line(out, f"Unfinished (splitwiper settle {found.path} does it):", style="bold yellow")
        for what in found.todo:
            output.line(out, f"  - {what}")
    else:
        output.line(out, "Nothing is unfinished.")


def _print_clients(out: Console, clients: Sequence[ClientStatus]) -> None:
    rows = []
    for client in clients:
        held = output.count(client.rows) if client.folder else "folder not here"
        numbers = (client.rows_on_server, client.suppressed, client.open_requests, client.generation)
        rows.append((client.name, held, *map(output.count, numbers)))
    headings = ("client", ">rows", ">on server", ">suppressed", ">open requests", ">generation")
    out.print(output.table(headings, rows) if rows else "No client has joined yet.")
    for client in clients:
        if client.untrainable:
            output.line(out, f"{client.name}: the rows that are left cannot be trained on. {client.untrainable}")
        if client.work:
            output.line(out, f"{client.name}: {client.work}")
    for client in clients:
        if client.privacy:
            output.line(out, f"Noise of {client.name}: {client.privacy}.")
