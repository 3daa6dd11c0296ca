"""Pre-training of a client half, slice by slice (Algorithm 1, client part; Algorithm 2, steps 1 and 2).

The result is a pure function of (surviving rows, client settings, root seed, client name, key, initial weights). With
S slices, stage i trains on slices 0…i from the end of stage i−1, with a fresh optimiser, and ends with a
checkpoint. A checkpoint's key is an HMAC of everything it was computed from, so "restart from the last checkpoint that
never saw the removed rows" means: take the last one whose key still matches.

Everything here that is fitted to data is listed in `splitwiper.client.fitted`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from splitwiper.client.content import rows_digest
from splitwiper.client.fitted import labels_present, statistics
from splitwiper.client.hiding import Hiding
from splitwiper.client.local_net import Embedder, LocalNet, Normaliser, features_of
from splitwiper.config import ClientConfig, config_digest
from splitwiper.errors import DataError
from splitwiper.numerics import fingerprint, pick_device, reproducible
from splitwiper.progress import Progress
from splitwiper.seeding import Stream, encode, isolated_rng, mac
from splitwiper.training.cache import Cache
from splitwiper.training.loop import Pausing, Training, state_of
from splitwiper.training.parts import make_loss
from splitwiper.wire import Label, Shard
from splitwiper.wire.codecs import is_fitted


@dataclass(frozen=True)
class ClientHalfInputs:
    """Everything that pre-training depends on besides the rows."""

    name: str
    seed: int
    config: ClientConfig
    key: bytes
    half: nn.Module
    """The architecture; its weights are not used."""
    initial: Mapping[str, Tensor]
    initial_digest: str
    call: str
    names: tuple[str, ...]
    """The names of the inputs, in the order the half takes them."""
    floats: tuple[str, ...]
    """The names of float inputs, which the normaliser may scale."""
    hiding: Hiding | None = None
    """How labels are hidden from the server. Pre-training stays on the client and does not depend on it."""

    def fingerprint(self) -> dict[str, str]:
        """Return the numerics of training here and now. A checkpoint made under others is not resumed."""
        return fingerprint(pick_device(self.config.device), self.config.threads, self.config.numerics)

    def pinned(self) -> AbstractContextManager[None]:
        """Compute with these inputs' device, threads and numerics, whatever the caller has set."""
        return reproducible(pick_device(self.config.device), self.config.threads, self.config.numerics)


@dataclass(frozen=True)
class Checkpoint:
    """The state after a slice: tensors of the half and the local head, and the labels that the head knows."""

    state: dict[str, Tensor]
    labels: tuple[Label, ...]


class CheckpointStore(Protocol):
    """A store of checkpoints. The keys are hex HMACs."""

    def load(self, number: int, key: str) -> Checkpoint | None:
        """Return the checkpoint after slice ``number``, if there is one under this key."""
        ...

    def save(self, number: int, key: str, checkpoint: Checkpoint) -> None:
        """Store a checkpoint."""
        ...


def stage_key(half_inputs: ClientHalfInputs, rows: bytes, number: int) -> str:
    """Return the key of the state after a stage: an HMAC of everything it was computed from."""
    settings = config_digest(half_inputs.config, seed=half_inputs.seed)
    numerics = encode(chain.from_iterable(sorted(half_inputs.fingerprint().items())))
    start = (half_inputs.initial_digest, half_inputs.call, numerics)
    return mac(half_inputs.key, "stage", half_inputs.name, settings, *start, number, rows).hex()


def final_key(half_inputs: ClientHalfInputs, slices: Mapping[int, Shard]) -> str:
    """Return the key of the frozen half, given the surviving slices."""
    return stage_key(half_inputs, rows_digest(list(slices.values())), max(slices))


def half_key(half_inputs: ClientHalfInputs, slices: Mapping[int, Shard]) -> str:
    """Return the key of the frozen half with what the codec fitted, and of the shard."""
    key = final_key(half_inputs, slices)
    return mac(half_inputs.key, "half", key, half_inputs.hiding.codebook.id).hex() if half_inputs.hiding else key


def pretrain(
    half_inputs: ClientHalfInputs,
    slices: Mapping[int, Shard],
    *,
    checkpoints: CheckpointStore | None = None,
    on_stage: Progress | None = None,
) -> Pausing[dict[str, Tensor]]:
    """Train the half over its non-empty slices and return its frozen state, without the local head.

    Pauses after each epoch, so that several clients can share a GPU.
    """
    stages = _stages(slices)
    net: LocalNet | None = None
    start = 0
    # the state after the last slice is the half itself, so there is never a checkpoint of it
    for stage in reversed(range(len(stages) - 1)) if checkpoints is not None else ():
        number, rows, _ = stages[stage]
        kept = checkpoints.load(number, stage_key(half_inputs, rows, number)) if checkpoints else None
        if kept is not None:
            with half_inputs.pinned():
                net, start = _resume(half_inputs, kept), stage + 1
            break
    epochs = half_inputs.config.stage_epochs
    steps = epochs * (len(stages) - start)
    for stage in range(start, len(stages)):
        number, rows, seen = stages[stage]
        labels = labels_present(seen)
        cache = Cache(seen, labels, names=half_inputs.names)
        with half_inputs.pinned():  # a callback between stages may have set another default device
            sample, _ = cache.batch(np.arange(1))
            net = _next_net(half_inputs, cache, labels, net, sample)
        done = (stage - start) * epochs

        def on_epoch(epoch: int, _all: int, loss: float, done: int = done) -> None:
            if on_stage:
                on_stage(f"{half_inputs.name}: pre-training", done + epoch, steps, loss=loss)

        stream = Stream(half_inputs.seed, f"pretrain/{number}", half_inputs.name, rows)
        what = f"client {half_inputs.name!r}, pre-training"
        training = Training(net, cache, half_inputs.config, epochs=epochs, stream=stream, what=what, on_epoch=on_epoch)
        yield from training.steps()
        if stage < len(stages) - 1:
            checkpoint = Checkpoint(state_of(net), labels)
            if checkpoints is not None:
                checkpoints.save(number, stage_key(half_inputs, rows, number), checkpoint)
            with half_inputs.pinned():
                net = _resume(half_inputs, checkpoint)  # always, so that a resumed run takes the same path
    if net is None:
        raise DataError(f"client {half_inputs.name!r} has no rows to train on.")
    return state_of(net.embedder)


