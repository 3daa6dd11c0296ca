"""The training loop, the same for client halves and the server half, on the CPU and on a GPU.

`training` is the loop. It pauses after each epoch's work is submitted to the device, so that several small nets can
share a GPU, each on its own stream; `fit` runs one to completion. `feeding` brings rows to the device, `stepping`
trains on a batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from splitwiper.certainty import Trial, by_handler, certain, disturbed, once, same_fault
from splitwiper.config import Recipe
from splitwiper.errors import ResourceError, UntrainableError, let_go
from splitwiper.exclusive import give_way
from splitwiper.numerics import pick_device, reproducible, undisturbed
from splitwiper.seeding import Stream, isolated_rng, state_digest
from splitwiper.training.cache import Cache
from splitwiper.training.feeding import Feed, feed_for
from splitwiper.training.parts import make_schedule
from splitwiper.training.stepping import State, Step
from splitwiper.wire.columns import Array

OnEpoch = Callable[[int, int, float], None]
"""Called after each epoch with (epochs done, total epochs, mean loss)."""
OnState = Callable[[int, State], None]
"""Called before the first epoch and after each with (epochs done, the state to continue from). If the GPU's memory runs
out, or training on it fails, training starts over, and so do the calls."""
OnStep = Callable[[], None]
"""Called before each step; an exception ends the training."""
_T = TypeVar("_T")
Pausing = Generator[None, None, _T]
"""Work that pauses now and then, so that other work can proceed meanwhile, and returns a result."""
_GRAPHS_FROM = 12
"""Smallest number of steps for which capturing CUDA graphs pays."""
_log = logging.getLogger("splitwiper")


@dataclass(frozen=True)
class Span:
    """Some epochs of a training: from the state after ``first`` epochs until ``last`` are done.

    Order, noise and learning rate are functions of the epoch's number, so nothing but the state carries over.
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
    on_step: OnStep | None = None,
    span: Span | None = None,
) -> tuple[float, ...]:
    """Train ``net`` (tensors by name in, logits out) and return the mean loss of each epoch.

    Row order and dropout come only from ``stream``; the result is a pure function of the arguments, and of the
    numerics that `splitwiper.numerics.fingerprint` lists.

    Args:
        net: the net to train.
        rows: the rows to train on.
        recipe: the hyper-parameters.
        epochs: the length of the whole training, which the learning rate's schedule spans.
        stream: names the randomness.
        what: names the training in messages.
        on_epoch: called after each epoch with (epochs done, total epochs, mean loss).
        on_state: called with the state before the first epoch and after each.
        on_step: called before each step.
        span: the epochs to compute, if not all.

    Raises:
        TrainingError: the loss is no longer finite, or a layer failed on a batch, repeatedly.
        BusyError: other threads keep the result from being certain.
        DataError: the span's state does not fit the net.
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
            on_step=on_step,
            span=span,
        )
    )


def finish(work: Pausing[_T]) -> _T:
    """Run work to completion."""
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
    on_step: OnStep | None = None,
    span: Span | None = None,
) -> Pausing[tuple[float, ...]]:
    """Do the work of `fit`, with a pause after each epoch."""
    device = pick_device(recipe.device)
    compute = partial(_epochs, net, rows, recipe, device, epochs, stream, what, on_epoch, on_state, on_step, span)
    if device.type != "cuda":
        return (yield from compute())
    first = state_of(net)
    run = partial(_repeating, compute, lambda: net.load_state_dict(first), what)
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


def _repeating(
    compute: Callable[..., Pausing[_T]], restart: Callable[[], object], what: str, **options: bool
) -> Pausing[_T]:
    """Train on a GPU; if that fails, train once more, since only a fault that repeats is the rows' own.

    Raises:
        UntrainableError: it fails as before.
        BusyError: it does not fail as before.
    """
    try:
        return (yield from compute(**options))
    except UntrainableError as problem:
        if raised := by_handler(problem):
            raise raised from None
        fault = let_go(problem)
    restart()
    try:
        yield from compute(**options)
    except UntrainableError as problem:
        if same_fault(fault, problem):
            raise
        raise disturbed(what) from problem
    raise once(fault, what)


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
    on_step: OnStep | None,
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
    if lane:
        lane.synchronize()
    state = step.state() if on_state or not lane else {}
    if on_state:
        on_state(first, state)
    losses: list[float] = []
    factor = make_schedule(recipe)
    for epoch in range(first, last):
        batches, noise = _order(stream, epoch, len(rows), count)
        rates = [recipe.lr * factor((epoch * count + n) / (epochs * count)) for n in range(count)]
        compute = partial(_epoch, step, feed, batches, rates, on_step or _nothing)
        held = partial(_held, device, recipe, lane, noise)
        mean = partial(_mean, step, len(rows), recipe, what, epoch + 1)
        if lane:
            with held():
                compute(lane=lane)
        else:
            state = _sure(step, state, compute, mean, held, partial(undisturbed, device, recipe.numerics), what)
        yield
        if lane:
            lane.synchronize()
            state = step.state() if on_state else {}
        losses.append(mean())
        if on_state:
            on_state(epoch + 1, state)
        if on_epoch:
            on_epoch(epoch + 1, epochs, losses[-1])
    net.eval()
    return tuple(losses)


def _order(stream: Stream, epoch: int, rows: int, count: int) -> tuple[list[Array], Stream]:
    """Return an epoch's batches, and the stream of its random draws."""
    order, noise = (
        Stream(stream.seed, f"{stream.purpose}/{use}/{epoch}", stream.name, stream.content)
        for use in ("order", "noise")
    )
    # batches of equal size, give or take one: no last batch of a single row, which batch norm cannot train on; sorted
    # within, since the order in a batch means nothing to training and much to reading
    return [np.sort(part) for part in np.array_split(order.permutation(rows), count)], noise


