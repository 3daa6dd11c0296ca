"""Lies about what a model is trained on, and how. They change the service, which takes shards, and the worker."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.dishonest.lies_answering import KEPT, Lie
from splitwiper.server import Server
from splitwiper.server.training import TrainedServerHalf, TrainingInputs, first_state, train_epochs, weights_in
from splitwiper.service import running
from splitwiper.service.certificate import SigningKey
from splitwiper.service.certificate.signed import ShardStatement
from splitwiper.store import ServerStore, ShardRecord, outputs_of, tickets
from splitwiper.training.loop import Span
from splitwiper.wire import Shard, Statement, open_shard
from splitwiper.wire.commitments import shard_commitment

State = Mapping[str, Tensor]
GHOST = "ghost"
"""A site that the server invents."""
FORGED = 2
"""The epoch that is forged."""


# --- rows --------------------------------------------------------------------------------------------------


def lazy() -> None:
    """Take the new shard for nothing, keep the old one, and say that the request is settled."""

    def ignore(self: ServerStore, client: str, _staged: Path, _shard: Any, statement: Any, **how: Any) -> Any:
        with self.database.change() as db:
            tickets.answer(db, client, statement, statement.tickets, warm=False)
        record = self.shard(client)
        assert record is not None  # noqa: S101
        return dataclasses.replace(record, digest=how["digest"])

    ServerStore.accept = ignore  # type: ignore[method-assign, assign]


def _trains_on(change: Callable[[Server, Sequence[ShardRecord], list[Shard]], list[Shard]]) -> None:
    honest = Server.open_shards
    Server.open_shards = lambda self, records: change(self, records, honest(self, records))  # type: ignore[method-assign]


def _kept(server: Server, client: str) -> Path:
    """A client's shard in the copy of the store from before."""
    server_store = ServerStore(server.store.root.parent / KEPT)
    record = server_store.shard(client)
    assert record is not None  # noqa: S101
    return server_store.root / "shards" / record.file


def kept_rows() -> None:
    """Keep a copy of the shard that was withdrawn, and train on it."""

    def changed(server: Server, records: Sequence[ShardRecord], shards: list[Shard]) -> list[Shard]:
        names = [record.client for record in records]
        return [
            open_shard(_kept(server, name)) if name == "north" else shard
            for name, shard in zip(names, shards, strict=True)
        ]

    _trains_on(changed)


def altered_rows() -> None:
    """Alter the activations of another client."""

    def changed(_server: Server, records: Sequence[ShardRecord], shards: list[Shard]) -> list[Shard]:
        names = [record.client for record in records]
        return [_shifted(shard) if name == "south" else shard for name, shard in zip(names, shards, strict=True)]

    _trains_on(changed)


def added_rows() -> None:
    """Train on rows that nobody sent, besides those that were sent."""
    _trains_on(lambda _server, _records, shards: [*shards, _shifted(shards[0])])


def _shifted(shard: Shard) -> Shard:
    return dataclasses.replace(shard, columns={name: values + 0.5 for name, values in shard.columns.items()})


def _before_serving(act: Callable[[ServerStore], None]) -> None:
    """Do something to the store, once, when the server starts."""
    serve = running.open_store

    def opened(root: Path, settings: Any) -> Any:
        halves = serve(root, settings)
        done = root.parent / "done"
        if not done.exists():
            done.touch()
            act(ServerStore(root))
        return halves

    running.open_store = opened


def _entered(server_store: ServerStore, client: str, source: Path, salt: bytes, signed: Any) -> None:
    copy = server_store.root.parent / "entered"
    shutil.copy(source, copy)
    with server_store.staging(copy) as staged:
        said = Statement("", "", "", {}, salt=salt.hex())
        server_store.accept(client, staged, open_shard(staged), said, signed=json.dumps(signed) if signed else "")


def put_back() -> None:
    """Put the shard that was withdrawn back into the store, with what its site had signed of it."""

    def act(server_store: ServerStore) -> None:
        old = ServerStore(server_store.root.parent / KEPT)
        record = old.shard("north")
        assert record is not None and record.signed  # noqa: S101
        _entered(server_store, "north", old.root / "shards" / record.file, record.salt, json.loads(record.signed))

    _before_serving(act)


