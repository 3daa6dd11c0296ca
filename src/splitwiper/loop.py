"""The training loop, the same for client halves and the server half, on the CPU and on a GPU.

`training` is the loop. It pauses after each epoch's work is handed to the device, so that several small nets can share
a GPU, each on its own stream; `fit` runs one to its end. `feeding` knows how rows reach the device, `stepping` what is
done with a batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from splitwiper.cache import Cache
from splitwiper.config import Recipe
from splitwiper.errors import TrainingError, UntrainableError
from splitwiper.feeding import feed_for
from splitwiper.numerics import pick_device, reproducible
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.stepping import State, Step

OnEpoch = Callable[[int, int, float], None]
"""Called after each epoch with (epochs done, epochs in all, mean loss)."""
OnState = Callable[[int, State], None]
"""Called before the first epoch and after each with (epochs done, the state to go on from). When the GPU's memory runs
out, training starts over, and so do the calls."""
_T = TypeVar("_T")
Pausing = Generator[None, None, _T]
"""Work that pauses now and then, so that other work can go on meanwhile, and returns a result."""
_GRAPHS_FROM = 12
"""Steps from which capturing CUDA graphs pays."""
_log = logging.getLogger("splitwiper")


@dataclass(frozen=True)
class Span:
    """Some epochs of a training: from the state after ``first`` epochs until ``last`` are done.

    Order, noise and learning rate are functions of the epoch's number, so the state is all that those before leave.
    """

    first: int
    last: int
    state: Mapping[str, Tensor]


def fit(
    net: nn.Module,
    rows: Cache,
    recipe: Recipe,
    *,
    epochs: int,
    stream: Stream,
    what: str,
    on_epoch: OnEpoch | None = None,
    on_state: OnState | None = None,
    span: Span | None = None,
) -> tuple[float, ...]:
    """Train ``net`` (tensors by name in, logits out) and return the mean loss of each epoch.

    Row order and dropout come from ``stream`` alone; the result is a pure function of the arguments, and of the
    numerics that `splitwiper.numerics.fingerprint` lists.

    Args:
        net: what to train.
        rows: what to train on.
        recipe: how.
        epochs: of the whole training, which the learning rate's schedule spans.
        stream: names the randomness.
        what: names the training in messages.
        on_epoch: told of progress.
        on_state: given the state before the first epoch and after each.
        span: the epochs to compute, where not all.

    Raises:
        TrainingError: the loss stopped being finite, or a layer could not take a batch.
        DataError: the span's state is not that of such a net.
    """
    return finish(
        training(
            net,
            rows,
            recipe,
            epochs=epochs,
            stream=stream,
            what=what,
            on_epoch=on_epoch,
            on_state=on_state,
            span=span,
        )
    )


def finish(work: Pausing[_T]) -> _T:
    """Run work to its end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _T = end.value
            return result


def training(
    net: nn.Module,
    rows: Cache,
    recipe: Recipe,
    *,
    epochs: int,
    stream: Stream,
    what: str,
    on_epoch: OnEpoch | None = None,
    on_state: OnState | None = None,
    span: Span | None = None,
) -> Pausing[tuple[float, ...]]:
    """`fit`, with a pause after each epoch."""
    device = pick_device(recipe.device)
    run = partial(_epochs, net, rows, recipe, device, epochs, stream, what, on_epoch, on_state, span)
    if device.type != "cuda":
        return (yield from run())
    first = state_of(net)
    try:
        return (yield from run())
    except torch.OutOfMemoryError as problem:
        full = str(problem).partition(".")[0]
    _log.warning("%s: %s; starting over with batches streamed from disk.", what, full)
    torch.cuda.empty_cache()
    net.load_state_dict(first)
    try:
        return (yield from run(resident=False))
    except torch.OutOfMemoryError as problem:
        raise TrainingError(
            f"{what}: the GPU's memory is full even with batches streamed from disk ({problem}). Lower batch "
            f"({recipe.batch}) in a new run, or use another GPU."
        ) from problem


def _epochs(
    net: nn.Module,
    rows: Cache,
    recipe: Recipe,
    device: torch.device,
    epochs: int,
    stream: Stream,
    what: str,
    on_epoch: OnEpoch | None,
    on_state: OnState | None,
    span: Span | None,
    *,
    resident: bool = True,
) -> Pausing[tuple[float, ...]]:
    lane = torch.cuda.Stream(device) if device.type == "cuda" else None
    count = math.ceil(len(rows) / recipe.batch)
    first, last = (span.first, span.last) if span else (0, epochs)
    with reproducible(device, recipe.threads, recipe.numerics), torch.cuda.stream(lane):
        net.to(device)
        half = torch.bfloat16 if lane and recipe.precision == "bfloat16" else torch.float32
        feed = feed_for(rows, device, math.ceil(len(rows) / count), dtype=half, resident=resident)
        graphs = (last - first) * count >= _GRAPHS_FROM
        step = Step(net.train(), feed.decode, recipe, device, what=what, graphs=graphs)
        if span:
            step.load(span.state)
    if on_state:
        if lane:
            lane.synchronize()
        on_state(first, step.state())
    losses: list[float] = []
    for epoch in range(first, last):
        order, noise = (
            Stream(stream.seed, f"{stream.purpose}/{use}/{epoch}", stream.name, stream.content)
            for use in ("order", "noise")
        )
        # batches of equal size, give or take one: no straggler of a single row for batch norm to stumble over; sorted
        # within, since the order in a batch means nothing to training and much to reading
        batches = [np.sort(part) for part in np.array_split(order.permutation(len(rows)), count)]
        # epoch by epoch, so that what on_epoch draws shifts nothing
        with reproducible(device, recipe.threads, recipe.numerics), torch.cuda.stream(lane), isolated_rng(noise):
            before = _drawn(device)
            step.total.zero_()
            for number, parts in enumerate(feed.epoch(batches)):
                step(parts, recipe.lr * schedule(recipe.schedule, (epoch * count + number) / (epochs * count)))
            if lane and not torch.equal(before, _drawn(device)):
                lane.synchronize()  # the GPU has one generator: whoever draws from it finishes first
        yield
        if lane:
            lane.synchronize()
        mean = float(step.total) / len(rows)
        if not math.isfinite(mean):
            raise UntrainableError(
                f"{what}: the loss is {mean} after epoch {epoch + 1}. Lower lr ({recipe.lr:g}), set clip "
                "(say 1.0), or scale the inputs (standardise = true), in a new run; in one that learned before, "
                "forget the rows that were added last."
            )
        losses.append(mean)
        if on_state:
            on_state(epoch + 1, step.state())
        if on_epoch:
            on_epoch(epoch + 1, epochs, mean)
    net.eval()
    return tuple(losses)


def _drawn(device: torch.device) -> Tensor:
    """Where the device's generator stands."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.empty(0)


def schedule(name: str, progress: float) -> float:
    """The learning rate's factor when a fraction ``progress`` of all steps is done.

    >>> schedule("constant", 0.5), schedule("cosine", 0.0), round(schedule("onecycle", 0.3), 3)
    (1.0, 1.0, 1.0)
    """
    if name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    if name == "onecycle":  # up over the first 30 %, down to zero over the rest
        return (
            0.04 + 0.96 * progress / 0.3 if progress < 0.3 else 0.5 * (1 + math.cos(math.pi * (progress - 0.3) / 0.7))
        )
    return 1.0


def state_of(net: nn.Module) -> dict[str, Tensor]:
    """A net's tensors on the CPU, in the layout that files have."""
    return {k: v.detach().cpu().contiguous().clone() for k, v in net.state_dict().items()}
