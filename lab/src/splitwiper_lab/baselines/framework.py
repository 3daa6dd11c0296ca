"""What the split-learning frameworks have in common: their settings, and what training leaves behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from torch import Tensor

from splitwiper.config.settings import choice
from splitwiper.errors import ConfigError
from splitwiper.loop import OnEpoch
from splitwiper_lab.baselines.aggregation import Phi, weighing
from splitwiper_lab.baselines.channel import Channel, Tap
from splitwiper_lab.baselines.meters import Cost
from splitwiper_lab.baselines.network import Network, build
from splitwiper_lab.baselines.problem import Problem
from splitwiper_lab.baselines.schedules import SCHEDULES, Portion
from splitwiper_lab.baselines.server import Server
from splitwiper_lab.baselines.starting import STARTS, Start, starts
from splitwiper_lab.baselines.training import Turn, Work


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network, and what it took.

    Attributes:
        network: all its parts.
        problem: the rows it stands for.
        framework: how it was trained.
        starts: the client halves it started from.
        spent: by client. Pre-training is not in it.
        preparing: what pre-training took each client.
        server: what the server spent.
        took_part: clients that had to work, or to be asked.
        losses: the mean loss of each epoch.
        exact: whether this is what training on the rows alone gives, bit for bit.
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
        aggregate: Φ over clients' gradients: ``rows``, ``mean``, or a function of one's own, ``phi(gradients, rows)``,
            from a list of gradients for each client, and how many rows each stands for, to the list that is applied.
        synchronise: average the client halves after each epoch, weighted by rows.
        fresh: start all optimisers afresh after each epoch; else momentum is kept, also across visits and averages.
        start: ``pretrained`` as SplitWiper's clients do it, or ``scratch``.
    """

    schedule: str = "interleaved"
    aggregate: str | Phi = "rows"
    synchronise: bool = False
    fresh: bool = False
    start: str = "pretrained"

    name: ClassVar[str]
    tails: ClassVar[bool] = False
    """Clients hold the head."""
    copies: ClassVar[bool] = False
    """The server has a copy of its part for each client, and averages them after each epoch."""
    averages: ClassVar[bool] = False
    """Client halves must be averaged: without that it would be another framework."""
    wanders: ClassVar[bool] = False
    """The order of visits is drawn anew for each epoch."""

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
    def exchange(self, server: Server, turn: Turn, channel: Channel) -> Tensor:
        """One batch: messages there and back. Returns the sum of the rows' losses."""

    def learn(
        self,
        problem: Problem,
        *,
        known: Mapping[str, Start] | None = None,
        tap: Tap | None = None,
        on_epoch: OnEpoch | None = None,
        watch: Callable[[Network], None] | None = None,
    ) -> Trained:
        """Train on all rows of all clients.

        Args:
            problem: rows, network and settings: M epochs with the server's recipe, for both sides.
            known: starts of an earlier training, to be taken over where rows are the same.
            tap: sees every message.
            on_epoch: told of progress.
            watch: sees the network after each epoch.

        Raises:
            ConfigError: client halves are to be averaged, and differ.
            TrainingError: the loss stopped being finite, or a batch could not be computed.
        """
        self._check(problem)
        made = starts(problem, self.start, known=known)
        network = build(problem, made, tails=self.tails, copies=self.copies)
        everything = {name: Portion(np.arange(len(held)), np.arange(0)) for name, held in problem.clients.items()}
        work = Work(self, problem, network, everything, purpose="learn", tap=tap)

        def told(epoch: int, epochs: int, loss: float) -> None:
            if on_epoch:
                on_epoch(epoch, epochs, loss)
            if watch:
                watch(network)
                network.train()

        losses = work.run(problem.config.server.epochs, on_epoch=told)
        return Trained(
            network,
            problem,
            self,
            made,
            work.spent(),
            {name: start.cost for name, start in made.items()},
            work.server_cost(),
            tuple(problem.clients),
            losses,
        )

    def _check(self, problem: Problem) -> None:
        if not self.synchronise:
            return
        shapes = {
            name: [(key, t.shape) for key, t in problem.halves.client_for(name).state_dict().items()]
            for name in problem.clients
        }
        first = next(iter(shapes))
        for name, shape in shapes.items():
            if shape != shapes[first]:
                raise ConfigError(
                    f"{self.name}: the client halves of {first!r} and {name!r} differ, and cannot be averaged; use a "
                    "framework without synchronisation."
                )
