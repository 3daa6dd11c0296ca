"""Status of a run: its state, its unfinished work, and which files remain on disk and why. It only reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from splitwiper.client.spending import privacy_spent
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
        raise NotFoundError(f"there is no run in {root} (or its creation was interrupted: start it again).")
    server = ServerStore(root / "server")
    with closing(server.database):
        with suppress(SealError):
            server.database.check()
        model, current = server.model(), server.is_current()
        clients, remains, todo = _clients(root, server)
        for ticket in server.waiting():
            here = (root / "clients" / ticket.client / "client.db").exists()
            away = "" if here else " (its folder is not here)"
            todo.append(f"settle ticket {ticket.id[:8]} of client {ticket.client}{away}")
        if not current:
            todo.append("train the server model on the present shards")
        head = ledger.head(server.database)
        return RunStatus(
            path=str(root),
            model=("current" if model else "empty") if current else ("stale" if model else "none"),
            exact=model.exact if model else None,
            labels=len(model.labels) if model else 0,
            hidden=bool(model and model.codebook),
            clients=tuple(clients),
            tickets=server.tickets(),
            work=server.database.holder(),
            todo=tuple(dict.fromkeys([*todo, *leftovers(root, server)])),
            remains=(*_remains(server.sizes, server.kept(), "server"), *remains),
            ledger=head.size,
            head=str(head),
        )


def _clients(root: Path, server: ServerStore) -> tuple[list[ClientStatus], list[Remains], list[str]]:
    """Return the status of each client, the files that remain of it, and what is left to do for clients."""
    folders = {path.name for path in files.listed(root / "clients") if (path / "client.db").exists()}
    unfinished = {path.name for path in files.listed(root / "pending")}
    generations, columns = server.clients(), server.columns()
    rows = {shard.client: shard.rows for shard in server.shards()}
    clients: list[ClientStatus] = []
    remains: list[Remains] = []
    todo: list[str] = []
    for name in sorted({*generations, *folders}):
        store = ClientStore(root / "clients" / name) if name in folders else None
        if store is not None:
            try:
                with suppress(SealError):  # without the key, records can be read and not checked
                    store.database.check()
            except CorruptError as problem:
                todo.append(f"restore clients/{name}: {problem}")
                store = None
        clients.append(_client(name, store, generations.get(name, 0), rows.get(name, 0), columns))
        if store is not None:
            if (owner := store.database.meta("name")) != name:
                todo.append(f"remove clients/{name}: it is a copy of the folder of client {owner}")
            elif differs(store, server):
                unfinished.add(name)
            remains += _remains(store.sizes, store.kept(), f"clients/{name}")
            store.database.close()
    for name in sorted(unfinished):
        todo.append(f"finish the work of client {name}")
    return clients, remains, todo


def differs(store: ClientStore, server: ServerStore) -> bool:
    """Return whether a client's database, or the server's, shows unfinished work: a crash or an older copy."""
    name = store.root.name
    if store.database.meta("name") != name:
        return False  # a copy of another client's folder is not worked on
    tickets, shard = server.tickets(name), server.shard(name)
    newest = version_of(server.relay.topic())  # the newest codebook version under negotiation
    if store.group() is not None and store.slices() and store.database.number("codebook_version") < newest:
        return True
    if store.is_behind() or store.unknown(tickets) or store.unheard(tickets):
        return True
    return (store.database.meta("accepted") or "") != (shard.digest if shard else "")


def _client(
    name: str, store: ClientStore | None, generation: int, rows: int, columns: Sequence[Column]
) -> ClientStatus:
    if store is None:
        return ClientStatus(name, generation, rows, False, 0, 0, 0, None)
    _, suppressed = store.rows_seen()
    privacy, noise = "", from_dict(ClientConfig, read_toml(store.root / "config.toml")).noise
    if noise.is_on:
        try:
            privacy = privacy_spent(store, noise, columns).sentence
        except ConfigError as problem:  # the library that computes it is not installed
            privacy = str(problem)
    return ClientStatus(
        name,
        generation,
        rows,
        True,
        sum(record.rows for record in store.slices().values()),
        suppressed,
        len(store.requests("open", "sent")),
        store.database.holder(),
        privacy,
        store.database.meta("untrainable") or store.database.meta("set_aside") or "",
    )


def _remains(sizes: Callable[[str], Mapping[str, int]], kept: Mapping[str, set[str]], where: str) -> list[Remains]:
    """Return what the folders of a store hold, and why.

    Args:
        sizes: returns the sizes of a folder's files by name.
        kept: the files that the database points to, by folder.
        where: the store's folder in the run.
    """
    remains = []
    for folder, names in {**kept, "incoming": set[str]()}.items():
        present = sizes(folder)
        for chosen, why in ((names & present.keys(), _WHY.get(folder, "")), (present.keys() - names, _STRAY)):
            if chosen:
                size = sum(map(present.__getitem__, chosen))
                remains.append(Remains(f"{where}/{folder}", len(chosen), size, why))
    return remains
