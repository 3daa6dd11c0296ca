"""The server: it accepts shards, keeps tickets, trains, and predicts. It is the in-process end of a `Link`."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from splitwiper.cache import to_device
from splitwiper.certainty import disturbed, same_fault
from splitwiper.config import ServerConfig, from_dict, read_toml
from splitwiper.errors import (
    BusyError,
    CorruptError,
    DataError,
    ForbiddenError,
    NotFoundError,
    UntrainableError,
)
from splitwiper.loop import OnState
from splitwiper.numerics import device_at_hand, fingerprint, pick_device, reproducible
from splitwiper.seeding import state_digest
from splitwiper.server.blame import blame
from splitwiper.server.limits import Limits
from splitwiper.server.pace import answers, check_pace, put_off
from splitwiper.server.recording import Recorder
from splitwiper.server.training import Trained, TrainingInputs, Watch, train
from splitwiper.server.transcript import EpochCheck, Transcript, check_end, check_first, recompute_epoch
from splitwiper.splitting import ServerHalf, identity
from splitwiper.store import ModelRecord, ServerTree, ShardRecord, exclusion, files, manifest_digest, outputs_of
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
    open_shard,
)
from splitwiper.wire.codecs import unpack
from splitwiper.wire.commitments import model_commitment
from splitwiper.wire.shard import check_shard

Progress = Callable[[str, int, int], None]
_log = logging.getLogger("splitwiper")


class Server:
    """The server over its own folder.

    Args:
        tree: the folder.
        half: the architecture.
        progress: told of long work.
        shared: its clients are apart, and not all need know each other: none can erase what others say, or bring codes
            that the others' codebook does not know. A shard with which training fails is set aside at once.
        limits: what is accepted of any one client.
    """

    def __init__(
        self,
        tree: ServerTree,
        half: ServerHalf,
        progress: Progress | None = None,
        *,
        shared: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.tree = tree
        self._shared, self.limits = shared, limits or Limits()
        self.config = from_dict(ServerConfig, read_toml(tree.root / "config.toml"))
        self.seed = tree.book.number("seed")
        self.columns = tree.columns()
        self.codec = tree.book.meta("codec") or "none"
        self._half = half
        self._progress = progress
        self._device = device_at_hand(self.config.device)  # for predictions, which are free to use another one
        self._ready: tuple[str, ServerHalf] | None = None
        self.before_set_aside: Callable[[str], None] = lambda _: None
        """Told of a client before its shard is set aside."""

    @property
    def network(self) -> str:
        """The identity of the server half at hand: its code and constants, whatever its weights."""
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
        """Check a shard and make it the client's; the one before is erased.

        Args:
            client: whose it is.
            shard: the file.
            statement: what the client says with it.
            digest: of the file, where the server itself took it from these very bytes as they came in; never what a
                client says. None has it taken here.
            travelled: bytes it took on its way, where that is not its size.
            signed: what the client's own key signed about it, where clients sign.

        Raises:
            DataError: it cannot be trained on, or is beyond a limit.
            ForbiddenError: an operator evicted the client.
            QuotaError: others wait for the model, and the client has sent shards again and again. If this one answers
                a request, the one before it was erased.
        """
        self.check_admitted(client, statement)
        if answers(self.tree, client, statement):
            put_off(self.tree, client, self.limits)
        with self.tree.staging(shard) as staged:
            opened = open_shard(staged)
            check_shard(opened, self.columns, self.codec, client=client, largest=self.limits.largest_value)
            self._check_codes(client, opened, statement)
            known = digest if staged.samefile(shard) else None  # a copy is not what was digested
            record = self.tree.accept(
                client, staged, opened, statement, digest=known, travelled=travelled, signed=signed
            )
        return Accepted(record.digest, record.generation)

    def standing(self, client: str, reason: str = "an operator decided so") -> Standing:
        """Say whether a client's shard was erased without its doing, or none of it is accepted.

        Args:
            client: the client.
            reason: why it is evicted, if it is.
        """
        entry = exclusion.taken_away(self.tree, client) or {}
        evicted = reason if exclusion.is_evicted(self.tree, client) else ""
        return Standing(int(entry.get("seq", 0)), str(entry.get("by", "")), str(entry.get("why", "")), evicted)

    def check_admitted(self, client: str, statement: Statement) -> None:
        """Refuse a shard before it is sent or looked at.

        Raises:
            ForbiddenError: an operator evicted the client.
            DataError: what comes with it is beyond a limit.
            BusyError: it has sent shards again and again while others wait for the model, or its shard was erased and
                it does not know yet.
        """
        if exclusion.is_evicted(self.tree, client):
            raise ForbiddenError(
                f"an operator has evicted client {client!r}: its shard was erased, and no other is accepted until an "
                "operator admits it again. Requests to forget are answered all the same."
            )
        self.limits.check_statement(client, statement)
        check_pace(self.tree, client, statement, self.limits)

    def _check_codes(self, client: str, shard: Shard, statement: Statement) -> None:
        """Refuse labels in the clear where others hide theirs, and codes beyond what the client says there are.

        Raises:
            DataError: naming what does not fit.
        """
        others = [other for other in self.tree.shards() if other.client != client]
        if not statement.codebook:
            self.limits.check_labels(client, shard, others)
            if any(other.codebook for other in others):
                raise DataError(
                    f"client {client!r} sent labels as they are, where the others hide theirs: it did not take part in "
                    "the consensus. Have it join with the invitation secret; nothing was kept."
                )
        elif odd := [x.name for x in shard.labels if x.task or x.name not in range(statement.outputs)]:
            raise DataError(f"client {client!r} sent code {odd[0]!r}; its codebook has 0 to {statement.outputs - 1}.")
        elif self._shared and any(
            (other.codebook, other.outputs) != (statement.codebook, statement.outputs) for other in others
        ):
            raise DataError(
                f"client {client!r} hides labels by another codebook than the others, or they hide none: it agreed in "
                "another group. Have it join anew, in a new folder, with the group's key and settings; nothing was "
                "kept."
            )

    def withdraw(self, client: str, statement: Statement) -> None:
        """Erase the client's shard; nothing replaces it."""
        self.tree.withdraw(client, statement, answers=statement.tickets)

    def submit(self, request: Request, *, at_once: bool = True) -> Ticket:
        """Record a request to be forgotten. Where clients are apart, one without a shard is answered at once.

        Args:
            request: what is asked.
            at_once: False where a shard of the client is just being taken in.
        """
        return self.tree.submit(request, at_once=self._shared and at_once)

    def tickets(self, client: str) -> tuple[Ticket, ...]:
        """Every request made in this client's name, and where it stands."""
        return self.tree.tickets(client)

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Relay a sealed message to the other clients."""
        self.tree.post(client, topic, place, body, shared=self._shared)

    def topic(self) -> str:
        """What is being talked about on the board, or was last."""
        return self.tree.topic()

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """The messages of a topic, from a place on."""
        return self.tree.posted(topic, since)

    def model(self, client: str) -> ModelCopy:
        """Hand out the server half."""
        record = self._model()
        committed = model_commitment(record.salt, record.digest)
        return ModelCopy(self.tree.weights(record), record.labels, record.codebook, committed, record.salt.hex())

    def _model(self) -> ModelRecord:
        model = self.tree.model()
        if model is None:
            if self.tree.shards() and self.tree.book.is_held():
                raise BusyError("the model is being trained by another process: try again once it has finished.")
            what = (
                "its training was interrupted: call settle (or learn) to finish it"
                if self.tree.shards()
                else "nobody holds any rows: learn first"
            )
            raise NotFoundError(f"there is no model to predict with; {what}.")
        return model

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half on activations."""
        model = self._model()
        if self._ready is None or self._ready[0] != model.file:
            half = self._half.loaded(self.tree.weights(model)).to(self._device)
            self._ready = (model.file, half)
        with reproducible(self._device, self.config.threads, self.config.numerics), torch.inference_mode():
            tensors = unpack(to_device(boundary, self._device), self.columns, self.codec)
            logits = self._ready[1].logits(tensors).float().cpu()
        return Scores(model.labels, logits, model.codebook, model_commitment(model.salt, model.digest))

    @contextmanager
    def answering(self, half: ServerHalf) -> Iterator[None]:
        """Answer with another half for a while, say one that is being trained."""
        kept, self._ready = self._ready, (self._model().file, half)
        try:
            yield
        finally:
            self._ready = kept

    # --- training ------------------------------------------------------------------------------------------

    def train(self) -> tuple[Receipt, ...]:
        """Bring the model up to date with the manifest, settle the tickets it answers, and return their receipts.

        Where the shards cannot be trained on, the one at fault is set aside if clients are apart, or if a request waits
        for the model: no client's rows keep another's from being forgotten.

        Raises:
            TrainingError: training went wrong. In one process, where nobody waits, nothing is set aside.
        """
        with self.tree.book.lease("server training"):
            self.tree.sweep()
            while not (self.tree.is_current() and self._is_whole(self.tree.model())):
                shards = self.tree.shards()
                try:
                    receipts = self._train_once(shards)
                except UntrainableError as problem:
                    self._set_aside(shards, problem)
                    continue
                if receipts is not None:  # None: a shard changed under way, so train on the new manifest
                    return receipts
        return ()

    def _set_aside(self, shards: tuple[ShardRecord, ...], problem: UntrainableError) -> None:
        """Find the shard with which training fails, and erase it. Nothing is done if shards changed meanwhile.

        Raises:
            BusyError: training does not fail every time: something else in this program had a part in it.
            UntrainableError: nobody waits, and the settings are at fault rather than a shard: no shard can be trained
                on, not even alone. Or there is no network between the clients and nobody waits.
        """
        waiting = any(ticket.state == "erased" for ticket in self.tree.waiting())
        if not (waiting or self._shared):
            raise problem
        if not self._fails_again(shards, problem):
            return
        found = blame(self, shards)
        if found is None:
            return
        if not (found.by_comparison or waiting):
            raise problem
        client, why = found.shard.client, "training with this shard fails"
        _log.error("the shard of client %r is set aside, since training fails with it: %s", client, problem)
        self.before_set_aside(client)
        exclusion.set_aside(self.tree, client, by="training", why=why, file=found.shard.file)

    def _fails_again(self, shards: Sequence[ShardRecord], problem: UntrainableError) -> bool:
        """Whether training on shards fails as it did; nothing is erased for a fault that does not repeat.

        Raises:
            BusyError: it does not.
        """
        try:
            self.compute(shards, warm=self.warm_start())
        except UntrainableError as again:
            if same_fault(problem, again):
                return True
        except CorruptError:
            if self.tree.shards() != shards:
                return False
            raise
        raise disturbed("server training") from problem

    def _is_whole(self, model: ModelRecord | None) -> bool:
        """Whether the model in use, if there is one, can be read; if not, it is trained again."""
        try:
            return model is None or bool(self.tree.weights(model))
        except CorruptError:
            return False

    def warm_start(self) -> tuple[Mapping[str, Tensor], tuple[Label, ...]] | None:
        """Return the weights and labels that training goes on from; None where it starts from the first weights."""
        old = self.tree.model()
        if old is None or self.config.start != "warm" or not self._is_whole(old):
            return None
        return self.tree.weights(old), old.labels

    def _train_once(self, shards: Sequence[ShardRecord]) -> tuple[Receipt, ...] | None:
        manifest = manifest_digest(shards)
        if not shards:
            return self.tree.publish(None, None, manifest=manifest)
        start = time.perf_counter()
        old, warm = self.tree.model(), self.warm_start()
        recorder = Recorder(self.tree) if self.config.transcript and warm is None else None
        with recorder or nullcontext():
            try:
                trained, labels = self.compute(shards, warm=warm, on_state=recorder)
            except CorruptError:
                if self.tree.shards() != shards:  # one was replaced before it was opened, if only by an equal file
                    return None
                raise
            epochs = recorder.records() if recorder else ()
            value = state_digest(trained.state)
            same = old is not None and (old.digest, old.manifest) == (value, manifest)  # receipts go on to vouch for it
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
            return self.tree.publish(record, trained.state, manifest=manifest, epochs=epochs)

    def inputs(self, shards: Sequence[ShardRecord]) -> TrainingInputs:
        """What a training on a manifest is a function of; the shards are opened and checked."""
        return TrainingInputs(
            template=self._half,
            initial=self.tree.initial(),
            shards=self.open_shards(shards),
            labels=outputs_of(shards),
            columns=self.columns,
            config=self.config,
            seed=self.seed,
            manifest=manifest_digest(shards),
        )

    def compute(
        self,
        shards: Sequence[ShardRecord],
        *,
        warm: tuple[Mapping[str, Tensor], tuple[Label, ...]] | None = None,
        on_state: OnState | None = None,
        watch: Watch | None = None,
    ) -> tuple[Trained, tuple[Label, ...]]:
        """Train on a manifest, without keeping anything."""
        trained = train(self.inputs(shards), warm=warm, on_epoch=self._on_epoch, on_state=on_state, watch=watch)
        return trained, outputs_of(shards)

    # --- the transcript ------------------------------------------------------------------------------------

    def transcript(self) -> Transcript:
        """The transcript of the model in use.

        Raises:
            NotFoundError: there is no model, or it was trained without a transcript.
            CorruptError: the digests are not those that the model was published with.
        """
        model = self._model()
        if not model.transcript:
            raise NotFoundError("the model has no transcript: make a run with transcript = true, start = 'initial'.")
        transcript = Transcript(tuple(record.digest for record in self.tree.epochs()))
        if not transcript.digests or transcript.root != model.transcript:
            raise CorruptError(f"{self.tree.book.path} does not have the transcript of its model: restore a backup.")
        return transcript

    def recompute_epoch(self, epoch: int) -> EpochCheck:
        """Recompute one epoch of the model's training from the state before it (see `transcript.recompute_epoch`).

        Raises:
            NotFoundError: there is no transcript or no such epoch, or shards changed since.
            CorruptError: a state or a shard cannot be read.
        """
        with self._audited() as (inputs, transcript, _):
            return recompute_epoch(inputs, transcript, epoch, self.tree.epoch_state(epoch - 1))

    def check_ends(self) -> tuple[EpochCheck, EpochCheck]:
        """Check that the transcript begins with the first weights and ends with the model in use."""
        with self._audited() as (inputs, transcript, model):
            last = self.tree.epoch_state(transcript.epochs)
            return check_first(inputs, transcript), check_end(inputs, transcript, last, model.digest)

    @contextmanager
    def _audited(self) -> Iterator[tuple[TrainingInputs, Transcript, ModelRecord]]:
        """What the model was trained from, and as many threads as it was trained with."""
        transcript, model, shards = self.transcript(), self._model(), self.tree.shards()
        if model.manifest != manifest_digest(shards):
            raise NotFoundError(
                "shards changed since the model was trained, so its epochs cannot be recomputed: call settle first."
            )
        with reproducible(pick_device(self.config.device), int(model.fingerprint["threads"]), self.config.numerics):
            yield self.inputs(shards), transcript, model

    def open_shards(self, shards: Sequence[ShardRecord]) -> list[Shard]:
        """Open shards; their bytes are checked side by side."""
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as readers:
            return list(readers.map(self.tree.open, shards))

    def _on_epoch(self, done: int, total: int, _loss: float) -> None:
        if self._progress:
            self._progress("server: training", done, total)

    def fingerprint(self) -> dict[str, str]:
        """The numerics of training here and now."""
        return fingerprint(pick_device(self.config.device), self.config.threads, self.config.numerics)
