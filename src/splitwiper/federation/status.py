"""Status: what is there, what is unfinished, and what remains on disk and why. It only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from splitwiper.client.spending import spent
from splitwiper.config import ClientConfig, from_dict, read_toml
from splitwiper.errors import ConfigError, CorruptError, NotFoundError, SealError
from splitwiper.federation.leftovers import leftovers
from splitwiper.reading import explaining
from splitwiper.store import ClientTree, ServerTree, files, ledger
from splitwiper.store.board import version_of
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
    """One client, as far as it can be seen."""

    name: str
    generation: int
    rows_on_server: int
    folder: bool
    rows: int
    suppressed: int
    open_requests: int
    work: str | None
    privacy: str = ""
    """What its noise has spent so far; empty where there is none."""
    untrainable: str = ""
    """Why the rows that it holds are in no shard; empty where they are."""


@dataclass(frozen=True)
class Remains:
    """Files of one kind, and why they are there."""

    what: str
    count: int
    size: int
    why: str


@dataclass(frozen=True)
class Status:
    """A run at a glance."""

    path: str
    model: str
    """'current', 'stale', 'none' or 'empty'."""
    exact: bool | None
    labels: int
    """Outputs of the model: labels, or codes where labels are hidden."""
    hidden: bool
    clients: tuple[ClientStatus, ...]
    tickets: tuple[Ticket, ...]
    work: str | None
    todo: tuple[str, ...]
    remains: tuple[Remains, ...]
    ledger: int
    head: str
    """The ledger's head. Kept outside the run, it shows later whether the ledger only grew."""

    def to_dict(self) -> dict[str, Any]:
        """The status as plain values."""
        return asdict(self)


def status(path: str | Path) -> Status:
    """Look at a run folder without changing it.

    Raises:
        NotFoundError: there is no run.
        FormatError: it was written by a newer version.
    """
    root = Path(path)
    if not (root / "federation.toml").exists():
        raise NotFoundError(f"there is no run in {root} (or its making was interrupted: start it again).")
    server = ServerTree(root / "server")
    with suppress(SealError):
        server.book.check()
    model, shards, tickets = server.model(), server.shards(), server.tickets()
    current = server.is_current()
    state = ("current" if model else "empty") if current else ("stale" if model else "none")
    columns = server.columns()
    generations, rows = server.clients(), {s.client: s.rows for s in shards}
    folders = {p.name for p in files.listed(root / "clients") if (p / "client.db").exists()}
    unfinished = {p.name for p in files.listed(root / "pending")}
    clients: list[ClientStatus] = []
    broken: list[str] = []
    remains = _remains(server.root, server.kept(), "server")
    for name in sorted({*generations, *folders}):
        tree = ClientTree(root / "clients" / name) if name in folders else None
        if tree is not None and (trouble := _trouble(tree)):
            broken.append(f"restore clients/{name}: {trouble}")
            tree = None
        clients.append(_client(name, tree, generations.get(name, 0), rows.get(name, 0), columns))
        if tree is not None:
            if (owner := tree.book.meta("name")) != name:
                broken.append(f"remove clients/{name}: it is a copy of the folder of client {owner}")
            elif differs(tree, server):
                unfinished.add(name)
            remains += _remains(tree.root, tree.kept(), f"clients/{name}")
            tree.book.close()
    todo = broken + [f"finish the work of client {name}" for name in sorted(unfinished)]
    todo += [
        f"settle ticket {t.id[:8]} of client {t.client}" + ("" if t.client in folders else " (its folder is not here)")
        for t in tickets
        if t.state != "settled"
    ]
    if not current:
        todo.append("train the server model on the present shards")
    todo += [item for item in leftovers(root, server) if item not in todo]
    head = ledger.head(server.book)
    found = Status(
        path=str(root),
        model=state,
        exact=model.exact if model else None,
        labels=len(model.labels) if model else 0,
        hidden=bool(model and model.codebook),
        clients=tuple(clients),
        tickets=tickets,
        work=server.book.holder(),
        todo=tuple(todo),
        remains=tuple(remains),
        ledger=head.size,
        head=str(head),
    )
    server.book.close()
    return found


def _trouble(tree: ClientTree) -> str:
    """What is wrong with a client's records; empty where nothing is, or nobody can tell."""
    try:
        tree.book.check()
    except SealError:
        return ""
    except CorruptError as problem:
        return str(problem)
    return ""


def differs(tree: ClientTree, server: ServerTree) -> bool:
    """Whether a client's book, or the server's, tells of work that was not done: a crash, an older copy of either."""
    name = tree.root.name
    if tree.book.meta("name") != name:
        return False  # a copy of another client's folder is not worked on
    tickets, shard = server.tickets(name), server.shard(name)
    newest = version_of(server.topic())  # of the codebooks that clients talk about
    return (
        tree.is_behind()
        or (tree.group() is not None and bool(tree.slices()) and tree.book.number("codebook_version") < newest)
        or bool(tree.unknown(tickets) or tree.unheard(tickets))
        or (tree.book.meta("accepted") or "") != (shard.digest if shard else "")
    )


def _client(name: str, tree: ClientTree | None, generation: int, rows: int, columns: Sequence[Column]) -> ClientStatus:
    if tree is None:
        return ClientStatus(name, generation, rows, False, 0, 0, 0, None)
    suppressed = tree.book.one("SELECT count(*) FROM suppressed")
    return ClientStatus(
        name,
        generation,
        rows,
        True,
        sum(record.rows for record in tree.slices().values()),
        int(suppressed[0]) if suppressed else 0,
        len(tree.requests("open", "sent")),
        tree.book.holder(),
        _privacy(tree, columns),
        tree.book.meta("untrainable") or tree.book.meta("set_aside") or "",
    )


def _privacy(tree: ClientTree, columns: Sequence[Column]) -> str:
    noise = from_dict(ClientConfig, read_toml(tree.root / "config.toml")).noise
    try:
        return spent(tree, noise, columns).sentence if noise.is_on else ""
    except ConfigError as problem:  # the library that adds it up is not installed
        return str(problem)


def _remains(root: Path, kept: Mapping[str, set[str]], where: str) -> list[Remains]:
    out = []
    for folder, names in {**kept, "incoming": set[str]()}.items():
        present = _sizes(root / folder)
        for chosen, why in ((names & present.keys(), _WHY.get(folder, "")), (present.keys() - names, _STRAY)):
            if chosen:
                out.append(Remains(f"{where}/{folder}", len(chosen), sum(present[n] for n in chosen), why))
    return out


def _sizes(folder: Path) -> dict[str, int]:
    """The files of a folder; those that another process erases meanwhile are gone."""
    out = {}
    with explaining(folder):
        found = list(folder.iterdir()) if folder.is_dir() else []
    for path in found:
        with suppress(FileNotFoundError):
            out[path.name] = path.lstat().st_size
    return out