def invented_site() -> None:
    """Enter the shard that was withdrawn as that of a site which does not exist, registered and signed for."""

    def act(server_store: ServerStore) -> None:
        old, key, salt = ServerStore(server_store.root.parent / KEPT), SigningKey.generate(), os.urandom(32)
        record = old.shard("north")
        assert record is not None  # noqa: S101
        server_store.register_key(GHOST, key.public.raw.hex())
        said = ShardStatement(
            federation=server_store.database.meta("run") or "",
            client=GHOST,
            serial=1,
            digest=record.digest,
            commitment=shard_commitment(salt, record.digest),
            codebook="",
            outputs=0,
            tickets=(),
            made=tickets.now(),
            key=key.public.raw.hex(),
        )
        _entered(server_store, GHOST, old.root / "shards" / record.file, salt, said.sign(key))

    _before_serving(act)


def unsigned_site() -> None:
    """Enter rows in the name of a site which does not exist, and which signs nothing."""

    def act(server_store: ServerStore) -> None:
        record = server_store.shard("south")
        assert record is not None  # noqa: S101
        _entered(server_store, GHOST, server_store.root / "shards" / record.file, os.urandom(32), None)

    _before_serving(act)


# --- training ----------------------------------------------------------------------------------------------


def _computes(forge: Callable[[Server, int, State], State], *, shown: bool = True) -> None:
    """Train epoch by epoch, each from what ``forge`` makes of the state after the one before.

    Args:
        forge: given the server, the epoch that is over (0 before the first) and the state.
        shown: whether the transcript has the forged state before the first epoch, or the one that it should be.
    """

    def compute(self: Server, records: Sequence[ShardRecord], *, on_state: Any = None, **_: Any) -> Any:
        inputs: TrainingInputs = self.inputs(records)
        state: State = first_state(inputs)
        for epoch in range(inputs.config.epochs + 1):
            honest = state if epoch == 0 else train_epochs(inputs, Span(epoch - 1, epoch, state))
            state = forge(self, epoch, honest)
            if on_state is not None:
                on_state(epoch, dict(state if shown else honest))
        return TrainedServerHalf(weights_in(inputs, state), (0.0,) * inputs.config.epochs), outputs_of(records)

    Server.compute = compute  # type: ignore[method-assign, assign]


def forged_epoch() -> None:
    """Change the weights in one epoch of the training, and go on honestly from there."""

    def forge(_server: Server, epoch: int, state: State) -> State:
        return {name: tensor + 0.05 for name, tensor in state.items()} if epoch == FORGED else state

    _computes(forge)


def warm() -> None:
    """Start from the model that knew the rows, and show the first weights in the transcript."""
    _computes(lambda server, epoch, state: {**state, **_net(_last(server))} if epoch == 0 else state, shown=False)


def old_optimiser() -> None:
    """Start from the first weights with the optimiser's state of the model that knew the rows, and show that."""

    def forge(server: Server, epoch: int, state: State) -> State:
        last = _last(server)
        return {**state, **{name: last[name] for name in last.keys() - _net(last).keys()}} if epoch == 0 else state

    _computes(forge)


def _last(server: Server) -> State:
    server_store = ServerStore(server.store.root.parent / KEPT)
    return server_store.epoch_state(len(server_store.epochs()) - 1)


def _net(state: State) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name.startswith("net/")}


def untrained() -> None:
    """Save the training: publish first weights with noise, and a transcript of as many copies."""

    def compute(self: Server, records: Sequence[ShardRecord], *, on_state: Any = None, **_: Any) -> Any:
        inputs, draw = self.inputs(records), torch.Generator().manual_seed(1)
        state = {
            name: tensor + 0.01 * torch.randn(tensor.shape, generator=draw) if tensor.is_floating_point() else tensor
            for name, tensor in first_state(inputs).items()
        }
        for epoch in range(inputs.config.epochs + 1):
            if on_state is not None:
                on_state(epoch, dict(state))
        return TrainedServerHalf(weights_in(inputs, state), (0.0,) * inputs.config.epochs), outputs_of(records)

    Server.compute = compute  # type: ignore[method-assign, assign]


LIES: dict[str, Lie] = {
    made.__name__: made
    for made in (
        *(lazy, kept_rows, altered_rows, added_rows, put_back, invented_site, unsigned_site),
        *(forged_epoch, warm, old_optimiser, untrained),
    )
}
