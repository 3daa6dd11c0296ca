"""One training of a split network: epochs, batches, learning rates, synchronisation, and costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from splitwiper.config import Recipe
from splitwiper.errors import TrainingError
from splitwiper.numerics import reproducible
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.training.cache import Parts
from splitwiper.training.feeding import Feed, feed_for
from splitwiper.training.loop import OnEpoch
from splitwiper.training.parts import make_schedule
from splitwiper_lab.baselines.channel import Channel, Tap, size
from splitwiper_lab.baselines.client import BaselineClient
from splitwiper_lab.baselines.meters import Cost, Meter
from splitwiper_lab.baselines.network import Network
from splitwiper_lab.baselines.party import LEARN, Objective, Teachers
from splitwiper_lab.baselines.problem import Problem
from splitwiper_lab.baselines.schedules import Batch, Portion, in_turn, interleaved
from splitwiper_lab.baselines.server import BaselineServer

if TYPE_CHECKING:
    from splitwiper_lab.baselines.framework import Framework

Turn = list[tuple[BaselineClient, Parts, Tensor]]
"""Clients that take part in a batch, their rows, and the mask of rows to forget."""


class Work:
    """One training of a network in place, from its present state.

    The framework defines the messages, which ``tap`` receives. ``portions`` has indices into the problem's rows;
    clients that are not in it do not take part. ``purpose`` names the random streams. The recipe is the problem's
    server recipe unless another is given; ``teachers`` are networks whose outputs the objective uses.
    """

    def __init__(
        self,
        framework: Framework,
        problem: Problem,
        network: Network,
        portions: Mapping[str, Portion],
        *,
        purpose: str,
        recipe: Recipe | None = None,
        objective: Objective = LEARN,
        teachers: Teachers | None = None,
        tap: Tap | None = None,
    ) -> None:
        self._framework, self._problem, self._network = framework, problem, network
        # sorted, so that what is trained does not depend on the order in which a method lists clients
        self._portions = {name: portions[name] for name in sorted(portions) if len(portions[name])}
        self._recipe = recipe or problem.config.server
        self._purpose, self._device = purpose, network.device
        self._meters = {name: Meter(self._device) for name in self._portions}
        self._server_meter = Meter(self._device)
        self._channel = Channel(self._meters, tap)
        with reproducible(self._device, self._recipe.threads, self._recipe.numerics):
            self._feeds: dict[str, Feed] = {}
            self._clients: dict[str, BaselineClient] = {}
            for name, meter in self._meters.items():
                self._feeds[name] = feed = self._feed(name)
                self._clients[name] = BaselineClient(
                    name, network, feed, self._recipe, objective, meter=meter, teachers=teachers
                )
            self._servers = self._make_servers(objective, teachers)

    def _feed(self, name: str) -> Feed:
        cache = self._problem.clients[name].cache(self._network.labels[name])
        half = self._device.type == "cuda" and self._recipe.precision == "bfloat16"
        largest = min(len(cache), self._recipe.batch + 2)  # kept and gone rows are split separately
        return feed_for(cache, self._device, largest, dtype=torch.bfloat16 if half else torch.float32)

    def _make_servers(self, objective: Objective, teachers: Teachers | None) -> dict[str, BaselineServer]:
        # one server for each half, whether clients share it or have copies: an optimiser must see a half only once
        made: dict[int, BaselineServer] = {}
        for name in self._portions:
            half = self._network.halves[name]
            if id(half) not in made:
                taught = (teachers.preserver.halves[name], teachers.destroyer.halves[name]) if teachers else None
                made[id(half)] = BaselineServer(
                    half,
                    self._recipe,
                    objective,
                    self._framework.aggregate,
                    averaged=self._framework.synchronise,
                    device=self._device,
                    meter=self._server_meter,
                    teachers=taught,
                )
        return {name: made[id(self._network.halves[name])] for name in self._portions}

    # --- epochs --------------------------------------------------------------------------------------------

    def run(self, epochs: int, *, on_epoch: OnEpoch | None = None) -> tuple[float, ...]:
        """Train, and return the mean loss of each epoch."""
        rows = sum(map(len, self._portions.values()))
        losses: list[float] = []
        factor = make_schedule(self._recipe)
        for epoch in range(epochs):
            batches = self._batches(epoch)
            with (
                reproducible(self._device, self._recipe.threads, self._recipe.numerics),
                isolated_rng(self._stream(f"noise/{epoch}")),
            ):
                total = torch.zeros((), device=self._device)
                for number, turn in enumerate(self._turns(batches)):
                    # from 0 to 1 over all batches of all epochs; the schedule turns it into a factor of the rate
                    progress = (epoch * len(batches) + number) / (epochs * len(batches))
                    rate = self._recipe.lr * factor(progress)
                    total += self._step(turn, rate)
                self._end_epoch()
            mean = float(total) / rows  # reading the total waits for the device: once for an epoch, not for a batch
            for meter in (*self._meters.values(), self._server_meter):
                meter.settle()
            if not math.isfinite(mean):
                raise TrainingError(
                    f"{self._framework.name}: the loss is {mean} after epoch {epoch + 1}. Lower lr "
                    f"({self._recipe.lr:g}), or set clip, for example to 1.0."
                )
            losses.append(mean)
            if on_epoch:
                on_epoch(epoch + 1, epochs, mean)
        return tuple(losses)

    def _stream(self, use: str, client: str = "") -> Stream:
        return Stream(self._problem.config.seed, f"{self._framework.name}/{self._purpose}/{use}", client)

    def _batches(self, epoch: int) -> list[Batch]:
        shuffled = {}
        for name, portion in self._portions.items():
            # a stream for each client, so that rows which one of them forgets leave the others' order as it was
            kept = self._stream(f"order/{epoch}", name).permutation(len(portion.kept))
            gone = self._stream(f"gone/{epoch}", name).permutation(len(portion.gone))
            shuffled[name] = Portion(portion.kept[kept], portion.gone[gone])
        if self._framework.schedule == "interleaved":
            return interleaved(shuffled, self._recipe.batch)
        order = list(shuffled)
        if self._framework.wanders:
            order = list(map(order.__getitem__, self._stream(f"visits/{epoch}").permutation(len(order))))
        return in_turn(shuffled, self._recipe.batch, order)

    def _turns(self, batches: Sequence[Batch]) -> Iterator[Turn]:
        """Yield the batches with their rows; each client reads its own."""
        reading, marks = {}, {}
        for name, portion in self._portions.items():
            reading[name] = self._feeds[name].epoch([batch[name] for batch in batches if name in batch])
            mask = np.zeros(len(self._problem.clients[name]), bool)
            mask[portion.gone] = True
            marks[name] = torch.from_numpy(mask).to(self._device)
        # feeds read ahead, in the order of their own batches, so each is asked exactly when its client takes part
        for batch in batches:
            turn = []
            for name, rows in batch.items():
                gone = marks[name][torch.from_numpy(rows).to(self._device)]
                turn.append((self._clients[name], next(reading[name]), gone))
            yield turn

    def _step(self, turn: Turn, rate: float) -> Tensor:
        total = torch.zeros((), device=self._device)
        # clients that share a server half exchange as one batch; those with copies, each with its own
        served: dict[int, Turn] = {}
        for place in turn:
            served.setdefault(id(self._servers[place[0].name]), []).append(place)
        for part in served.values():
            server = self._servers[part[0][0].name]
            server.set_rate(rate)
            for client, _, _ in part:
                client.set_rate(rate)
            total += self._framework.exchange(server, part, self._channel)
        return total

    # --- after an epoch ------------------------------------------------------------------------------------

    def _end_epoch(self) -> None:
        """Average what the framework averages. The copy of a client that took no part also gets the mean."""
        weights, stems = {}, {}
        for name, portion in self._portions.items():
            weights[name], stems[name] = float(len(portion)), self._network.stems[name].body
        if self._framework.synchronise and len(weights) > 1:
            for name, stem in stems.items():
                self._channel.up(name, dict(stem.state_dict()))
            with self._server_meter.work("average", 0):
                average(stems, weights)
            for name, stem in stems.items():
                self._channel.down(name, dict(stem.state_dict()))
        # the server's copies never leave it, so averaging them sends nothing
        if self._framework.copies:
            with self._server_meter.work("average", 0):
                average(self._network.halves, weights)
        if self._framework.fresh:
            for party in (*self._clients.values(), *self._servers.values()):
                party.start_afresh()

    # --- costs -----------------------------------------------------------------------------------------------

    def spent(self) -> dict[str, Cost]:
        """Return costs by client of the problem; clients that took no part spent nothing, but store their part."""
        spent = {}
        for name in self._problem.clients:
            state = dict(self._network.stems[name].state_dict())
            if name in self._network.tails:
                state |= self._network.tails[name].state_dict(prefix="tail.")
            stored = size(state)
            spent[name] = self._meters[name].cost(storage=stored) if name in self._meters else Cost(storage=stored)
        return spent

    def server_cost(self) -> Cost:
        """Return the server's costs; it stores only its part of the network."""
        stored = 0
        for half in set(self._network.halves.values()):  # a half that clients share is stored once
            stored += size(half.state_dict())
        return self._server_meter.cost(storage=stored)


def average(modules: Mapping[str, nn.Module], weights: Mapping[str, float]) -> None:
    """Give all modules the mean state of the modules that have a weight; integers are copied from the first."""
    states = {name: module.state_dict() for name, module in modules.items()}
    total = sum(weights.values())
    first = states[next(iter(weights))]
    with torch.no_grad():
        for key, tensor in first.items():
            mean = tensor.clone()
            if tensor.is_floating_point():
                # in double precision, so that a client of few rows is not lost in rounding
                exact = torch.zeros_like(tensor, dtype=torch.float64)
                for name, weight in weights.items():
                    exact += states[name][key].double() * (weight / total)
                mean = exact.to(tensor.dtype)
            for state in states.values():
                state[key].copy_(mean)
