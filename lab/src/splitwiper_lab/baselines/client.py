"""A client of split training: its first layers, its head if it holds one, and its rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from splitwiper.config import Recipe
from splitwiper.training.cache import CODE, Parts
from splitwiper.training.feeding import Feed
from splitwiper_lab.baselines.channel import GONE, LABEL, Message
from splitwiper_lab.baselines.meters import Meter
from splitwiper_lab.baselines.network import Network
from splitwiper_lab.baselines.party import (
    FEATURES,
    SHARE,
    TAUGHT,
    Objective,
    Teachers,
    TrainingSide,
    gradient_of,
    plain,
    selected,
    wide,
)


class BaselineClient(TrainingSide):
    """A client's side of a batch."""

    def __init__(
        self,
        name: str,
        network: Network,
        feed: Feed,
        recipe: Recipe,
        objective: Objective,
        *,
        meter: Meter,
        teachers: Teachers | None = None,
    ) -> None:
        self.name, self._feed, self._objective, self._teachers = name, feed, objective, teachers
        self._stem, self._tail = network.stems[name], network.tails.get(name)
        super().__init__([self._stem, *([self._tail] if self._tail else [])], recipe, network.device, meter)
        self._activations = [spec.name for spec in network.halves[name].boundary if spec.kind == "activation"]
        self._sent: Message = {}
        self._codes: Tensor | None = None
        self._gone = torch.empty(0)

    def send(self, parts: Parts, gone: Tensor) -> Message:
        """Compute the first message of a batch: the stem's outputs, and labels if the server has the head."""
        self._codes, self._gone = parts[CODE] if self._objective.labels else None, gone
        with self.meter.work("forward", len(gone)), self._precision():
            inputs, whose = self._feed.decode(parts), f"client {self.name!r}"
            # before the own stem, which may change its inputs in place
            taught = self._taught(self._teachers, inputs, gone, whose) if self._teachers else {}
            self._sent = self._computed(self._stem, inputs, whose)
            message = {name: plain(tensor) for name, tensor in self._sent.items()} | taught
        if self._tail is None and self._codes is not None:
            message[LABEL] = self._codes
        if self._teachers is not None or (self._tail is None and self._objective.marks):
            message[GONE] = gone
        return message

    def _taught(self, teachers: Teachers, inputs: Mapping[str, Tensor], gone: Tensor, whose: str) -> Message:
        """Return the right teacher's stem outputs for each row. Its inputs are copies, as the stem may change them."""
        taught = {}
        with torch.no_grad():
            copies = {name: tensor.clone() for name, tensor in inputs.items()}
            kept = self._computed(teachers.preserver.stems[self.name], copies, whose)
            lost = None
            if bool(gone.any()):
                lost = self._computed(teachers.destroyer.stems[self.name], selected(inputs, gone), whose)
            for name in self._activations:
                taught[f"{TAUGHT}{name}"] = tensor = plain(kept[name])
                if lost is not None:
                    tensor[gone] = plain(lost[name])
        return taught

    def answer(self, reply: Message) -> tuple[Message, Tensor]:
        """Compute, if this client holds the head, the gradient that the server continues from, and the mean loss."""
        features = reply[FEATURES].clone().requires_grad_(True)
        tail = self._tail or nn.Identity()
        with self.meter.work("answer", len(features)), self._precision():
            taught = self._taught_outputs(self._teachers, reply) if self._teachers else None
            loss = self._objective.loss(wide(tail(features)), self._codes, self._gone, taught)
            # weighed by the client's share, so that the server may simply add up what clients send
            (reply[SHARE] * loss).backward()
        return {FEATURES: gradient_of(features)}, loss.detach()

    def _taught_outputs(self, teachers: Teachers, reply: Message) -> Tensor:
        features = reply[f"{TAUGHT}{FEATURES}"]
        with torch.no_grad():
            kept = wide(teachers.preserver.tails[self.name](features))
            if bool(self._gone.any()):
                kept[self._gone] = wide(teachers.destroyer.tails[self.name](features[self._gone]))
            return kept

    def learn(self, reply: Message) -> None:
        """Process the last message of a batch: propagate gradients back through the stem, and update."""
        with self.meter.work("backward", len(self._gone)):
            outputs, gradients = [], []
            for name, gradient in reply.items():
                sent = self._sent[name]
                if sent.requires_grad:  # a stem that is frozen has nothing to learn
                    outputs.append(sent)
                    gradients.append(gradient.to(sent.dtype))
            if outputs:
                torch.autograd.backward(outputs, gradients)
            self._sent = {}
            self._update()
