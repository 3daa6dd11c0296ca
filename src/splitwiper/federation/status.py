"""Status of a run: its state, its unfinished work, and which files remain on disk and why. It only reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from splitwiper.client.spending import spent
from splitwiper.config import ClientConfig, from_dict, read_toml
from splitwiper.errors import ConfigError, CorruptError, NotFoundError, SealError
from splitwiper.federation.leftovers import leftovers
from splitwiper.store import ClientStore, ServerStore, files, ledger
from splitwiper.store.relay import version_of
from splitwiper.wire import Column, Ticket

_WHY = {
    "shards": "activations and labels of surviving rows: the server re-trains from them",
    "models": "the server model in use",
    "epochs": "states that training went through: an auditor recomputes epochs from them; erased with the model",
    "slices": "the client's surviving rows",
    "checkpoints": "states that saw only surviving rows: a later request restarts from them",
    "half": "the frozen client half in use",
}
_STRAY = "superseded or unfinished: erased by the next learn or settle"


@dataclass(frozen=True)
class ClientStatus:
    """The status of one client, as far as it can be read."""

    name: str
    generation: int
    rows_on_server: int
    folder: bool
    rows: int
    suppressed: int
    open_requests: int
    work: str | None
    privacy: str = ""
    """What its noise has spent so far; empty if it uses none."""
    untrainable: str = ""
    """Why the rows that it holds are in no shard; empty if they are in one."""


@dataclass(frozen=True)
class Remains:
    """Files of one kind, and why they exist."""

    what: str
    count: int
    size: int
    why: str


@dataclass(frozen=True)
class RunStatus:
    """The status of a run."""

    path: str
    model: str
    """'current', 'stale', 'none' or 'empty'."""
    exact: bool | None
    labels: int
    """The model's number of outputs: labels, or codes if labels are hidden."""
    hidden: bool
    clients: tuple[ClientStatus, ...]
    tickets: tuple[Ticket, ...]
    work: str | None
    todo: tuple[str, ...]
    remains: tuple[Remains, ...]
    ledger: int
    head: str
    """The ledger's head. Kept outside the run, it later shows whether the ledger only grew."""

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain values."""
        return asdict(self)


def status(path: str | Path) -> RunStatus:
    """Look at a run folder without changing it.

    Raises:
        NotFoundError: there is no run in this folder.
        FormatError: it was written by a newer version.
    """
    root = Path(path)
    if not (root / "federation.toml").exists():
        raise NotFoundError(f"there is no run in {root} (or its making was interrupted: start it again).")
    server = ServerStore(root / "server")
    with suppress(SealError):
        server.database.check()
    model, shards, tickets = server.model(), server.shards(), server.tickets()
    current = server.is_current()
    state = ("current" if model else "empty") if current else ("stale" if model else "none")
    columns = server.columns()
    generations, rows = server.clients(), {s.client: s.rows for s in shards}
    folders = {p.name for p in files.listed(root / "clients") if (p / "client.db").exists()}
    unfinished = {p.name for p in files.listed(root / "pending")}
    clients: list[ClientStatus] = []
    broken: list[str] = []
    remains = _remains(server.sizes, server.kept(), "server")
    for name in sorted({*generations, *folders}):
        store = ClientStore(root / "clients" / name) if name in folders else None
        if store is not None and (trouble := _trouble(store)):
            broken.append(f"restore clients/{name}: {trouble}")
            store = None
        clients.append(_client(name, store, generations.get(name, 0), rows.get(name, 0), columns))
        if store is not None:
            if (owner := store.database.meta("name")) != name:
                broken.append(f"remove clients/{name}: it is a copy of the folder of client {owner}")
            elif differs(store, server):
                unfinished.add(name)
            remains += _remains(store.sizes, store.kept(), f"clients/{name}")
            store.database.close()
    todo = broken + [f"finish the work of client {name}" for name in sorted(unfinished)]
    todo += [
        f"settle ticket {t.id[:8]} of client {t.client}" + ("" if t.client in folders else " (its folder is not here)")
        for t in tickets
        if t.state != "settled"
    ]
    if not current:
        todo.append("train the server model on the present shards")
    todo += [item for item in leftovers(root, server) if item not in todo]
    head = ledger.head(server.database)
    found = RunStatus(
        path=str(root),
        model=state,
        exact=model.exact if model else None,
        labels=len(model.labels) if model else 0,
        hidden=bool(model and model.codebook),
        clients=tuple(clients),
        tickets=tickets,
        work=server.database.holder(),
        todo=tuple(todo),
        remains=tuple(remains),
        ledger=head.size,
        head=str(head),
    )
    server.database.close()
    return found


def _trouble(store: ClientStore) -> str:
    """Return what is wrong with a client's records; empty if nothing is, or if that cannot be checked."""
    try:
        store.database.check()
    except SealError:
        return ""
    except CorruptError as problem:
        return str(problem)
    return ""


def differs(store: ClientStore, server: ServerStore) -> bool:
    """Return whether a client's database, or the server's, shows unfinished work: a crash or an older copy."""
    name = store.root.name
    if store.database.meta("name") != name:
        return False  # a copy of another client's folder is not worked on
    tickets, shard = server.tickets(name), server.shard(name)
    newest = version_of(server.relay.topic())  # the newest codebook version under negotiation
    return (
        store.is_behind()
        or (store.group() is not None and bool(store.slices()) and store.database.number("codebook_version") < newest)
        or bool(store.unknown(tickets) or store.unheard(tickets))
        or (store.database.meta("accepted") or "") != (shard.digest if shard else "")
    )


def _client(
    name: str, store: ClientStore | None, generation: int, rows: int, columns: Sequence[Column]
) -> ClientStatus:
    if store is None:
        return ClientStatus(name, generation, rows, False, 0, 0, 0, None)
    suppressed = store.database.one("SELECT count(*) FROM suppressed")
    return ClientStatus(
        name,
        generation,
        rows,
        True,
        sum(record.rows for record in store.slices().values()),
        int(suppressed[0]) if suppressed else 0,
        len(store.requests("open", "sent")),
        store.database.holder(),
        _privacy(store, columns),
        store.database.meta("untrainable") or store.database.meta("set_aside") or "",
    )


def _privacy(store: ClientStore, columns: Sequence[Column]) -> str:
    noise = from_dict(ClientConfig, read_toml(store.root / "config.toml")).noise
    try:
        return spent(store, noise, columns).sentence if noise.is_on else ""
    except ConfigError as problem:  # the library that computes it is not installed
        return str(problem)


def _remains(sizes: Callable[[str], Mapping[str, int]], kept: Mapping[str, set[str]], where: str) -> list[Remains]:
    """Return what the folders of a store hold, and why.

    Args:
        sizes: returns the sizes of a folder's files by name.
        kept: the files that the database points to, by folder.
        where: the store's folder in the run.
    """
    out = []
    for folder, names in {**kept, "incoming": set[str]()}.items():
        present = sizes(folder)
        for chosen, why in ((names & present.keys(), _WHY.get(folder, "")), (present.keys() - names, _STRAY)):
            if chosen:
                out.append(Remains(f"{where}/{folder}", len(chosen), sum(present[n] for n in chosen), why))
    return out
