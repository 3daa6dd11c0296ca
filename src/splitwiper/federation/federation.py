"""The federation: the program users write."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

from splitwiper.checks import Verification
from splitwiper.client import Added, Client, scoring
from splitwiper.client.embed import Sending
from splitwiper.client.scoring import Predicted, Probabilities
from splitwiper.config import Config, from_dict, read_toml
from splitwiper.data.labels import as_learned
from splitwiper.data.rows import Data, as_rows
from splitwiper.data.sources import Reader, Source, by_client, check_names
from splitwiper.errors import (
    AbsentClientError,
    BusyError,
    ConfigError,
    FencedError,
    InputError,
    NotFoundError,
    SealError,
)
from splitwiper.federation.agreeing import Agreement, rekey
from splitwiper.federation.build import build_halves
from splitwiper.federation.evaluate import Evaluation, check_truth, score
from splitwiper.federation.folder import FINISHED, check_devices, check_same_settings, make, refuse_used, warn_of_seeds
from splitwiper.federation.leftovers import leftovers
from splitwiper.federation.link import InProcessLink
from splitwiper.federation.opening import check_halves, check_settings, public_call
from splitwiper.federation.reconcile import Learned, Reconciled, reconcile
from splitwiper.federation.registry import TWIN_CODEBOOK, TWIN_COLUMN_ORDER, ClientRegistry
from splitwiper.federation.retrace import Traced, retrace
from splitwiper.federation.status import RunStatus, status
from splitwiper.federation.verify import verify
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.sealing import GroupKey
from splitwiper.numerics import isolated_call, prepare
from splitwiper.privacy import Spending, check_noise
from splitwiper.progress import Progress
from splitwiper.reading import is_there, read_bytes
from splitwiper.server import Server
from splitwiper.server.training import Engine
from splitwiper.splitting import Halves
from splitwiper.store import ServerStore, files, ledger, read_undisturbed
from splitwiper.store.ledger import Head
from splitwiper.store.records import ModelRecord
from splitwiper.wire import Label, Receipt, Request, Spent, Ticket
from splitwiper.wire.metering import MeteredLink

_T = TypeVar("_T")


class Federation:
    """A federation in a folder: durable, reopenable, crash-safe.

    Args:
        path: the run folder, created if missing and reopened if it exists.
        halves: the network, cut by `split`. Optional if the configuration names the model.
        config: the settings; optional on reopening, and must agree if given.
        progress: called during long work, as `splitwiper.progress.Progress` says: ``(what, done, total, loss=…)``.
        invitation: the secret that clients share if labels are hidden, passed to each outside the server; without
            one, the first client draws it, and clients that join on this machine take it over.
        engine: computes the server's trainings, in this process if none is given; see `splitwiper.engines`.

    Raises:
        ConfigError: settings do not agree, or ask for a device or numerics that are not available here.
        NotFoundError: there is no run, and neither halves nor settings to create one.
    """

    @isolated_call()
    def __init__(
        self,
        path: str | Path,
        halves: Halves | None = None,
        config: Config | None = None,
        *,
        progress: Progress | None = None,
        invitation: str | None = None,
        engine: Engine | None = None,
    ) -> None:
        if halves is not None and not isinstance(halves, Halves):
            raise InputError(f"halves must come from split(model, at=…, example=…), not be a {type(halves).__name__}.")
        if config is not None and not isinstance(config, Config):
            raise InputError(f"config must be a splitwiper.Config, not a {type(config).__name__}.")
        if invitation is not None:
            GroupKey.of(invitation, federation="")  # refuse too short a secret before anything is created
        self.path = Path(path).absolute()  # independent of later changes of the working directory
        self._progress = progress
        stored = self.path / FINISHED
        if stored.exists():
            self.config = check_same_settings(from_dict(Config, read_toml(stored)), config, self.path)
            prepare(self.config.client.numerics, self.config.server.numerics)
            self.halves = halves or build_halves(self.config)
        else:
            if halves is None and config is None:
                raise NotFoundError(f"there is no run in {self.path}. Learn first, or give halves to start one.")
            self.config = config or Config()
            prepare(self.config.client.numerics, self.config.server.numerics)
            check_devices(self.config)
            self.halves = halves or build_halves(self.config)
            first = self.halves.server.state_dict(), self.halves.client.state_dict()
            if not make(self.path, self.halves, self.config, *first):  # another process created it first
                self.config = check_same_settings(from_dict(Config, read_toml(stored)), config, self.path)
            warn_of_seeds(self.config)
        store = ServerStore(self.path / "server")
        with suppress(SealError):
            store.database.check()
        self._server = Server(store, self.halves.server, progress, engine=engine, model=self.config.model)
        self._link = MeteredLink(InProcessLink(self._server, self.config.client.transfer))
        self._unit_done = False
        """Whether the account of what clients spend is that of finished work: the next work starts another."""
        self._registry = ClientRegistry(
            self.path, self.halves, self.config, self._server, self._link, progress, invitation
        )
        check_halves(self.path, self.halves, self.config, self._server)
        check_settings(self.path, self._registry)

    # --- making and opening --------------------------------------------------------------------------------

    @public_call
    def twin(self, path: str | Path) -> Federation:
        """Create an empty federation with the same context: settings, initial weights, client keys and codebook.

        It learns bit for bit what this one would have learned, so "never had the data" can be tried out.

        Raises:
            AbsentClientError: the folder of a client whose rows the server has is missing: its key would differ.
        """
        target, store = Path(path), self._server.store
        refuse_used(target)
        if away := sorted({shard.client for shard in store.shards()} - set(self._registry.here())):
            raise AbsentClientError(
                f"a twin has the keys of all clients, and the folder of {', '.join(map(repr, away))} is not here: "
                "bring it back first, or forget the whole client (everything=True)."
            )
        for name in self._registry.here():
            files.make_folder(target / "clients" / name)
            for kept in ("key", "group", "initial.safetensors"):
                source = self.path / "clients" / name / kept
                if source.exists():
                    files.write_bytes(target / "clients" / name / kept, read_bytes(source))
            store_here = self._client(name).store
            if (sealed := store_here.sealed_codebook()) is not None:
                files.write_bytes(target / "clients" / name / TWIN_CODEBOOK, sealed)
            if features := store_here.database.meta(TWIN_COLUMN_ORDER):
                files.write_bytes(target / "clients" / name / TWIN_COLUMN_ORDER, features.encode())
        first = store.initial(), store.client_initial()
        if not make(target, self.halves, self.config, *first, run=store.database.meta("run")):
            refuse_used(target)
        twin = Federation(target, self.halves, progress=self._progress)
        for message in store.relay.posted(topic := store.relay.topic()):
            twin._server.post(message.sender, topic, message.place, message.body)
        return twin

    # --- clients -------------------------------------------------------------------------------------------

    @property
    def clients(self) -> tuple[str, ...]:
        """Every client the federation knows, including those that left."""
        return self._registry.everybody()

    def _client(self, name: str) -> Client:
        return self._registry.open(name)

    # --- learning ------------------------------------------------------------------------------------------

    @public_call
    def learn(
        self, datasets: Mapping[str, Source] | Iterable[tuple[str, Source]], *, tasks: Mapping[str, str] | None = None
    ) -> Learned:
        """Learn from clients' data. Later calls add clients and rows; learning the same rows again changes nothing.

        Every client's rows are checked before any are added; `reconcile` then has the clients agree on hidden labels
        and send their shards, and trains. `Client.learn` does the client's part of this for one client on its own, as
        at a site.

        Args:
            datasets: data by client name: ``(inputs, labels)``, a map-style dataset of such pairs, or a function
                without arguments that returns either. A function is called when its client's turn comes, once to
                check the rows and once to add them, so that only one client's rows are in memory at a time.
            tasks: the task of each client's labels, if clients do not all share one.

        Raises:
            DataError: the data cannot be learned from. Nothing of this call is kept then, except the rows of clients
                before one whose function returns other rows the second time. Rows that fail only in training (beyond
                the codec's range, or with a label that no codebook can get now) stay, as for TrainingError.
            TrainingError: training failed, for example because the loss diverged. The rows stay with their client until
                they are forgotten; other clients and the model stay as they were, or continue. If a request waits for
                the model, it is settled without the shard at fault, and `status` names its client.
        """
        check_devices(self.config)
        check_noise(self.config.client.noise)
        pairs = by_client(datasets)
        if not isinstance(tasks, Mapping | None):
            raise InputError(f"tasks = {tasks!r} must name the task of each client: {{'north': 'species'}}.")
        check_names([name for name, _ in pairs], known=self.clients)
        codebook, readers, labels = self._registry.codebook(), dict[str, Reader](), dict[str, set[Label]]()
        for name, data in pairs:
            task = (tasks or {}).get(name, "")
            readers[name] = Reader(data, client=name, task=task, wide=self._registry.is_wide(name))
            rows = readers[name].rows()
            self._registry.check(name, rows, task, codebook)
            labels[name] = set(rows.labels)
            del rows  # only one client's rows are in memory at a time, if functions return them
        self._registry.check_labels(labels)
        self._begin()
        added = {}
        for name, _ in pairs:
            reader = readers.pop(name)
            rows = reader.rows()
            if reader.lazy:  # these rows come from another call of the function
                self._registry.check(name, rows, reader.task, self._registry.codebook())
            self._registry.mark_pending(name)
            client = self._registry.join(name, reader.task)
            added[name] = client.add(rows)
            del reader, rows
            self._link.count(name, client.take_spent())
        before = self._server.store.model()
        done = reconcile(self._registry)
        self._finished(done, named=set(added))
        return self._learned(added, done, before)

    def _learned(self, added: Mapping[str, Added], done: Reconciled, before: ModelRecord | None) -> Learned:
        receipts, model = self._with_privacy(done.receipts), self._server.store.model()
        if model is None or (before is not None and before.file == model.file):  # nothing had to be trained
            return Learned(added, self.spent, (), 0.0, receipts, done.agreement)
        return Learned(added, self.spent, model.losses, model.seconds, receipts, done.agreement)

    def _begin(self) -> None:
        """Start a new account, unless a unit of work, from the first request to its settling, is unfinished."""
        if self._unit_done:
            self._link.spent.clear()
            self._unit_done = False

    def _finished(self, done: Reconciled, *, named: set[str] | None = None) -> None:
        """Note that a unit of work is finished; raise what went wrong with the clients that the call named."""
        self._unit_done = True
        done.check(named)

    # --- unlearning ----------------------------------------------------------------------------------------

    @public_call
    def unlearn(
        self,
        client: str,
        *,
        classes: Sequence[str | int] | None = None,
        samples: Sequence[int] | None = None,
        everything: bool = False,
    ) -> Receipt:
        """Forget a client's classes, samples or everything, now: `submit` and `settle` in one call."""
        check_devices(self.config)
        ticket = self._submit(client, classes, samples, everything)
        try:
            self._finished(reconcile(self._registry), named={client})
        except FencedError:  # another process has taken over, and may have settled the request or not
            raise
        except BusyError as problem:
            raise BusyError(
                f"the request is accepted as ticket {ticket.id}: do not ask again. But {problem}"
            ) from problem
        return self.receipt(ticket.id)

    @public_call
    def submit(
        self,
        client: str,
        *,
        classes: Sequence[str | int] | None = None,
        samples: Sequence[int] | None = None,
        everything: bool = False,
    ) -> Ticket:
        """Request forgetting. The rows are suppressed immediately and permanently; `settle` does the rest.

        Raises:
            RequestError: nothing, or more than one thing, was named, or the client does not hold it.
        """
        return self._submit(client, classes, samples, everything)

    def _submit(
        self, client: str, classes: Sequence[str | int] | None, samples: Sequence[int] | None, everything: bool
    ) -> Ticket:
        try:
            asking = self._registry.client(client)
        except AbsentClientError:
            if not everything or classes is not None or samples is not None:
                raise
            return self._server.submit(Request(secrets.token_hex(16), client, "client"))
        choice = asking.choose(classes=classes, samples=samples, everything=everything)
        self._begin()
        self._registry.mark_pending(client)  # first: if this process dies now, the next settle looks at the client
        request = asking.forget(choice)
        asking.send_requests()
        asking.pin(self.head())  # from here on, a ledger without this request is noticed
        self._link.count(client, asking.take_spent())
        return self._server.store.ticket(request.ticket)

    @public_call
    def settle(self) -> tuple[Receipt, ...]:
        """Settle all open requests with one re-training. Only the requesting clients and the server do work.

        Raises:
            AbsentClientError: requests wait for clients whose folders are missing, and none could be settled.
        """
        check_devices(self.config)
        self._begin()
        done = reconcile(self._registry)
        self._finished(done)
        return self._with_privacy(done.receipts)

    @public_call
    def rekey(self, labels: Sequence[str | int] = (), *, task: str = "") -> Agreement:
        """Have all clients agree on a new codebook, and send their rows again under its codes.

        This is the only way a codebook changes: it gets the labels that clients hold now, and those given here. Labels
        that were forgotten and that no client holds leave the codebook.

        Args:
            labels: labels to agree on besides, for rows yet to come.
            task: the task of these labels.

        Raises:
            ConfigError: labels are not hidden in this federation.
            AbsentClientError: the folder of a client whose rows the server has is missing.
        """
        check_devices(self.config)
        if not self.config.client.masking.is_on:
            raise ConfigError("labels are not hidden here (client.masking.mode = 'none'): there is no codebook.")
        self._begin()
        agreement = rekey(self._registry, [Label(task, as_learned(name)) for name in labels])
        self._finished(reconcile(self._registry))
        return agreement

    @property
    def spent(self) -> dict[str, Spent]:
        """What each client spent in the last learn or unlearn (submit and settle), and in predictions since."""
        return {name: self._link.spent.get(name, Spent()) for name in self.clients}

    @public_call
    def reupload(self, client: str) -> None:
        """Have a client send its shard again, for example because the server's copy was damaged."""
        self._client(client).sync(again=True)
        self._server.train()

    # --- using the model -----------------------------------------------------------------------------------

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of the columns of `predict_proba`, in order.

        With hidden labels these are all labels of the codebook; the probability of one that a client has forgotten
        is 0 for that client.
        """
        model = self._server.store.model()
        codebook = self._registry.codebook()
        return (codebook.labels if codebook else model.labels) if model else ()

    @public_call
    def predict_proba(self, client: str, x: Any, *, local: bool = False) -> Probabilities:
        """Return probabilities of all labels, one row per input; `labels` gives the order of the columns.

        Args:
            client: the client's name.
            x: the inputs.
            local: download the server half and compute here, so that nothing about the inputs is sent.
        """
        half = self.halves.server if local else None
        return self._asked(client, lambda asked: scoring.probabilities(asked.scores(x, local=half), self.labels))

    @public_call
    def predict_both(self, client: str, x: Any, *, local: bool = False) -> Predicted:
        """Return labels and probabilities from one answer, where `predict` and `predict_proba` would ask twice."""
        half = self.halves.server if local else None
        return self._asked(client, lambda asked: asked.predict_both(x, local=half, labels=self.labels))

    @public_call
    def predict(self, client: str, x: Any, *, local: bool = False) -> list[str | int]:
        """Return the most likely label of the client's own task for each input. Arguments as for `predict_proba`."""
        half = self.halves.server if local else None
        return self._asked(client, lambda asked: asked.predict(x, local=half))

    def _asked(self, name: str, ask: Callable[[Client], _T]) -> _T:
        """Return a client's answer, during which neither the client nor the server changed."""
        client = self._registry.client(name)
        return read_undisturbed(lambda: ask(client), client.store.database, self._server.store.database)

    @public_call
    def evaluate(self, test_sets: Mapping[str, Data]) -> Evaluation:
        """Score each client's whole network on its own test set."""
        return Evaluation({name: score(*both) for name, both in self._answers(test_sets).items()})

    def _answers(self, test_sets: Mapping[str, Data]) -> dict[str, tuple[tuple[Label, ...], tuple[Label, ...]]]:
        """Return true and predicted labels, by client."""
        answers = {}
        for name, data in by_client(test_sets):
            task = self._registry.client(name).task
            rows = as_rows(data, task=task, wide=self._registry.is_wide(name))
            check_truth(rows.labels, self.labels, name)
            predicted = self._asked(name, methodcaller("predict", rows.packed))
            answers[name] = rows.labels, tuple(Label(task, label) for label in predicted)
        return answers

    @public_call
    def retrace(self, test_sets: Mapping[str, Data]) -> tuple[Traced, ...]:
        """Score each client's whole network after every epoch of the server's training, which is run again.

        Raises:
            NotFoundError: there is no model.
            InputError: the numerics here differ, so the training would too.
        """
        return retrace(self._server, lambda: self._answers(test_sets))

    # --- looking -------------------------------------------------------------------------------------------

    def rows(self, client: str) -> dict[int, str | int]:
        """Return a client's row ids and their labels: the values that ``samples=[…]`` accepts."""
        return self._client(client).holdings.ids()

    def receipts(self) -> tuple[Receipt, ...]:
        """Return all receipts, oldest first."""
        store = self._server.store
        settled = [store.receipt(ticket.id) for ticket in store.tickets() if ticket.state == "settled"]
        return self._with_privacy(sorted(settled, key=lambda receipt: int(receipt.ledger["seq"])))

    def receipt(self, ticket: str) -> Receipt:
        """Return the receipt of one ticket."""
        return self._with_privacy([self._server.store.receipt(ticket)])[0]

    def _with_privacy(self, receipts: Sequence[Receipt]) -> tuple[Receipt, ...]:
        """Add to receipts what each requester's noise has spent so far, if it uses noise and its folder is here."""
        if not self.config.client.noise.is_on:
            return tuple(receipts)
        complete = []
        for receipt in receipts:
            if self._registry.has_joined(receipt.client):
                receipt = self._registry.open(receipt.client).with_privacy(receipt)
            complete.append(receipt)
        return tuple(complete)

    def head(self) -> Head:
        """Return the ledger's present head. Kept outside the run, it later shows whether the ledger only grew."""
        return ledger.head(self._server.store.database)

    @public_call
    def verify(self, receipt: Receipt | str | Path | None = None, *, head: Head | str | None = None) -> Verification:
        """Check that requested rows are gone, that the state follows from the rest, and that the history only grew.

        Args:
            receipt: a receipt to check (or its file, or its ticket); without one, check everything as
                it is now.
            head: a ledger head that was kept outside the run (see `head`). Only with one, or with a receipt
                kept outside, is an older copy of the whole run folder noticed.
        """
        if isinstance(receipt, str | Path):
            receipt = Receipt.load(receipt) if is_there(Path(receipt)) else self.receipt(str(receipt))
        if not isinstance(receipt, Receipt | None):
            raise InputError(f"verify takes a receipt, its file or its ticket, not {type(receipt).__name__}.")
        if not isinstance(head, Head | str | None):
            raise InputError(f"head = {head!r} must be a ledger's head, as `head` gives it, or its text.")
        return verify(
            self._server,
            self._client,
            receipt,
            here=self._registry.here(),
            head=Head.parse(head) if isinstance(head, str) else head,
            todo=lambda: leftovers(self.path, self._server.store) if receipt else self.status().todo,
        )

    def uploads(self) -> tuple[tuple[str, int, int], ...]:
        """Return the shards that the server holds: client, generation, rows."""
        return tuple((s.client, s.generation, s.rows) for s in self._server.store.shards())

    def sent(self, client: str) -> Sending:
        """Return the contents of a client's shard, to judge attacks on it. The server never has this."""
        return self._client(client).sent()

    def privacy(self, client: str) -> Spending:
        """Return what a client's noise has spent so far, of each row and of each value."""
        return self._client(client).privacy()

    def codebook(self) -> Codebook | None:
        """Return the clients' secret codebook; None if labels are not hidden, or not agreed on yet."""
        return self._registry.codebook()

    def status(self) -> RunStatus:
        """Return the run's state, its unfinished work, and which files remain on disk and why."""
        return status(self.path)
