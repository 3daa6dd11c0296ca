"""The server of split training: its part of the network, for all clients or for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from splitwiper.config import Recipe
from splitwiper.errors import TrainingError
from splitwiper.splitting import ServerHalf
from splitwiper_lab.baselines.aggregation import Phi, by_rows, weighing
from splitwiper_lab.baselines.channel import GONE, LABEL, Message
from splitwiper_lab.baselines.meters import Meter
from splitwiper_lab.baselines.objectives import Objective
from splitwiper_lab.baselines.party import FEATURES, SHARE, TAUGHT, TrainingSide, gradient_of, plain, wide


class BaselineServer(TrainingSide):
    """The server's side of a batch.

    Args:
        half: the server's part of the network.
        recipe: the training settings.
        objective: the training objective, if the server holds the head.
        aggregate: Φ, by name or a function.
        averaged: whether client halves are averaged later. If so, each client gets the gradient of its own mean loss,
            so that the average moves as a single half for all rows would; else that of the joint objective.
        device: the device of the half.
        meter: the server's meter.
        teachers: the server's parts of the preserver and the destroyer.
    """

    def __init__(
        self,
        half: ServerHalf,
        recipe: Recipe,
        objective: Objective,
        aggregate: str | Phi,
        *,
        averaged: bool,
        device: torch.device,
        meter: Meter,
        teachers: tuple[ServerHalf, ServerHalf] | None = None,
    ) -> None:
        super().__init__([half], recipe, device, meter)
        self._half, self._objective, self._teachers, self._averaged = half, objective, teachers, averaged
        self._aggregate, self._weights = aggregate, weighing(aggregate)
        self._parameters = [p for p in half.parameters() if p.requires_grad]
        self._names: list[str] = []
        self._rows: list[int] = []
        self._received: Message = {}
        self._outputs = torch.empty(0)

    def train(self, received: Mapping[str, Message]) -> tuple[dict[str, Message], Tensor]:
        """Train on one batch of each sending client, with the head here; return replies and the sum of rows' losses."""
        with self.meter.work("train", _count(received)), self._precision():
            outputs = self._forward(received)
            taught = self._taught(received)
            losses = []
            for name, mine in zip(self._names, outputs.split(self._rows), strict=True):
                gone = received[name].get(GONE)
                if gone is None:
                    gone = torch.zeros(len(mine), dtype=torch.bool, device=mine.device)
                losses.append(self._objective.loss(mine, received[name].get(LABEL), gone, taught.get(name)))
            total = torch.stack([loss.detach() * n for loss, n in zip(losses, self._rows, strict=True)]).sum()
            return self._backward(losses), total

    def features(self, received: Mapping[str, Message]) -> dict[str, Message]:
        """Compute the output of the server's part, where clients hold the head, and return it as replies."""
        with self.meter.work("forward", _count(received)), self._precision():
            self._outputs = self._forward(received)
            taught = self._taught(received)
        replies = {}
        shares = torch.tensor(self._shares(), device=self._device)
        for name, mine, share in zip(self._names, self._outputs.split(self._rows), shares, strict=True):
            replies[name] = {FEATURES: plain(mine), SHARE: share}
            if name in taught:
                replies[name][f"{TAUGHT}{FEATURES}"] = taught[name]
        return replies

    def backward(self, received: Mapping[str, Message]) -> dict[str, Message]:
        """Update from clients' gradients of features; return the gradients of the activations they sent first."""
        with self.meter.work("backward", sum(self._rows)):
            # each scalar's derivative in `mine` is the received gradient, which the client scaled by its share;
            # divide by the share here, since _backward multiplies by it again
            parts = zip(self._names, self._outputs.split(self._rows), self._shares(), strict=True)
            return self._backward([(mine * received[name][FEATURES]).sum() / share for name, mine, share in parts])

    def _forward(self, received: Mapping[str, Message]) -> Tensor:
        """Process all clients' rows as one batch, so that batch norm sees what central training would show it."""
        self._names = list(received)
        self._rows = [len(next(iter(message.values()))) for message in received.values()]

        def run(tensors: Message) -> Tensor:
            self._received = tensors
            for spec in self._half.boundary:
                if spec.kind == "activation" and tensors[spec.name].is_floating_point():
                    tensors[spec.name].requires_grad_(True)
            return wide(self._half.logits(tensors))

        joined = {
            spec.name: torch.cat([message[spec.name] for message in received.values()]) for spec in self._half.boundary
        }
        return self._computed(run, joined, f"the server, from {', '.join(self._names)},")

    def _taught(self, received: Mapping[str, Message]) -> dict[str, Tensor]:
        """Return the teachers' outputs: from their own activations, and everything else as it was received."""
        if self._teachers is None:
            return {}
        preserver, destroyer = self._teachers
        told = {
            spec.name: torch.cat([message[f"{TAUGHT}{spec.name}"] for message in received.values()])
            if spec.kind == "activation"
            else self._received[spec.name].detach()
            for spec in self._half.boundary
        }
        gone = torch.cat([message[GONE] for message in received.values()])
        with torch.no_grad():
            out = wide(self._computed(preserver.logits, told, "a teacher"))
            if bool(gone.any()):
                chosen = {name: tensor[gone] for name, tensor in told.items()}
                out[gone] = wide(self._computed(destroyer.logits, chosen, "a teacher"))
        return dict(zip(self._names, out.split(self._rows), strict=True))

    def _backward(self, scalars: Sequence[Tensor]) -> dict[str, Message]:
        """Update by Φ of the clients' gradients, and return to each client the gradient of its message."""
        leaves = {name: tensor for name, tensor in self._received.items() if tensor.requires_grad}
        shares = self._shares()
        if self._weights is not None:
            torch.stack([share * scalar for share, scalar in zip(shares, scalars, strict=True)]).sum().backward()
        else:
            self._backward_by_client(scalars, shares, list(leaves.values()))
        self._update()
        replies: dict[str, Message] = {name: {} for name in self._names}
        for name, leaf in leaves.items():
            parts = gradient_of(leaf).split(self._rows)
            for client, part, share in zip(self._names, parts, shares, strict=True):
                # without its share, the gradient is that of the client's own mean loss
                replies[client][name] = part / share if self._averaged else part
        self._received, self._outputs = {}, torch.empty(0)
        return replies

    def _shares(self) -> list[float]:
        """Return each client's weight in the objective: given by Φ, or by rows if Φ is a custom function."""
        return (self._weights or by_rows)(self._rows)

    def _backward_by_client(self, scalars: Sequence[Tensor], shares: Sequence[float], leaves: Sequence[Tensor]) -> None:
        """Run one backward pass per client for a custom Φ; gradients returned to clients are weighed by rows."""
        found: list[list[Tensor]] = []
        told = [torch.zeros_like(leaf) for leaf in leaves]
        # Φ may be any function of the clients' gradients, so each client's is needed by itself
        for place, (scalar, share) in enumerate(zip(scalars, shares, strict=True)):
            scalar.backward(retain_graph=place < len(scalars) - 1)
            found.append([gradient_of(parameter) for parameter in self._parameters])
            for total, leaf in zip(told, leaves, strict=True):
                total += share * gradient_of(leaf)
            for tensor in (*self._parameters, *leaves):
                tensor.grad = None
        for parameter, gradient in zip(self._parameters, self._aggregated(found), strict=True):
            parameter.grad = gradient
        for leaf, total in zip(leaves, told, strict=True):
            leaf.grad = total

    def _aggregated(self, found: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
        shapes = [p.shape for p in self._parameters]
        gradients = self._aggregate(found, self._rows) if callable(self._aggregate) else None
        if not isinstance(gradients, Sequence) or [getattr(g, "shape", None) for g in gradients] != shapes:
            raise TrainingError(
                f"the aggregation must return {len(shapes)} gradients, shaped like the server's weights."
            )
        return gradients


def _count(received: Mapping[str, Message]) -> int:
    return sum(len(next(iter(message.values()))) for message in received.values())
