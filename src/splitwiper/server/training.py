"""Training of the server half on the cache (Algorithm 1, server part; Algorithm 2, step 3).

The result is a pure function of (manifest content, server settings, root seed, first weights). Everything that is
fitted to data is refitted on the manifest as it is: the labels the head knows, the row order, the number of steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from splitwiper.cache import Cache
from splitwiper.config import ServerConfig
from splitwiper.heads import empty_linear, head_for, rows_of
from splitwiper.loop import OnEpoch, fit, state_of
from splitwiper.seeding import Stream
from splitwiper.splitting import ServerHalf
from splitwiper.wire import Column, Label, Shard

Watch = Callable[[int, ServerHalf], None]
"""Called after each epoch with its number and the half as it is then, which it must leave as it is."""


@dataclass(frozen=True)
class Trained:
    """A trained server half."""

    state: dict[str, Tensor]
    losses: tuple[float, ...]


class _Logits(nn.Module):
    """The server half seen by the training loop: tensors of the cut in, one row of logits out."""

    def __init__(self, half: ServerHalf) -> None:
        super().__init__()
        self.body = half

    def forward(self, boundary: Mapping[str, Tensor]) -> Tensor:
        return self.body.logits(boundary)


def train(
    template: ServerHalf,
    initial: Mapping[str, Tensor],
    shards: Sequence[Shard],
    labels: Sequence[Label],
    *,
    columns: Sequence[Column],
    config: ServerConfig,
    seed: int,
    manifest: str,
    warm: tuple[Mapping[str, Tensor], Sequence[Label]] | None = None,
    on_epoch: OnEpoch | None = None,
    watch: Watch | None = None,
) -> Trained:
    """Train the server half from the federation's first weights, or, not exactly, from a warm model.

    Args:
        template: the architecture; its weights are not used.
        initial: the first weights, head included.
        shards: the manifest's shards, sorted by client.
        labels: every label some shard holds: the outputs.
        columns: what crosses the cut, in order.
        config: the server's settings.
        seed: the root seed.
        manifest: the manifest's digest, which names the streams.
        warm: state and labels of the model to go on from.
        on_epoch: told of progress.
        watch: sees the half after each epoch.
    """

    def told(epoch: int, epochs: int, loss: float) -> None:
        if on_epoch:
            on_epoch(epoch, epochs, loss)
        if watch:
            watch(epoch, half.eval())
            half.train()

    half = with_head(template, initial, labels, seed=seed, warm=warm)
    losses = fit(
        _Logits(half),
        Cache(shards, labels, names=[c.name for c in columns], columns=columns),
        config,
        epochs=config.epochs,
        stream=Stream(seed, "server", "", bytes.fromhex(manifest)),
        what="server training",
        on_epoch=told,
    )
    return Trained(state_of(half), losses)


def with_head(
    template: ServerHalf,
    initial: Mapping[str, Tensor],
    labels: Sequence[Label],
    *,
    seed: int,
    warm: tuple[Mapping[str, Tensor], Sequence[Label]] | None = None,
    purpose: str = "head",
) -> ServerHalf:
    """A server half at its start: first weights, and a head with one row per label, drawn for a purpose."""
    half = copy.deepcopy(template)
    prefix = f"{half.head_name}."
    body, known, dtype = initial, None, half.head.weight.dtype
    if warm is not None:
        body = warm[0]
        old = empty_linear(half.head.in_features, len(warm[1]), bias=half.head.bias is not None, dtype=dtype)
        old.load_state_dict({k.removeprefix(prefix): v for k, v in body.items() if k.startswith(prefix)})
        known = rows_of(old, warm[1])
    head = head_for(
        labels,
        inputs=half.head.in_features,
        seed=seed,
        purpose=purpose,
        bias=half.head.bias is not None,
        dtype=dtype,
        known=known,
    )
    half.set_head(head)
    start = {k: v for k, v in body.items() if not k.startswith(prefix)}
    start |= {f"{prefix}{k}": v for k, v in head.state_dict().items()}
    half.load_state_dict(start)
    return half
