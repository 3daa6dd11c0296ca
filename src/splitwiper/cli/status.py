"""``splitwiper status``: the clients and the model of a run, its unfinished work, and its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.options import Json, Run
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

    state = look(run)
    if client is not None:
        _show_rows(run, state, client, as_json=as_json)
    elif as_json:
        output.emit(state.to_dict())
    else:
        _print(state)


def _show_rows(run: Path, state: RunStatus, client: str, *, as_json: bool) -> None:
    rows = row_labels(run, state, client)
    if as_json:
        output.emit({"run": run, "client": client, "rows": [{"id": i, "label": label} for i, label in rows.items()]})
        return
    output.show((">id", "label"), ((str(i), str(label)) for i, label in rows.items()))
    output.say()
    output.say(f"{client} holds {output.plural(len(rows), 'row')}.")


def row_labels(run: Path, state: RunStatus, client: str) -> dict[int, str | int]:
    """Return a client's row ids and their labels, read without the model.

    Raises:
        NotFoundError: there is no such client.
        AbsentClientError: its folder is not here.
        CorruptError: a file of it is damaged.
    """
    from splitwiper.client.row_store import RowStore
    from splitwiper.config import ClientConfig, from_dict, read_toml
    from splitwiper.store import ClientStore

    known = {status.name: status for status in state.clients}
    if client not in known:
        raise NotFoundError(f"there is no client {client!r} in {run}.{nearest(client, known)}")
    if not known[client].folder:
        raise AbsentClientError(f"the folder of client {client!r} is not here, and its rows are nowhere else.")
    store = ClientStore(run / "clients" / client)
    return RowStore(store, from_dict(ClientConfig, read_toml(store.root / "config.toml"))).ids()


def _print(state: RunStatus) -> None:
    model = MODEL[state.model]
    if state.exact is not None:
        model += f", {output.plural(state.labels, 'code' if state.hidden else 'label')}"
    if state.hidden:
        model += ", labels are hidden"
    if state.exact is False:
        model += ", by a warm start: not exact"
    output.say(f"Run:    {state.path}")
    output.say(f"Model:  {model}")
    output.say(f"Ledger: {counted(state.ledger, 'entry', 'entries')}, head {state.head}")
    if state.work:
        output.say(f"Work:   {state.work}")
    output.say()
    _print_clients(state.clients)
    if state.tickets:
        output.say()
        tickets = [(t.id[:8], t.client, t.level, t.state, t.received) for t in state.tickets]
        output.show(("ticket", "client", "level", "state", "received"), tickets)
    if state.remains:
        output.say()
        rows = []
        for kind in state.remains:
            rows.append((kind.what, output.count(kind.count), output.size(kind.size), kind.why))
        output.show(("on disk", ">files", ">size", "why"), rows)
    output.say()
    if not state.todo:
        output.say("Nothing is unfinished.")
        return
    output.say(f"Unfinished (splitwiper settle {state.path} does it):", style="bold yellow")
    for task in state.todo:
        output.say(f"  - {task}")


def _print_clients(clients: Sequence[ClientStatus]) -> None:
    rows = []
    for client in clients:
        held = output.count(client.rows) if client.folder else "folder not here"
        numbers = (client.rows_on_server, client.suppressed, client.open_requests, client.generation)
        rows.append((client.name, held, *map(output.count, numbers)))
    if rows:
        output.show(("client", ">rows", ">on server", ">suppressed", ">open requests", ">generation"), rows)
    else:
        output.say("No client has joined yet.")
    # below the table, because a sentence does not fit into a cell
    for client in clients:
        if client.untrainable:
            output.say(f"{client.name}: the rows that are left cannot be trained on. {client.untrainable}")
        if client.work:
            output.say(f"{client.name}: {client.work}")
    for client in clients:
        if client.privacy:
            output.say(f"Noise of {client.name}: {client.privacy}.")
