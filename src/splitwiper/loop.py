"""The training loop, the same for client halves and the server half, on the CPU and on a GPU.

`training` is the loop. It pauses after each epoch's work is handed to the device, so that several small nets can share
a GPU, each on its own stream; `fit` runs one to its end. `feeding` knows how rows reach the device, `stepping` what is
done with a batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from splitwiper.cache import Cache
from splitwiper.config import Recipe
from splitwiper.errors import BusyError, ResourceError, UntrainableError
from splitwiper.exclusive import Company, give_way
from splitwiper.feeding import Feed, feed_for
from splitwiper.numerics import pick_device, reproducible, undisturbed
from splitwiper.seeding import Stream, isolated_rng, same_state
from splitwiper.stepping import State, Step
from splitwiper.wire.columns import Array

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
TRIES = 6
"""Times that something is computed beside other threads before giving up."""
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
        raise ResourceError(
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
        rates = [recipe.lr * schedule(recipe.schedule, (epoch * count + n) / (epochs * count)) for n in range(count)]
        compute = partial(_epoch, step, feed, batches, rates, noise, recipe, device, lane)
        if lane:
            compute()
        else:
            _until_certain(step, compute, what)
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


def _epoch(
    step: Step,
    feed: Feed,
    batches: Sequence[Array],
    rates: Sequence[float],
    noise: Stream,
    recipe: Recipe,
    device: torch.device,
    lane: torch.cuda.Stream | None,
) -> bool | None:
    """Compute one epoch; return whether it is certain that no other thread got at random numbers or settings.

    None where it broke off because another thread changed a setting: the net's state is then meaningless. A GPU's
    generator and settings are not checked.

    Global state is held for an epoch at most, so that what callbacks do to it shifts nothing.
    """
    company = Company()
    with (
        reproducible(device, recipe.threads, recipe.numerics),
        torch.cuda.stream(lane),
        isolated_rng(noise) as draws,
    ):
        before = _drawn(device)
        step.total.zero_()
        try:
            for parts, rate in zip(feed.epoch(batches), rates, strict=True):
                step(parts, rate)
                company.look()
                give_way()
        except RuntimeError:
            if lane or not company.look() or undisturbed(device, recipe.numerics):
                raise
            return None
        if lane and not torch.equal(before, _drawn(device)):
            lane.synchronize()  # the GPU has one generator: whoever draws from it finishes first
        return not company.look() or (undisturbed(device, recipe.numerics) and not draws.any())


def _until_certain(step: Step, compute: Callable[[], bool | None], what: str) -> None:
    """Compute an epoch, perhaps beside threads of the caller's that draw from the generators or move torch's switches.

    It is impossible to tell whether the numbers drawn meanwhile were the net's own, so beside such threads the epoch is
    computed until two results agree. A net that draws nothing is computed once.

    Raises:
        BusyError: no two of them do.
    """
    start, last = step.state(), None
    for _ in range(TRIES):
        certain = compute()
        if certain:
            return
        if certain is not None:
            now = step.state()
            if last is not None and same_state(now, last):
                return
            last = now
        step.load(start)
    raise disturbed(what)


def disturbed(what: str) -> BusyError:
    """Return the error for a result that other threads keep from being certain."""
    return BusyError(
        f"{what}: other threads of this program draw from the global random generators (of torch, NumPy or Python) or "
        "change torch's settings all the time, and the net draws random numbers, too, so no result is certain. Let "
        "them use generators of their own, or pause them, and settle."
    )


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