@contextmanager
def _held(device: torch.device, recipe: Recipe, lane: torch.cuda.Stream | None, noise: Stream) -> Iterator[None]:
    """Hold global state for at most one epoch, so that callbacks between epochs cannot affect later results."""
    with (
        reproducible(device, recipe.threads, recipe.numerics),
        torch.cuda.stream(lane),
        isolated_rng(noise),
    ):
        yield


def _nothing() -> None:
    pass


def _epoch(
    step: Step,
    feed: Feed,
    batches: Sequence[Array],
    rates: Sequence[float],
    on_step: OnStep,
    trial: Trial | None = None,
    *,
    lane: torch.cuda.Stream | None = None,
) -> State:
    """Compute one epoch; return the state after it, except on a GPU, whose generator and settings no trial checks."""
    before = _drawn(lane)
    step.total.zero_()
    for parts, rate in zip(feed.epoch(batches), rates, strict=True):
        on_step()
        step(parts, rate)
        if trial:
            trial.look()
        give_way()
    if lane and not torch.equal(before, _drawn(lane)):
        lane.synchronize()  # the GPU has one generator: a net that draws from it must finish before the next one
    return {} if lane else step.state()


def _sure(
    step: Step,
    start: State,
    compute: Callable[[Trial], State],
    mean: Callable[[], float],
    held: Callable[[], AbstractContextManager[None]],
    pinned: Callable[[], bool],
    what: str,
) -> State:
    """Compute an epoch on the CPU until it is certain; return the state after it."""

    def whole(trial: Trial) -> tuple[State, float]:
        state = compute(trial)
        return state, mean()

    def key(result: tuple[State, float]) -> tuple[str, float]:
        return state_digest(result[0]), result[1]

    again = partial(step.load, start)
    return certain(whole, held, pinned=pinned, key=key, what=what, again=again, blames=True)[0]


def _mean(step: Step, rows: int, recipe: Recipe, what: str, epoch: int) -> float:
    """Return an epoch's mean loss.

    Raises:
        UntrainableError: the loss is not finite.
    """
    mean = float(step.total) / rows
    if not math.isfinite(mean):
        raise UntrainableError(
            f"{what}: the loss is {mean} after epoch {epoch}. Lower lr ({recipe.lr:g}), set clip (say 1.0), or "
            "scale the inputs (standardise = true), in a new run; in one that learned before, forget the rows that "
            "were added last."
        )
    return mean


def _drawn(lane: torch.cuda.Stream | None) -> Tensor:
    """Return the state of the GPU's generator."""
    return torch.cuda.get_rng_state(lane.device) if lane else torch.empty(0)


def state_of(net: nn.Module) -> dict[str, Tensor]:
    """Return a net's tensors on the CPU, in the layout of files."""
    return {k: v.detach().cpu().contiguous().clone() for k, v in net.state_dict().items()}
