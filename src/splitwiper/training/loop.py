"""The training loop, the same for client halves and the server half, on the CPU and on a GPU.

`Training` is the loop. Its `steps` pause after each epoch's work is submitted to the device, so that several small nets
can share a GPU, each on its own stream; its `run` trains one net to completion. `feeding` brings rows to the device,
`stepping` trains on a batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from splitwiper.certainty import Trial, by_handler, certain, disturbed, once, same_fault
from splitwiper.config import Recipe
from splitwiper.errors import ResourceError, UntrainableError, let_go
from splitwiper.exclusive import give_way
from splitwiper.numerics import pick_device, reproducible, still_as_pinned
from splitwiper.seeding import Stream, isolated_rng, state_digest
from splitwiper.training.cache import Cache
from splitwiper.training.feeding import Feed, feed_for
from splitwiper.training.lanes import Team
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


@dataclass
class Training:
    """The training of one net: a pure function of these values, and of the numerics that the fingerprint lists.

    Attributes:
        net: the net to train (tensors by name in, logits out); it is changed.
        rows: the rows to train on.
        recipe: the hyper-parameters.
        epochs: the length of the whole training, which the learning rate's schedule spans.
        stream: names the randomness; row order and dropout come from nothing else.
        what: names the training in messages.
        on_epoch, on_state, on_step: callbacks, see their types.
        span: the epochs to compute, if not all.
        lanes: the parts of a batch that are computed one by one (see `splitwiper.training.lanes`).
        team: the processes that share them, if not this one alone.
    """

    net: nn.Module
    rows: Cache
    recipe: Recipe
    _: KW_ONLY
    epochs: int
    stream: Stream
    what: str
    on_epoch: OnEpoch | None = None
    on_state: OnState | None = None
    on_step: OnStep | None = None
    span: Span | None = None
    lanes: int = 1
    team: Team | None = None

    def __post_init__(self) -> None:
        self.device = pick_device(self.recipe.device)
        self.batches = math.ceil(len(self.rows) / self.recipe.batch)  # of an epoch
        self.losses: list[float] = []
        """The mean loss of each epoch so far."""

    def run(self) -> tuple[float, ...]:
        """Train, and return the mean loss of each epoch.

        Raises:
            TrainingError: the loss is no longer finite, or a layer failed on a batch, repeatedly.
            BusyError: other threads keep the result from being certain.
            DataError: the span's state does not fit the net.
        """
        for _ in self.steps():
            pass
        return tuple(self.losses)

    def steps(self) -> Pausing[None]:
        """Return the work of `run`, which pauses after each epoch."""
        return self._on_gpu() if self.device.type == "cuda" else self._all_epochs()

    def _on_gpu(self) -> Pausing[None]:
        """Train on a GPU; if its memory is full, start over without the cache in it."""
        first = state_of(self.net)
        try:
            yield from self._repeated(first)
            return
        except torch.OutOfMemoryError as problem:
            full = str(problem).partition(".")[0]
        # outside the handler: the exception's frames would keep the GPU's memory in use
        _log.warning("%s: %s; starting over with batches streamed from disk.", self.what, full)
        torch.cuda.empty_cache()
        self.net.load_state_dict(first)
        try:
            yield from self._repeated(first, resident=False)
        except torch.OutOfMemoryError as problem:
            raise ResourceError(
                f"{self.what}: the GPU's memory is full even with batches streamed from disk ({problem}). Lower batch "
                f"({self.recipe.batch}) in a new run, or use another GPU."
            ) from problem

    def _repeated(self, first: Mapping[str, Tensor], *, resident: bool = True) -> Pausing[None]:
        """Train on a GPU; if that fails, train once more, since only a fault that repeats is the rows' own."""
        try:
            yield from self._all_epochs(resident=resident)
            return
        except UntrainableError as problem:
            if raised := by_handler(problem):
                raise raised from None
            fault = let_go(problem)
        self.net.load_state_dict(first)
        try:
            yield from self._all_epochs(resident=resident)
        except UntrainableError as problem:
            if same_fault(fault, problem):
                raise
            raise disturbed(self.what) from problem
        raise once(fault, self.what)

    def _all_epochs(self, *, resident: bool = True) -> Pausing[None]:
        lane = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        first, last = (self.span.first, self.span.last) if self.span else (0, self.epochs)
        step, feed = self._prepared(lane, steps=(last - first) * self.batches, resident=resident)
        # on the CPU, the state before an epoch is needed in any case: to repeat it if other threads interfered
        state = step.state() if self.on_state or not lane else {}
        if self.on_state:
            self.on_state(first, state)
        self.losses = []
        factor = make_schedule(self.recipe)
        for epoch in range(first, last):
            order, rates, done = self._order(epoch), list[float](), epoch * self.batches
            for number in range(done, done + self.batches):
                rates.append(self.recipe.lr * factor(number / (self.epochs * self.batches)))
            if lane:
                with self._held(lane, epoch):
                    before = torch.cuda.get_rng_state(lane.device)
                    self._epoch(step, feed, order, rates, epoch)
                    if not torch.equal(before, torch.cuda.get_rng_state(lane.device)):
                        # the GPU has one generator: a net that draws from it must finish before the next one starts
                        lane.synchronize()
            else:
                state = certain(
                    partial(self._epoch, step, feed, order, rates, epoch),
                    partial(self._held, None, epoch),
                    pinned=partial(still_as_pinned, self.device, self.recipe.numerics),
                    key=lambda result: (state_digest(result), float(step.total)),
                    what=self.what,
                    again=partial(step.load, state),
                    blames=True,
                )
            # Paused here, other nets submit their work while this one's is computed: nothing above waits for the GPU,
            # and everything below does.
            yield
            if lane:
                lane.synchronize()
                state = step.state() if self.on_state else {}
            self.losses.append(self._mean(step, epoch))
            # callbacks come last, when nothing is held: they may compute, draw or change switches as they like
            if self.on_state:
                self.on_state(epoch + 1, state)
            if self.on_epoch:
                self.on_epoch(epoch + 1, self.epochs, self.losses[-1])
        self.net.eval()

    def _prepared(self, lane: torch.cuda.Stream | None, *, steps: int, resident: bool) -> tuple[Step, Feed]:
        """Move the net to the device, and return what trains it on a batch and what brings the batches."""
        recipe, net = self.recipe, self.net
        with reproducible(self.device, recipe.threads, recipe.numerics), torch.cuda.stream(lane):
            net.to(self.device)
            decoded = torch.bfloat16 if lane and recipe.precision == "bfloat16" else torch.float32
            largest = math.ceil(len(self.rows) / self.batches)
            feed = feed_for(self.rows, self.device, largest, dtype=decoded, resident=resident)
            step = Step(
                net.train(),
                feed.decode,
                recipe,
                self.device,
                what=self.what,
                graphs=steps >= _GRAPHS_FROM,
                lanes=self.lanes,
                team=self.team,
            )
            if self.span:
                step.load(self.span.state)
        if lane:
            lane.synchronize()
        return step, feed

    def _order(self, epoch: int) -> list[Array]:
        """Return the rows of each batch of an epoch."""
        order = replace(self.stream, purpose=f"{self.stream.purpose}/order/{epoch}")
        # batches of equal size, give or take one: no last batch of a single row, which batch norm cannot train on;
        # sorted within, since the order in a batch means nothing to training and much to reading
        return list(map(np.sort, np.array_split(order.permutation(len(self.rows)), self.batches)))

    @contextmanager
    def _held(self, lane: torch.cuda.Stream | None, epoch: int) -> Iterator[None]:
        """Hold global state for at most one epoch, so that callbacks between epochs cannot affect later results."""
        with (
            reproducible(self.device, self.recipe.threads, self.recipe.numerics),
            torch.cuda.stream(lane),
            isolated_rng(replace(self.stream, purpose=f"{self.stream.purpose}/noise/{epoch}")),
        ):
            yield

    def _epoch(
        self,
        step: Step,
        feed: Feed,
        order: Sequence[Array],
        rates: Sequence[float],
        epoch: int,
        trial: Trial | None = None,
    ) -> State:
        """Train for one epoch, and return the state after it.

        On a GPU there is no trial, since no other thread can disturb its generator and settings: the work is only
        submitted, and the state left out.
        """
        step.total.zero_()
        for number, (parts, rate) in enumerate(zip(feed.epoch(order), rates, strict=True)):
            if self.on_step:
                self.on_step()
            step(parts, rate, replace(self.stream, purpose=f"{self.stream.purpose}/noise/{epoch}/{number}"))
            if trial:
                trial.look()
            give_way()
        if trial is None:
            return {}
        self._mean(step, epoch)  # a loss that is not finite is a fault of this trial, which another may not have
        return step.state()

    def _mean(self, step: Step, epoch: int) -> float:
        """Return an epoch's mean loss."""
        mean = float(step.total) / len(self.rows)
        if not math.isfinite(mean):
            raise UntrainableError(
                f"{self.what}: the loss is {mean} after epoch {epoch + 1}. Lower lr ({self.recipe.lr:g}), set clip "
                "(1.0, for example), or scale the inputs (standardise = true), in a new run; in a run that has "
                "learned before, forget the rows that were added last."
            )
        return mean


def finish(work: Pausing[_T]) -> _T:
    """Run work to completion, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _T = end.value
            return result


def state_of(net: nn.Module) -> dict[str, Tensor]:
    """Return a net's tensors on the CPU, in the layout of files."""
    return {k: v.detach().cpu().contiguous().clone() for k, v in net.state_dict().items()}
