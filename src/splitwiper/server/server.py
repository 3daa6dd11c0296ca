"""The server: accepts shards, keeps tickets, trains, and predicts. Links lead to it, in one process or over HTTPS."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import torch
from torch import Tensor

from splitwiper.certainty import disturbed, same_fault
from splitwiper.config import ModelConfig, ServerConfig, from_dict, origins, read_toml
from splitwiper.errors import BusyError, CorruptError, DataError, ForbiddenError, NotFoundError, UntrainableError
from splitwiper.numerics import device_at_hand, fingerprint, pick_device, reproducible
from splitwiper.progress import Progress
from splitwiper.seeding import state_digest
from splitwiper.server.blame import blame
from splitwiper.server.limits import ShardLimits, answers_request, check_pace, put_off
from splitwiper.server.recording import TranscriptRecorder
from splitwiper.server.training import (
    Engine,
    Local,
    ShardsChanged,
    StopIfShardsChange,
    TrainedServerHalf,
    TrainingInputs,
    Warm,
    Watch,
    train,
)
from splitwiper.server.transcript import Transcript
from splitwiper.splitting import ServerHalf, identity
from splitwiper.store import ModelRecord, ServerStore, ShardRecord, exclusion, files, manifest_digest, outputs_of
from splitwiper.training.cache import to_device
from splitwiper.training.loop import OnState, OnStep
from splitwiper.wire import (
    Accepted,
    Label,
    ModelCopy,
    Posted,
    Receipt,
    Request,
    Scores,
    Shard,
    Standing,
    Statement,
    Ticket,
    lock_of,
    open_shard,
)
from splitwiper.wire.codecs import prepare, unpack
from splitwiper.wire.commitments import model_commitment
from splitwiper.wire.shard_check import check_shard

_log = logging.getLogger("splitwiper")


class Server:
    """The server over its own folder.

    Args:
        store: the server's store.
        half: the architecture of the server half.
        progress: called during long work.
        shared: whether clients are separate parties that need not know each other: no client can erase another's
            messages, or bring codes that the others' codebook lacks, and a shard that makes training fail is set
            aside immediately.
        limits: what is accepted from one client.
        engine: computes trainings, in this process if none is given.
        model: how an engine's other processes make the half.
    """

    def __init__(
        self,
        store: ServerStore,
        half: ServerHalf,
        progress: Progress | None = None,
        *,
        shared: bool = False,
        limits: ShardLimits | None = None,
        engine: Engine | None = None,
        model: ModelConfig | None = None,
    ) -> None:
        self.store = store
        self._shared, self.limits = shared, limits or ShardLimits()
        self.config = from_dict(ServerConfig, read_toml(store.root / "config.toml"))
        self.seed = store.database.number("seed")
        self.columns = store.columns()
        self.codec = prepare(store.database.meta("codec") or "none")
        self._half, self._engine, self._model_config = half, engine or Local(), model or ModelConfig()
        self._progress = progress
        self._device = device_at_hand(self.config.device)  # for predictions, which are free to use another one
        self._ready: tuple[str, ServerHalf] | None = None
        self.before_set_aside: Callable[[str], None] = lambda _: None
        """Called with a client's name before its shard is set aside."""

    @property
    def network(self) -> str:
        """The identity of the given server half: its code and constants, whatever its weights."""
        return identity(self._half)

    # --- the link ------------------------------------------------------------------------------------------

    def upload(
        self,
        client: str,
        shard: Path,
        statement: Statement,
        *,
        digest: str | None = None,
        travelled: int | None = None,
        signed: str | None = None,
    ) -> Accepted:
        """Check a shard and make it the client's; the previous one is erased.

        ``digest`` is the file's digest if the server itself computed it from the bytes as they arrived; never one that
        the client reports. ``travelled`` is the bytes transferred, if not the file's size; ``signed`` the client's own
        signature of the shard, if clients sign.

        Raises:
            DataError: it cannot be trained on, or exceeds a limit.
            ForbiddenError: an operator evicted the client.
            QuotaError: others wait for the model, and the client has sent too many shards. If this one answers
                a request, the previous one was erased.
        """
        self.check_admitted(client, statement)
        # before the shard is examined: a request is honoured however large or wrong the shard is that comes with it
        if answers_request(self.store, client, statement):
            put_off(self.store, client, self.limits)
        with self.store.staging(shard) as staged:
            opened = open_shard(staged)
            check_shard(opened, self.columns, self.codec, client=client, largest=self.limits.largest_value)
            self.limits.check_rows(client, opened)
            self._check_codes(client, opened, statement)
            known = digest if staged.samefile(shard) else None  # the digest is not of a copy
            record = self.store.accept(
                client, staged, opened, statement, digest=known, travelled=travelled, signed=signed
            )
        return Accepted(record.digest, record.generation, record.size if travelled is None else travelled)

    def standing(self, client: str, reason: str = "an operator decided so") -> Standing:
        """Return whether the server erased a client's shard of its own accord, or accepts none from it, and why."""
        entry = exclusion.taken_away(self.store, client) or {}
        evicted = reason if exclusion.is_evicted(self.store, client) else ""
        return Standing(int(entry.get("seq", 0)), str(entry.get("by", "")), str(entry.get("why", "")), evicted)

    def check_admitted(self, client: str, statement: Statement) -> None:
        """Refuse a shard before it is sent or examined."""
        if exclusion.is_evicted(self.store, client):
            raise ForbiddenError(
                f"an operator has evicted client {client!r}: its shard was erased, and no other is accepted until an "
                "operator admits it again. Requests to forget are answered all the same."
            )
        self.limits.check_statement(client, statement)
        check_pace(self.store, client, statement, self.limits)

    def _check_codes(self, client: str, shard: Shard, statement: Statement) -> None:
        """Refuse plain labels if others hide theirs, and codes outside the codebook that the client states."""
        books, labels = set[tuple[str, int]](), set[Label]()
        for codebook, outputs, held in self.store.codes_beside(client):
            books.add((codebook, outputs))
            labels.update(held)
        codes = range(statement.outputs)
        if not statement.codebook:
            self.limits.check_labels(client, shard, labels)
            if any(codebook for codebook, _ in books):
                raise DataError(
                    f"client {client!r} sent labels as they are, where the others hide theirs: it did not take part in "
                    "the consensus. Have it join with the invitation secret; nothing was kept."
                )
            return
        for label in shard.labels:
            if label.task or label.name not in codes:
                raise DataError(f"client {client!r} sent code {label.name!r}; its codebook has 0 to {len(codes) - 1}.")
        if self._shared and books - {(statement.codebook, statement.outputs)}:
            raise DataError(
                f"client {client!r} hides labels by another codebook than the others, or they hide none: it agreed in "
                "another group. Have it join anew, in a new folder, with the group's key and settings; nothing was "
                "kept."
            )

    def withdraw(self, client: str, statement: Statement) -> None:
        """Erase the client's shard without a replacement."""
        self.store.withdraw(client, statement, answers=statement.tickets)

    def submit(self, request: Request, *, at_once: bool = True) -> Ticket:
        """Record a request to forget. Over a network, one from a client without a shard is answered immediately.

        ``at_once`` is False while a shard of the client is just being accepted.
        """
        return self.store.submit(request, at_once=self._shared and at_once)

    def tickets(self, client: str) -> tuple[Ticket, ...]:
        """Return every request made in this client's name, and its state."""
        return self.store.tickets(client)

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Relay a sealed message to the other clients."""
        self.store.relay.post(client, topic, place, body, shared=self._shared)

    def ended(self, topic: str, proof: bytes = b"") -> None:
        """Erase an abandoned negotiation for whoever has its proof. One that led to a codebook stays."""
        if proof:
            self.store.relay.erase(topic, lock_of(proof))

    def topic(self) -> str:
        """Return the current topic on the relay, or the latest one."""
        return self.store.relay.topic()

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Return the messages of a topic, from a sequence number on."""
        return self.store.relay.posted(topic, since)

    def model(self, client: str) -> ModelCopy:
        """Return the server half."""
        record = self._model()
        committed = model_commitment(record.salt, record.digest)
        return ModelCopy(self.store.weights(record), record.labels, record.codebook, committed, record.salt.hex())

    def _model(self) -> ModelRecord:
        model = self.store.model()
        if model is None:
            if self.store.shards() and self.store.database.is_held():
                raise BusyError("the model is being trained by another process: try again once it has finished.")
            remedy = "nobody holds any rows: learn first"
            if self.store.shards():
                remedy = "its training was interrupted: call settle (or learn) to finish it"
            raise NotFoundError(f"there is no model to predict with; {remedy}.")
        return model

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half on activations."""
        model = self._model()
        # a model's file has a random name, so another model never has the name of the one that is loaded
        if self._ready is None or self._ready[0] != model.file:
            half = self._half.loaded(self.store.weights(model)).to(self._device)
            self._ready = (model.file, half)
        with reproducible(self._device, self.config.threads, self.config.numerics), torch.inference_mode():
            tensors = unpack(to_device(boundary, self._device), self.columns, self.codec)
            logits = self._ready[1].logits(tensors).float().cpu()
        return Scores(model.labels, logits, model.codebook, model_commitment(model.salt, model.digest))

    @contextmanager
    def answering(self, half: ServerHalf) -> Iterator[None]:
        """Answer with another half for a while, for example one that is being trained."""
        kept, self._ready = self._ready, (self._model().file, half)
        try:
            yield
        finally:
            self._ready = kept

    # --- training ------------------------------------------------------------------------------------------

    def train(self) -> tuple[Receipt, ...]:
        """Bring the model up to date with the manifest, settle the tickets it answers, and return their receipts.

        If the shards cannot be trained on, the one at fault is set aside, provided that clients are separate parties or
        a request waits for the model: no client's rows keep another's from being forgotten.

        Raises:
            TrainingError: training failed. In one process, with no request waiting, nothing is set aside.
        """
        with self.store.database.lease("server training"):
            self.store.sweep()
            # again and again: shards may come and go during a training, and one may have to be set aside
            while not (self.store.is_current() and self._is_whole(self.store.model())):
                shards = self.store.shards()
                with suppress(ShardsChanged):  # train on the new manifest
                    try:
                        receipts = self._train_once(shards)
                        if receipts is not None:  # None: a shard changed just before publication
                            return receipts
                    except UntrainableError as problem:
                        self._set_aside(shards, problem)
        return ()

    def _set_aside(self, shards: tuple[ShardRecord, ...], problem: UntrainableError) -> None:
        """Find the shard with which training fails, and erase it. Nothing is done if shards changed meanwhile.

        Raises:
            BusyError: training does not fail every time: something else in this process interfered.
            UntrainableError: no request waits, and the settings are at fault rather than a shard: no shard can be
                trained on, not even alone. Or there is no network between the clients and no request waits.
        """
        waiting = any(ticket.state == "erased" for ticket in self.store.waiting())
        if not (waiting or self._shared):
            raise problem
        blamed = blame(self, shards) if self._fails_again(shards, problem) else None
        if blamed is None:
            return
        if not (blamed.by_comparison or waiting):
            raise problem
        # the file is named, so that a shard which the client sends just now is not erased in place of this one
        client, why = blamed.shard.client, "training with this shard fails"
        _log.error("the shard of client %r is set aside, since training fails with it: %s", client, problem)
        self.before_set_aside(client)
        exclusion.set_aside(self.store, client, by="training", why=why, file=blamed.shard.file)

    def _fails_again(self, shards: Sequence[ShardRecord], problem: UntrainableError) -> bool:
        """Return whether training on shards fails as it did; False if shards changed meanwhile.

        It is tried in this process: a fault of the machines that an engine uses must not erase anything.

        Raises:
            BusyError: it does not fail in the same way. A fault that does not repeat must not erase anything.
        """
        try:
            stop = StopIfShardsChange(self.store, shards)
            train(self.inputs(shards), warm=self.warm_start(), on_epoch=self._on_epoch, on_step=stop)
        except UntrainableError as again:
            if same_fault(problem, again):
                return True
        except CorruptError:
            if self.store.shards() != shards:
                return False
            raise
        if isinstance(self._engine, Local):
            raise disturbed("server training") from problem
        raise BusyError(
            f"server training fails with this engine ({problem}), and otherwise or not at all in this process: look at "
            "the machines that it uses, or train with engine = 'local'; then call again."
        ) from problem

    def _is_whole(self, model: ModelRecord | None) -> bool:
        """Return whether the model in use, if any, can be read; if not, it is trained again."""
        try:
            return model is None or bool(self.store.weights(model))
        except CorruptError:
            return False

    def warm_start(self) -> Warm | None:
        """Return the weights and labels that training continues from; None if it starts from the initial weights."""
        old = self.store.model()
        if old is None or self.config.start != "warm" or not self._is_whole(old):
            return None
        return self.store.weights(old), old.labels

    def _train_once(self, shards: Sequence[ShardRecord]) -> tuple[Receipt, ...] | None:
        """Train on a manifest, and publish the model; None if shards changed meanwhile, and nothing was published."""
        manifest = manifest_digest(shards)
        if not shards:
            return self.store.publish(None, None, manifest=manifest)
        start = time.perf_counter()
        old, warm = self.store.model(), self.warm_start()
        # a warm training starts from an earlier model, which nobody can recompute: its transcript would prove nothing
        recorder = TranscriptRecorder(self.store) if self.config.transcript and warm is None else None
        with recorder or nullcontext():
            try:
                stop = StopIfShardsChange(self.store, shards)
                trained, labels = self.compute(shards, warm=warm, on_state=recorder, on_step=stop)
            except CorruptError:
                if self.store.shards() != shards:  # one was replaced before it was opened, possibly by an equal file
                    return None
                raise
            epochs = recorder.records() if recorder else ()
            value = state_digest(trained.state)
            same = old is not None and (old.digest, old.manifest) == (value, manifest)  # receipts stay valid for it
            record = ModelRecord(
                file=files.random_name("model"),
                digest=value,
                manifest=manifest,
                salt=old.salt if old and same else secrets.token_bytes(32),
                labels=labels,
                exact=warm is None,
                fingerprint=self.fingerprint(),
                seconds=time.perf_counter() - start,
                losses=trained.losses,
                codebook=shards[0].codebook,
                transcript=Transcript(tuple(e.digest for e in epochs)).root if epochs else "",
            )
            return self.store.publish(record, trained.state, manifest=manifest, epochs=epochs)

    def inputs(self, shards: Sequence[ShardRecord]) -> TrainingInputs:
        """Return everything that a training on a manifest is a function of; the shards are opened and checked."""
        return TrainingInputs(
            template=self._half,
            initial=self.store.initial(),
            shards=self.open_shards(shards),
            labels=outputs_of(shards),
            columns=self.columns,
            config=self.config,
            seed=self.seed,
            manifest=manifest_digest(shards),
            model=self._model_config,
        )

    def compute(
        self,
        shards: Sequence[ShardRecord],
        *,
        warm: Warm | None = None,
        on_state: OnState | None = None,
        on_step: OnStep | None = None,
        watch: Watch | None = None,
    ) -> tuple[TrainedServerHalf, tuple[Label, ...]]:
        """Train on a manifest without storing anything."""
        inputs = self.inputs(shards)
        if watch:  # it is given the half itself, so it must be trained here
            trained = train(inputs, warm=warm, on_epoch=self._on_epoch, on_step=on_step, watch=watch)
        else:
            trained = self._engine.train(
                inputs,
                folder=self.store.root / "incoming",
                warm=warm,
                on_epoch=self._on_epoch,
                on_state=on_state,
                on_step=on_step,
            )
        return trained, outputs_of(shards)

    # --- the transcript ------------------------------------------------------------------------------------

    def transcript(self) -> Transcript:
        """Return the transcript of the model in use, checked against the digest that it was published with."""
        model = self._model()
        if not model.transcript:
            raise NotFoundError("the model has no transcript: make a run with transcript = true, start = 'initial'.")
        transcript = Transcript(tuple(record.digest for record in self.store.epochs()))
        if not transcript.digests or transcript.root != model.transcript:
            raise CorruptError(
                f"{self.store.database.path} does not have the transcript of its model: restore a backup."
            )
        return transcript

    def open_shards(self, shards: Sequence[ShardRecord]) -> list[Shard]:
        """Open shards; their bytes are checked in parallel."""
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as readers:
            return list(readers.map(self.store.open, shards))

    def _on_epoch(self, done: int, total: int, loss: float) -> None:
        if self._progress:
            self._progress("server: training", done, total, loss=loss)

    def fingerprint(self) -> dict[str, str]:
        """Return the numerics of training here and now, and the parts from outside that take part in it."""
        outside = {name: str(origin) for name, origin in origins(self.config).items()}
        found = fingerprint(pick_device(self.config.device), self.config.threads, self.config.numerics)
        if self.config.lanes > 1:
            del found["world_size"]  # any number of processes may have shared the work, and no bit depends on it
        return outside | found
