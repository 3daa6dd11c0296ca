"""The federation: the program users write."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splitwiper.client import Added, Client, check_rows
from splitwiper.config import Config, config_digest, from_dict, read_toml, to_toml
from splitwiper.data.rows import Data, Rows, as_rows, pack
from splitwiper.errors import (
    AbsentClientError,
    BusyError,
    CorruptError,
    DataError,
    FencedError,
    InputError,
    NotFoundError,
    SplitWiperError,
    TrainingError,
    let_go,
    nearest,
)
from splitwiper.federation.build import build_halves
from splitwiper.federation.evaluate import Evaluation, score
from splitwiper.federation.folder import agree, architecture, columns_of, drawn, make, refuse_used
from splitwiper.federation.link import InProcessLink
from splitwiper.federation.sources import NAME, Reader, Source, check_names
from splitwiper.federation.status import Status, differs, status
from splitwiper.federation.verify import Verification, verify
from splitwiper.loop import Pausing
from splitwiper.numerics import pick_device
from splitwiper.seeding import Stream, seeded_key
from splitwiper.server import Server
from splitwiper.splitting import Halves
from splitwiper.store import ClientTree, ServerTree, files
from splitwiper.store.tensors import load_state
from splitwiper.wire import Label, Receipt, Request, Spent, Ticket

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""
LANES = 8
"""Clients that pre-train on one GPU at the same time."""


@dataclass(frozen=True)
class Learned:
    """What a call of `learn` did.

    Attributes:
        added: per client, what became of its rows.
        spent: what each client spent; clients that were not named spent nothing.
        losses: the server's mean loss per epoch; empty when nothing had to be trained.
        server_seconds: what server training took.
        receipts: of requests that were settled on the way.
    """

    added: Mapping[str, Added]
    spent: Mapping[str, Spent]
    losses: tuple[float, ...]
    server_seconds: float
    receipts: tuple[Receipt, ...]


class Federation:
    """A federation in a folder: durable, reopenable, crash-safe.

    Args:
        path: the run folder. It is made if it is not there, and reopened if it is.
        halves: the network, cut by `split`. May be left out where the configuration names the model.
        config: settings; on reopening they may be left out, and must agree if given.
        progress: told of long work: (what, steps done, steps in all).
    """

    def __init__(
        self,
        path: str | Path,
        halves: Halves | None = None,
        config: Config | None = None,
        *,
        progress: Progress | None = None,
    ) -> None:
        if halves is not None and not isinstance(halves, Halves):
            raise InputError(f"halves must come from split(model, at=…, example=…), not be a {type(halves).__name__}.")
        if config is not None and not isinstance(config, Config):
            raise InputError(f"config must be a splitwiper.Config, not a {type(config).__name__}.")
        self.path = Path(path)
        self._progress = progress
        stored = self.path / "federation.toml"
        if stored.exists():
            self.config = agree(from_dict(Config, read_toml(stored)), config, self.path)
            self.halves = halves or build_halves(self.config)
        else:
            if halves is None and config is None:
                raise NotFoundError(f"there is no run in {self.path}. Learn first, or give halves to start one.")
            self.config = config or Config()
            self._check_devices()
            self.halves = halves or build_halves(self.config)
            make(self.path, self.halves, self.config, self.halves.server.state_dict(), self.halves.client.state_dict())
        tree = ServerTree(self.path / "server")
        self._server = Server(tree, self.halves.server, progress)
        self._link = InProcessLink(self._server, self.config.client.transfer)
        self._check_halves()

    # --- making and opening --------------------------------------------------------------------------------

    def _check_halves(self) -> None:
        """The halves given must be those the run was made with, whatever their weights are."""
        for side, half, kept in (
            ("server", self.halves.server, self._server.tree.initial()),
            ("client", self.halves.client, self._server.tree.client_initial()),
        ):
            now = {name: tuple(t.shape) for name, t in half.state_dict().items()}
            then = {name: tuple(t.shape) for name, t in kept.items()}
            if now != then:
                odd = sorted(k for k in now.keys() | then.keys() if now.get(k) != then.get(k))
                raise InputError(
                    f"the {side} half does not fit this run: {', '.join(odd[:3])} differ. Reopen {self.path} with the "
                    "model and cut it was made with."
                )
        if columns_of(self.halves.boundary) != self._server.columns:
            raise InputError(f"the cut at {self.halves.at!r} sends other tensors than this run was made with.")
        if architecture(self.halves) != self._server.tree.book.meta("architecture"):
            made = self._server.tree.book.meta("architecture") or ""
            if made.startswith(f"{torch.__version__} "):  # another torch may print the same modules otherwise
                raise InputError(
                    f"the model is built otherwise than the one {self.path} was made with: reopen it with that."
                )
        if (at := self._server.tree.book.meta("at")) != self.halves.at:
            raise InputError(f"this run was made with the cut at {at!r}, not at {self.halves.at!r}: cut it there.")

    def twin(self, path: str | Path) -> Federation:
        """A new, empty federation with the same context: settings, first weights and client keys.

        What it learns is bit for bit what this one would have learned, so "never had the data" can be tried out.
        """
        target, tree = Path(path), self._server.tree
        refuse_used(target)
        for name in self._joined():
            files.make_folder(target / "clients" / name)
            for kept in ("key", "initial.safetensors"):
                source = self.path / "clients" / name / kept
                if source.exists():
                    files.write_bytes(target / "clients" / name / kept, source.read_bytes())
        make(target, self.halves, self.config, tree.initial(), tree.client_initial())
        return Federation(target, self.halves, progress=self._progress)

    # --- clients -------------------------------------------------------------------------------------------

    def _folders(self) -> list[str]:
        return sorted(p.name for p in (self.path / "clients").iterdir() if p.is_dir())

    @property
    def clients(self) -> tuple[str, ...]:
        """Every client the federation knows, those that left included."""
        return tuple(sorted({*self._server.tree.clients(), *self._joined()}))

    def _joined(self) -> list[str]:
        return [n for n in self._folders() if self._has_joined(n)]

    def _has_joined(self, name: str) -> bool:
        return (self.path / "clients" / name / "client.db").exists()

    def _client(self, name: str) -> Client:
        """An existing client, for work."""
        if not NAME.fullmatch(name):
            raise NotFoundError(f"there is no client {name!r}: names have letters, digits, '.', '_' and '-' alone.")
        tree = ClientTree(self.path / "clients" / name)
        if not self._has_joined(name) and not self._server.tree.knows(name):
            raise NotFoundError(f"there is no client {name!r}.{nearest(name, self.clients)}")
        return Client(tree, self.halves.client_for(name), self._server.columns, self._link, self._progress)

    def _join(self, name: str, task: str) -> Client:
        """An existing client, or a new one that starts from the federation's first weights."""
        tree = ClientTree(self.path / "clients" / name)
        if not self._has_joined(name):
            if self._server.tree.shard(name) is not None:
                self._client(name)  # raises: the server holds its shard, but its folder is gone
            tree.create(
                config=to_toml(self.config.client),
                initial=self._first_weights(name),
                meta={
                    "name": name,
                    "task": task,
                    "seed": str(self.config.seed),
                    "config": config_digest(self.config.client, seed=self.config.seed),
                },
                key=seeded_key(self.config.seed, name) if self.config.client.keys == "seeded" else None,
            )
        return self._client(name)

    def _check(self, name: str, rows: Rows, task: str) -> None:
        """Refuse a client's rows before any client's rows are kept."""
        if self._has_joined(name):
            client = self._client(name)
            if client.task != task:
                raise DataError(f"client {name!r} joined for task {client.task!r}, not {task!r}; give it another name.")
            client.check(rows)
        else:
            half, columns = self.halves.client_for(name), self._server.columns
            check_rows(rows, client=name, config=self.config.client, half=half, columns=columns)

    def _first_weights(self, name: str) -> Mapping[str, Tensor]:
        """A joining client's first weights: handed over to a twin, its own half's, its own draw, or the shared ones."""
        handed = self.path / "clients" / name / "initial.safetensors"
        if handed.exists():
            return load_state(handed)
        half = self.halves.client_for(name)
        if self.config.client.init == "independent":
            return drawn(half, Stream(self.config.seed, "client-init", name))
        return half.state_dict() if name in self.halves.clients else self._server.tree.client_initial()

    def _mark(self, name: str) -> None:
        """Note that a client is being worked on, before anything of it changes."""
        files.write_bytes(self.path / "pending" / name, b"")

    # --- learning ------------------------------------------------------------------------------------------

    def learn(
        self, datasets: Mapping[str, Source] | Iterable[tuple[str, Source]], *, tasks: Mapping[str, str] | None = None
    ) -> Learned:
        """Learn from clients' data. Later calls add clients and rows; learning the same rows again changes nothing.

        Args:
            datasets: data by client name: ``(inputs, labels)``, a map-style dataset of such pairs, or a function
                without arguments that returns either. A function is called when its client's turn comes, once to
                check the rows and once to take them in, so that the rows of one client at a time are in memory.
            tasks: the task of a client's labels, where clients do not all share one.

        Notes:
            What a function returns the second time is checked again, and is what is learned. If it cannot be learned
            from, or the function raises, that client is as it was; clients before it keep their rows, which the next
            `learn` or `settle` trains on.

        Raises:
            DataError: data that cannot be learned from; nothing of this call is kept then.
            TrainingError: training went wrong, say because the loss diverged. The rows stay with their client until
                they are forgotten; other clients and the model are as they were, or go on.
        """
        self._check_devices()
        pairs = list(datasets.items() if isinstance(datasets, Mapping) else datasets)
        check_names([name for name, _ in pairs], known=self.clients)
        tasks = tasks or {}
        sources = {name: Reader(data, client=name, task=tasks.get(name, "")) for name, data in pairs}
        for name, source in sources.items():
            self._check(name, source.rows(), source.task)
        self._link.begin()
        added = {name: self._add(name, sources.pop(name)) for name in list(sources)}
        before = self._server.tree.model()
        receipts = self._reconcile(set(added))
        model = self._server.tree.model()
        fresh = model if model and (before is None or before.file != model.file) else None
        return Learned(
            added,
            {name: self._link.spent.get(name, Spent()) for name in self.clients},
            fresh.losses if fresh else (),
            fresh.seconds if fresh else 0.0,
            receipts,
        )

    def _check_devices(self) -> None:
        """Say at once that a device is not there, before anything is kept.

        Raises:
            ConfigError: it is not.
        """
        for side in (self.config.client, self.config.server):
            pick_device(side.device)

    def _add(self, name: str, source: Reader) -> Added:
        """Take a client's rows in, and have the client join if it is new."""
        rows = source.rows()
        if source.lazy:  # these were not looked at before
            self._check(name, rows, source.task)
        self._mark(name)
        client = self._join(name, source.task)
        added = client.add(rows, checked=True)
        self._link.charge(name, client.take_spent())
        return added

    # --- unlearning ----------------------------------------------------------------------------------------

    def unlearn(
        self,
        client: str,
        *,
        classes: Sequence[str | int] | None = None,
        samples: Sequence[int] | None = None,
        everything: bool = False,
    ) -> Receipt:
        """Forget a client's classes, samples or everything, now: `submit` and `settle`."""
        ticket = self.submit(client, classes=classes, samples=samples, everything=everything)
        try:
            self._reconcile({client})
        except FencedError:
            raise
        except BusyError as problem:
            told = f"the request is accepted as ticket {ticket.id}: do not ask again"
            raise BusyError(f"{told}. But {problem}") from problem
        return self._server.tree.receipt(ticket.id)

    def submit(
        self,
        client: str,
        *,
        classes: Sequence[str | int] | None = None,
        samples: Sequence[int] | None = None,
        everything: bool = False,
    ) -> Ticket:
        """Ask to forget. The rows are suppressed at once and for ever; `settle` does the rest for all open requests.

        Raises:
            RequestError: nothing, or more than one thing, was named, or what was named is not held.
        """
        try:
            asking = self._client(client)
        except AbsentClientError:
            if not everything or classes is not None or samples is not None:
                raise
            return self._server.submit(Request(secrets.token_hex(16), client, "client"))
        choice = asking.choose(classes=classes, samples=samples, everything=everything)
        self._link.begin()
        self._mark(client)
        request = asking.forget(choice)
        asking.send_requests()
        self._link.charge(client, asking.take_spent())
        return next(t for t in self._server.tickets(client) if t.id == request.ticket)

    def settle(self) -> tuple[Receipt, ...]:
        """Settle all open requests with one re-training. Only the clients that asked, and the server, work.

        Raises:
            AbsentClientError: requests wait for clients whose folders are not here, and none could be settled.
        """
        self._check_devices()
        self._link.begin()
        return self._reconcile()

    @property
    def spent(self) -> dict[str, Spent]:
        """What each client spent in the last learn or unlearn (submit and settle), and in predictions since."""
        return {name: self._link.spent.get(name, Spent()) for name in self.clients}

    def _reconcile(self, named: AbstractSet[str] | None = None) -> tuple[Receipt, ...]:
        """Finish whatever is unfinished: clients that were being worked on, open requests, the model.

        This is all there is to recovering from a crash. One client's trouble stops no other; it is raised at the end
        if the call named that client (None: all of them), and `status` tells of it otherwise.
        """
        for folder in (self.path, self.path / "pending"):
            files.sweep_abandoned(folder, stem=files.TEMPORARY)
        open_tickets = [t for t in self._server.tree.tickets() if t.state == "accepted"]
        marked = {p.name for p in (self.path / "pending").iterdir() if not p.name.startswith(files.TEMPORARY)}
        # marks say what was begun; a client's own book knows best what another process's erased mark left undone
        behind = {name for name in self._joined() if self._is_behind(name)}
        names = sorted(marked | behind | {t.client for t in open_tickets})
        here = set(self._joined())
        failed = self._bring_up([name for name in names if name in here], behind)
        absent = {name for name in names if name not in here and self._server.tree.knows(name)}
        for name in set(names) - here:
            files.erase(self.path / "pending" / name)
        for ticket in open_tickets:  # a whole client can be forgotten in its absence
            if ticket.client in absent and ticket.level == "client":
                answers = [t.id for t in open_tickets if t.client == ticket.client]
                self._server.tree.withdraw(ticket.client, None, answers=answers)
        receipts = self._server.train()
        self._link.finished = True
        for name, problem in failed.items():
            if name in named if named is not None else not receipts:
                raise problem
        waiting = [t for t in self._server.tree.tickets() if t.state == "accepted" and t.client in absent]
        if waiting and named is None and not receipts:
            names = sorted({t.client for t in waiting})
            raise AbsentClientError(
                f"{len(waiting)} requests wait for {', '.join(names)}, whose folder is not here: bring it back and "
                "settle again, or forget the whole client (everything=True), which needs only the server."
            )
        return receipts

    def _bring_up(self, names: Sequence[str], behind: AbstractSet[str]) -> dict[str, SplitWiperError]:
        """Bring clients up to date, several at a time on a GPU; what stops one alone is returned: others go on."""
        failed: dict[str, SplitWiperError] = {}
        waiting, running = list(names), dict[str, tuple[Client, Pausing[bool]]]()
        lanes = LANES if self.config.client.device.startswith("cuda") else 1
        try:
            while waiting or running:
                for name in [*running, *waiting[: lanes - len(running)]]:
                    try:
                        if name not in running:
                            waiting.remove(name)
                            client = self._client(name)
                            running[name] = (client, client.syncing(again=name in behind))
                        next(running[name][1])
                        continue
                    except StopIteration:
                        self._link.charge(name, running[name][0].take_spent())
                        files.erase(self.path / "pending" / name)
                    except FencedError:
                        raise
                    except (DataError, TrainingError, CorruptError, BusyError) as problem:
                        failed[name] = let_go(problem)
                    running.pop(name, None)
        finally:
            for _, work in running.values():
                work.close()
        return failed

    def _is_behind(self, name: str) -> bool:
        """Whether a client's own book, or the server's, tells of work it has not done."""
        tree = ClientTree(self.path / "clients" / name)
        try:
            return differs(tree, self._server.tree)
        finally:
            tree.book.close()

    def reupload(self, client: str) -> None:
        """Have a client send its shard again, say because the server's copy was damaged."""
        self._client(client).reupload()
        self._server.train()

    # --- using the model -----------------------------------------------------------------------------------

    @property
    def labels(self) -> tuple[Label, ...]:
        """What the columns of `predict_proba` stand for."""
        model = self._server.tree.model()
        return model.labels if model else ()

    def predict_proba(self, client: str, x: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Probabilities of all labels, one row per input; `labels` gives the order of the columns."""
        scores = self._client(client).scores(x)
        return torch.softmax(scores.logits.float(), dim=1).numpy()

    def predict(self, client: str, x: Any) -> list[str | int]:
        """The most likely label of the client's own task for each input."""
        return [label.name for label in self._predict(client, x)]

    def _predict(self, client: str, x: Any) -> list[Label]:
        asking = self._client(client)
        scores = asking.scores(x)
        mine = [i for i, label in enumerate(scores.labels) if label.task == asking.task]
        if not mine:
            raise NotFoundError(f"no label of task {asking.task!r} is left: nobody holds rows of it.")
        best = scores.logits[:, mine].argmax(dim=1).tolist()
        return [scores.labels[mine[i]] for i in best]

    def evaluate(self, test_sets: Mapping[str, Data]) -> Evaluation:
        """Score each client's whole network on its own test set."""
        out = {}
        for name, data in test_sets.items():
            rows = as_rows(data, task=self._client(name).task)
            out[name] = score(rows.labels, self._predict(name, pack(rows.inputs, rows.call)))
        return Evaluation(out)

    # --- looking -------------------------------------------------------------------------------------------

    def rows(self, client: str) -> dict[int, str | int]:
        """A client's row ids and their labels: what ``samples=[…]`` can name."""
        return self._client(client).holdings.ids()

    def receipts(self) -> tuple[Receipt, ...]:
        """All receipts, oldest first."""
        tree = self._server.tree
        return tuple(tree.receipt(t.id) for t in tree.tickets() if t.state == "settled")

    def receipt(self, ticket: str) -> Receipt:
        """The receipt of one ticket."""
        return self._server.tree.receipt(ticket)

    def verify(self, receipt: Receipt | str | Path | None = None) -> Verification:
        """Recompute from the surviving data and compare bit for bit.

        Args:
            receipt: check what was done for this one (a receipt, its file, or its ticket); without it, everything as
                it is now.
        """
        if isinstance(receipt, str | Path):
            receipt = Receipt.load(receipt) if Path(receipt).exists() else self.receipt(str(receipt))
        return verify(self._server, self._client, receipt)

    def status(self) -> Status:
        """What is there, what is unfinished, and what remains on disk and why."""
        return status(self.path)
