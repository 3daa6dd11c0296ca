"""What the split-learning frameworks share: their settings, and the result of training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from torch import Tensor

from splitwiper.config.settings import choice
from splitwiper.errors import ConfigError
from splitwiper.training.loop import OnEpoch
from splitwiper_lab.baselines.aggregation import Phi, weighing
from splitwiper_lab.baselines.channel import Channel, Tap
from splitwiper_lab.baselines.meters import Cost
from splitwiper_lab.baselines.network import Network, build
from splitwiper_lab.baselines.problem import Problem
from splitwiper_lab.baselines.schedules import SCHEDULES, Portion
from splitwiper_lab.baselines.server import BaselineServer
from splitwiper_lab.baselines.starting import STARTS, Start, starts
from splitwiper_lab.baselines.training import Turn, Work


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network, and its costs.

    Attributes:
        network: all its parts.
        problem: the rows it was trained on.
        framework: the framework that trained it.
        starts: the client halves that training started from.
        spent: costs by client, without pre-training.
        preparing: each client's pre-training costs.
        server: the server's costs.
        took_part: clients that had to compute or be contacted.
        losses: the mean loss of each epoch.
        exact: whether the result equals training on these rows only, bit for bit.
    """

    network: Network
    problem: Problem
    framework: Framework
    starts: Mapping[str, Start] = field(repr=False)
    spent: Mapping[str, Cost]
    preparing: Mapping[str, Cost]
    server: Cost
    took_part: tuple[str, ...]
    losses: tuple[float, ...]
    exact: bool = True


@dataclass(frozen=True, kw_only=True)
class Framework(ABC):
    """How a split network is trained.

    Attributes:
        schedule: ``interleaved``: every batch has rows of every client; ``turns``: one client's batches after
            another's.
        aggregate: Φ over clients' gradients: ``rows``, ``mean``, or a custom function, ``phi(gradients, rows)``, from a
            list of gradients for each client, and the number of rows behind each, to the list to apply.
        synchronise: average the client halves after each epoch, weighted by rows.
        fresh: reset all optimisers after each epoch; otherwise momentum is kept, also across visits and averages.
        start: ``pretrained`` as SplitWiper's clients do it, or ``scratch``.
    """

    schedule: str = "interleaved"
    aggregate: str | Phi = "rows"
    synchronise: bool = False
    fresh: bool = False
    start: str = "pretrained"

    name: ClassVar[str]
    tails: ClassVar[bool] = False
    """Whether clients hold the head."""
    copies: ClassVar[bool] = False
    """Whether the server has a copy of its part for each client, and averages the copies after each epoch."""
    averages: ClassVar[bool] = False
    """Whether client halves must be averaged: without that, it would be another framework."""
    wanders: ClassVar[bool] = False
    """The order of visits is drawn again for each epoch."""

    def __post_init__(self) -> None:
        choice(self, "schedule", SCHEDULES)
        choice(self, "start", STARTS)
        weighing(self.aggregate)
        for name in ("synchronise", "fresh"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} = {getattr(self, name)!r} must be true or false.")
        if self.averages and not self.synchronise:
            raise ConfigError("SplitFed averages client halves; without synchronisation it is vanilla split learning.")

    @abstractmethod
    def exchange(self, server: BaselineServer, turn: Turn, channel: Channel) -> Tensor:
        """Train on one batch, with all its messages; return the sum of the rows' losses."""

    def learn(
        self,
        problem: Problem,
        *,
        known: Mapping[str, Start] | None = None,
        tap: Tap | None = None,
        on_epoch: OnEpoch | None = None,
        watch: Callable[[Network], None] | None = None,
    ) -> Trained:
        """Train on all rows of all clients: M epochs with the server's recipe, for both sides.

        ``known`` are starts of an earlier training, reused for clients whose rows are the same. A tap receives every
        message. ``on_epoch`` and ``watch`` are called after each epoch, the latter with the network.

        Raises:
            ConfigError: client halves are to be averaged but differ in shape.
            TrainingError: the loss stopped being finite, or a batch could not be computed.
        """
        self._check(problem)
        made = starts(problem, self.start, known=known)
        network = build(problem, made, tails=self.tails, copies=self.copies)
        every = {name: Portion(np.arange(len(held)), np.arange(0)) for name, held in problem.clients.items()}
        work = Work(self, problem, network, every, purpose="learn", tap=tap)

        def after_epoch(epoch: int, epochs: int, loss: float) -> None:
            if on_epoch:
                on_epoch(epoch, epochs, loss)
            if watch:
                watch(network)
                network.train()  # predictions leave their parts in evaluation mode, in which batch norm learns nothing

        losses = work.run(problem.config.server.epochs, on_epoch=after_epoch)
        preparing = {name: start.cost for name, start in made.items()}
        took_part = tuple(problem.clients)
        return Trained(network, problem, self, made, work.spent(), preparing, work.server_cost(), took_part, losses)

    def _check(self, problem: Problem) -> None:
        if not self.synchronise:
            return
        first, expected = "", None
        for name in problem.clients:
            state = problem.halves.client_for(name).state_dict()
            shapes = [(key, tensor.shape) for key, tensor in state.items()]
            if expected is None:
                first, expected = name, shapes
            elif shapes != expected:
                raise ConfigError(
                    f"{self.name}: the client halves of {first!r} and {name!r} differ, and cannot be averaged; use a "
                    "framework without synchronisation."
                )