def _stages(slices: Mapping[int, Shard]) -> list[tuple[int, bytes, list[Shard]]]:
    """Return for each stage its slice's number, the digest of the rows it trains on, and the slices with these."""
    stages: list[tuple[int, bytes, list[Shard]]] = []
    seen: list[Shard] = []
    for number in sorted(slices):
        seen = [*seen, slices[number]]
        stages.append((number, rows_digest(seen), seen))
    return stages


def operations(half_inputs: ClientHalfInputs, slices: Mapping[int, Shard], *, after: int = -1) -> int:
    """Count floating-point operations of pre-training, forward and backward, in all stages after a slice."""
    stages = _stages(slices)
    every = stages[-1][2]
    labels = labels_present(every)
    cache = Cache(every, labels, names=half_inputs.names)
    rows = min(len(cache), 8)  # a few are enough: operations grow in proportion to the rows
    with (
        half_inputs.pinned(),
        isolated_rng(Stream(half_inputs.seed, "probe", half_inputs.name)),
        FlopCounterMode(display=False) as counter,
    ):
        sample, _ = cache.batch(np.arange(1))
        net = _next_net(half_inputs, cache, labels, None, sample).eval()
        inputs, codes = cache.batch(np.arange(rows))
        make_loss(half_inputs.config, torch.device("cpu"))(net(inputs).float(), codes).backward()
    passes = 0  # rows that one epoch of every stage goes over
    for number, _, seen in stages:
        if number > after:
            passes += sum(part.rows for part in seen)
    return int(counter.get_total_flops()) * passes * half_inputs.config.stage_epochs // rows


def thaw(half_inputs: ClientHalfInputs, state: Mapping[str, Tensor]) -> Embedder:
    """Return the frozen half, ready to embed."""
    half = copy.deepcopy(half_inputs.half)
    blank = {}  # the normaliser's buffers must have the state's shapes before the state can be loaded
    for number, name in enumerate(half_inputs.floats):
        if f"normaliser.mean{number}" in state:
            mean, scale = state[f"normaliser.mean{number}"], state[f"normaliser.scale{number}"]
            blank[name] = torch.empty_like(mean), torch.empty_like(scale)
    embedder = Embedder(half, half_inputs.call, Normaliser(blank))
    embedder.load_state_dict(weights_of(state))
    return embedder.eval().requires_grad_(False)


def weights_of(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a frozen state without what the codec fitted."""
    return {name: tensor for name, tensor in state.items() if not is_fitted(name)}


def _next_net(
    half_inputs: ClientHalfInputs,
    cache: Cache,
    labels: tuple[Label, ...],
    before: LocalNet | None,
    sample: Mapping[str, Tensor],
) -> LocalNet:
    """Return the net of the next stage: the half is kept, the head gains rows for labels seen for the first time.

    ``sample`` is one row, whose activations show how many features the head has.
    """
    normaliser = Normaliser(statistics(cache) if half_inputs.config.standardise else {})
    if before is not None:
        half = before.embedder.body
    else:
        half = copy.deepcopy(half_inputs.half)
        half.load_state_dict(dict(half_inputs.initial))
    embedder = Embedder(half, half_inputs.call, normaliser)
    with torch.no_grad(), isolated_rng(Stream(half_inputs.seed, "probe", half_inputs.name)):
        features = features_of(embedder.eval().cpu()(sample))
    width = half_inputs.config.head_width
    return LocalNet(
        embedder, labels, like=features, width=width, seed=half_inputs.seed, client=half_inputs.name, before=before
    )


def _resume(half_inputs: ClientHalfInputs, kept: Checkpoint) -> LocalNet:
    """Return the net as it was after a checkpoint's stage; the next stage refits its normaliser."""
    embedder = Embedder(copy.deepcopy(half_inputs.half), half_inputs.call, Normaliser({}))
    width = half_inputs.config.head_width
    first = kept.state["hidden.0.weight" if width else "out.weight"]
    net = LocalNet(embedder, kept.labels, like=first, width=width, seed=half_inputs.seed, client=half_inputs.name)
    state = dict(kept.state)
    for name in kept.state:
        if name.startswith("embedder.normaliser."):
            del state[name]
    net.load_state_dict(state)
    return net
