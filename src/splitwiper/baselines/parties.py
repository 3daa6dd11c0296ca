"""The two sides of split training. They share no tensor and no graph: all that passes is messages.

Maps have channels innermost on a GPU, and layers compute in half precision there if the recipe says so; what crosses is
in the cut's own type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from splitwiper.baselines.aggregation import Phi, by_rows, weighing
from splitwiper.baselines.channel import GONE, LABEL, Message
from splitwiper.baselines.meters import Meter
from splitwiper.baselines.network import Network
from splitwiper.baselines.objectives import Objective
from splitwiper.cache import CODE, Parts
from splitwiper.config import Recipe
from splitwiper.errors import TrainingError
from splitwiper.feeding import Feed
from splitwiper.splitting import ServerHalf
from splitwiper.stepping import laid_out, make_optimizer

FEATURES, TAUGHT, SHARE = "features", "taught/", "@share"
"""What the server's part gives where clients hold the head, what comes before the names of teachers' tensors, and a
client's weight in the objective."""


@dataclass(frozen=True)
class Teachers:
    """Networks that are not trained: one says what to keep on rows that stay, one what to become on those that go."""

    preserver: Network
    destroyer: Network


class _Party:
    """Modules that train together, and how."""

    def __init__(self, parts: Sequence[nn.Module], recipe: Recipe, device: torch.device, meter: Meter) -> None:
        self._recipe, self._device, self.meter = recipe, device, meter
        self._parts = nn.ModuleList(parts).train()
        self._layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        self._parts.to(memory_format=self._layout)  # type: ignore[call-overload]
        self._rate = torch.zeros((), device=device) if device.type == "cuda" else None
        self._optimizer = make_optimizer(self._parts, recipe, rate=self._rate)
        self._optimizer._warned_capturable_if_run_uncaptured = True

    def set_rate(self, rate: float) -> None:
        """The learning rate from now on."""
        if self._rate is not None:
            self._rate.fill_(rate)
            return
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def _precision(self) -> torch.autocast:
        half = self._recipe.precision == "bfloat16"
        return torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=half, cache_enabled=False)

    def _update(self) -> None:
        if self._recipe.clip:
            nn.utils.clip_grad_norm_(self._parts.parameters(), self._recipe.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


class Client(_Party):
    """A client: its stem, its tail if it holds one, and its rows."""

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
        self._sent: Message = {}
        self._codes: Tensor | None = None
        self._gone = torch.empty(0)

    def send(self, parts: Parts, gone: Tensor) -> Message:
        """The first message of a batch: what the stem computes, and labels where the server has the head."""
        self._codes, self._gone = parts[CODE] if self._objective.labels else None, gone
        with self.meter.work("forward", len(gone)), self._precision():
            inputs = laid_out(self._feed.decode(parts), self._layout)
            self._sent = self._stem(inputs)
            message = {name: _plain(tensor) for name, tensor in self._sent.items()}
            if self._teachers is not None:
                message |= self._taught(self._teachers, inputs, gone)
        if self._tail is None and self._codes is not None:
            message[LABEL] = self._codes
        if self._teachers is not None or (self._tail is None and self._objective.marks):
            message[GONE] = gone
        return message

    def _taught(self, teachers: Teachers, inputs: Mapping[str, Tensor], gone: Tensor) -> Message:
        with torch.no_grad():
            keep = {n: _plain(t) for n, t in teachers.preserver.stems[self.name](inputs).items()}
            if bool(gone.any()):
                chosen = {n: t[gone] for n, t in inputs.items()}
                for name, tensor in teachers.destroyer.stems[self.name](chosen).items():
                    keep[name][gone] = _plain(tensor)
        return {f"{TAUGHT}{name}": tensor for name, tensor in keep.items()}

    def answer(self, reply: Message) -> tuple[Message, Tensor]:
        """Where the head lies here: the loss, and what the server needs to go on backwards."""
        features = reply[FEATURES].clone().requires_grad_(True)
        with self.meter.work("answer", len(features)), self._precision():
            if self._tail is None:
                raise TypeError("this client has no head.")
            taught = self._taught_outputs(reply[f"{TAUGHT}{FEATURES}"]) if self._teachers else None
            loss = self._objective.loss(self._tail(features).float(), self._codes, self._gone, taught)
            (reply[SHARE] * loss).backward()
        return {FEATURES: _gradient(features)}, loss.detach()

    def _taught_outputs(self, features: Tensor) -> Tensor | None:
        if self._teachers is None:
            return None
        with torch.no_grad():
            kept: Tensor = self._teachers.preserver.tails[self.name](features)
            if bool(self._gone.any()):
                kept[self._gone] = self._teachers.destroyer.tails[self.name](features[self._gone])
            return kept.float()

    def learn(self, reply: Message) -> None:
        """The last message of a batch: go backwards through the stem, and update."""
        with self.meter.work("backward", len(self._gone)):
            names = [name for name in reply if self._sent[name].requires_grad]
            if names:
                outputs = [self._sent[name] for name in names]
                torch.autograd.backward(outputs, [reply[n].to(self._sent[n].dtype) for n in names])
            self._sent = {}
            self._update()


class Server(_Party):
    """The server's part, for all clients or for one.

    Args:
        half: the module.
        recipe: how it is trained.
        aggregate: Φ, by name or a function.
        meter: of the server.
        teachers: the server's parts of teachers, to preserve by and to destroy by.
    """

    def __init__(
        self,
        half: ServerHalf,
        recipe: Recipe,
        objective: Objective,
        aggregate: str | Phi,
        *,
        device: torch.device,
        meter: Meter,
        teachers: tuple[ServerHalf, ServerHalf] | None = None,
    ) -> None:
        super().__init__([half], recipe, device, meter)
        self._half, self._objective, self._teachers = half, objective, teachers
        self._aggregate, self._weights = aggregate, weighing(aggregate)
        self._parameters = [p for p in half.parameters() if p.requires_grad]
        self._names: list[str] = []
        self._rows: list[int] = []
        self._received: Message = {}
        self._outputs = torch.empty(0)

    def train(self, received: Mapping[str, Message]) -> tuple[dict[str, Message], Tensor]:
        """One batch of each client that sent one, where the head lies here: the replies, and the rows' losses."""
        rows = sum(len(next(iter(message.values()))) for message in received.values())
        with self.meter.work("train", rows), self._precision():
            outputs = self._forward(received).float()
            taught = self._taught(received)
            losses = {}
            for name, mine in zip(self._names, outputs.split(self._rows), strict=True):
                message = received[name]
                gone = message.get(GONE)
                if gone is None:
                    gone = torch.zeros(len(mine), dtype=torch.bool, device=mine.device)
                losses[name] = self._objective.loss(mine, message.get(LABEL), gone, taught.get(name))
            total = torch.stack([loss.detach() * n for loss, n in zip(losses.values(), self._rows, strict=True)]).sum()
            return self._backward(list(losses.values())), total

    def features(self, received: Mapping[str, Message]) -> dict[str, Message]:
        """The same, where clients hold the head: what the server's part computes."""
        rows = sum(len(next(iter(message.values()))) for message in received.values())
        with self.meter.work("forward", rows), self._precision():
            self._outputs = self._forward(received).float()
            taught = self._taught(received)
        replies = {}
        shares = torch.tensor(self._shares(), device=self._device)
        for name, mine, share in zip(self._names, self._outputs.split(self._rows), shares, strict=True):
            replies[name] = {FEATURES: mine.detach(), SHARE: share}
            if name in taught:
                replies[name][f"{TAUGHT}{FEATURES}"] = taught[name]
        return replies

    def backward(self, received: Mapping[str, Message]) -> dict[str, Message]:
        """From the gradients of features, which clients sent, to those of what they sent first."""
        with self.meter.work("backward", sum(self._rows)):
            parts = zip(self._names, self._outputs.split(self._rows), self._shares(), strict=True)
            return self._backward([(mine * received[name][FEATURES]).sum() / share for name, mine, share in parts])

    def _forward(self, received: Mapping[str, Message]) -> Tensor:
        """All clients' rows as one batch: batch norm sees what a model trained in one place would see."""
        self._names = list(received)
        self._rows = [len(next(iter(message.values()))) for message in received.values()]
        names = [spec.name for spec in self._half.boundary]
        self._received = laid_out(_joined(received, names), self._layout)
        for name in names:
            if self._received[name].is_floating_point():
                self._received[name].requires_grad_(True)
        try:
            return self._half.logits(self._received)
        except (RuntimeError, ValueError) as problem:
            if isinstance(problem, torch.OutOfMemoryError):
                raise
            raise TrainingError(
                f"the server's part could not compute a batch of {sum(self._rows)} rows from {', '.join(self._names)} "
                f"({problem}). A client with a single row cannot be visited alone where batch norm is used: choose the "
                "interleaved schedule, or leave it out."
            ) from problem

    def _taught(self, received: Mapping[str, Message]) -> dict[str, Tensor]:
        if self._teachers is None:
            return {}
        joined = _joined(received, [f"{TAUGHT}{spec.name}" for spec in self._half.boundary])
        told = {name.removeprefix(TAUGHT): tensor for name, tensor in joined.items()}
        gone = torch.cat([message[GONE] for message in received.values()])
        with torch.no_grad():
            out = self._teachers[0].logits(told).float()
            if bool(gone.any()):
                out[gone] = self._teachers[1].logits({name: t[gone] for name, t in told.items()}).float()
        return dict(zip(self._names, out.split(self._rows), strict=True))

    def _backward(self, scalars: list[Tensor]) -> dict[str, Message]:
        """Update by Φ of the clients' gradients, and tell each client the gradient of the joint objective."""
        leaves = {name: tensor for name, tensor in self._received.items() if tensor.requires_grad}
        shares = self._shares()
        if self._weights is not None:
            torch.stack([share * scalar for share, scalar in zip(shares, scalars, strict=True)]).sum().backward()
        else:
            self._backward_by_client(scalars, shares, list(leaves.values()))
        self._update()
        replies: dict[str, Message] = {name: {} for name in self._names}
        for name, leaf in leaves.items():
            for client, part in zip(self._names, _gradient(leaf).split(self._rows), strict=True):
                replies[client][name] = part
        self._received, self._outputs = {}, torch.empty(0)
        return replies

    def _shares(self) -> list[float]:
        """Each client's weight in the objective: as Φ weighs it, or by rows where Φ is a function of one's own."""
        return (self._weights or by_rows)(self._rows)

    def _backward_by_client(self, scalars: Sequence[Tensor], shares: Sequence[float], leaves: Sequence[Tensor]) -> None:
        """Φ of one's own: a backward pass for each client. What clients are told is weighed by rows."""
        phi = self._aggregate
        if isinstance(phi, str):
            raise TypeError("Φ is a name, not a function.")
        found: list[list[Tensor]] = []
        told = [torch.zeros_like(leaf) for leaf in leaves]
        for place, (scalar, share) in enumerate(zip(scalars, shares, strict=True)):
            scalar.backward(retain_graph=place < len(scalars) - 1)
            found.append([_gradient(parameter) for parameter in self._parameters])
            for total, leaf in zip(told, leaves, strict=True):
                total += share * _gradient(leaf)
            for tensor in (*self._parameters, *leaves):
                tensor.grad = None
        gradients = phi(found, self._rows)
        shapes = [p.shape for p in self._parameters]
        if [g.shape for g in gradients] != shapes:
            raise TrainingError(
                f"the aggregation must return {len(shapes)} gradients, shaped like the server's weights."
            )
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        for leaf, total in zip(leaves, told, strict=True):
            leaf.grad = total


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _plain(tensor: Tensor) -> Tensor:
    """A tensor as it crosses: without a history, floats as wide as torch's own."""
    tensor = tensor.detach()
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def _joined(received: Mapping[str, Message], names: Sequence[str]) -> Message:
    return {name: torch.cat([message[name] for message in received.values()]) for name in names}
