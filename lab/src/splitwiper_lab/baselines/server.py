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
from splitwiper_lab.baselines.party import (
    FEATURES,
    SHARE,
    TAUGHT,
    Objective,
    TrainingSide,
    gradient_of,
    plain,
    selected,
    wide,
)


class BaselineServer(TrainingSide):
    """The server's side of a batch.

    The objective is used only if the server holds the head. ``aggregate`` is Φ, by name or a function. If client halves
    are averaged later, each client gets the gradient of its own mean loss, so that the average moves as a single half
    for all rows would; else that of the joint objective. ``teachers`` are parts of the preserver and the destroyer.
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
        self._parameters = [parameter for parameter in half.parameters() if parameter.requires_grad]
        self._names: list[str] = []
        self._rows: list[int] = []
        self._received: Message = {}
        self._outputs: dict[str, Tensor] = {}

    def train(self, received: Mapping[str, Message]) -> tuple[dict[str, Message], Tensor]:
        """Train on one batch of each sending client, with the head here; return replies and the sum of rows' losses."""
        with self.meter.work("train", _count(received)), self._precision():
            outputs = self._forward(received)
            taught = self._taught(received)
            losses, sums = [], []
            for name, mine in outputs.items():
                gone = received[name].get(GONE)
                if gone is None:
                    gone = torch.zeros(len(mine), dtype=torch.bool, device=mine.device)
                loss = self._objective.loss(mine, received[name].get(LABEL), gone, taught.get(name))
                losses.append(loss)
                sums.append(loss.detach() * len(mine))  # the loss is a mean over the client's rows
            return self._backward(losses), torch.stack(sums).sum()

    def features(self, received: Mapping[str, Message]) -> dict[str, Message]:
        """Compute the output of the server's part, where clients hold the head, and return it as replies."""
        with self.meter.work("forward", _count(received)), self._precision():
            self._outputs = self._forward(received)  # by client, rows × features; kept for the gradients to come
            taught = self._taught(received)
        replies = {}
        shares = torch.tensor(self._shares(), device=self._device)
        for (name, mine), share in zip(self._outputs.items(), shares, strict=True):
            replies[name] = {FEATURES: plain(mine), SHARE: share}
            if name in taught:
                replies[name][f"{TAUGHT}{FEATURES}"] = taught[name]
        return replies

    def backward(self, received: Mapping[str, Message]) -> dict[str, Message]:
        """Update from clients' gradients of features; return the gradients of the activations they sent first."""
        with self.meter.work("backward", sum(self._rows)):
            # each scalar's derivative in `mine` is the received gradient, which the client scaled by its share;
            # divide by the share here, since _backward multiplies by it again
            scalars = []
            for (name, mine), share in zip(self._outputs.items(), self._shares(), strict=True):
                scalars.append((mine * received[name][FEATURES]).sum() / share)
            return self._backward(scalars)

    def _forward(self, received: Mapping[str, Message]) -> dict[str, Tensor]:
        """Process all clients' rows as one batch, so that batch norm sees what central training would show it."""
        self._names = list(received)
        self._rows = list(map(_rows, received.values()))

        def run(tensors: Message) -> Tensor:
            self._received = tensors
            for spec in self._half.boundary:
                # leaves of the server's graph: their gradients are what the clients get back
                if spec.kind == "activation" and tensors[spec.name].is_floating_point():
                    tensors[spec.name].requires_grad_(True)
            return wide(self._half.logits(tensors))

        joined = {}
        for spec in self._half.boundary:
            joined[spec.name] = _joined(received, spec.name)
        return self._by_client(self._computed(run, joined, f"the server, from {', '.join(self._names)},"))

    def _by_client(self, rows: Tensor) -> dict[str, Tensor]:
        """Divide the rows of a batch among the clients that sent them."""
        return dict(zip(self._names, rows.split(self._rows), strict=True))

    def _taught(self, received: Mapping[str, Message]) -> dict[str, Tensor]:
        """Return the teachers' outputs: from their own activations, and everything else as it was received."""
        if self._teachers is None:
            return {}
        preserver, destroyer = self._teachers
        taught = {}
        for spec in self._half.boundary:
            if spec.kind == "activation":
                taught[spec.name] = _joined(received, f"{TAUGHT}{spec.name}")
            else:
                taught[spec.name] = self._received[spec.name].detach()  # a mask is the same for every network
        gone = _joined(received, GONE)
        with torch.no_grad():
            outputs = wide(self._computed(preserver.logits, taught, "a teacher"))
            if bool(gone.any()):
                outputs[gone] = wide(self._computed(destroyer.logits, selected(taught, gone), "a teacher"))
        return self._by_client(outputs)

    def _backward(self, scalars: Sequence[Tensor]) -> dict[str, Message]:
        """Update by Φ of the clients' gradients, and return to each client the gradient of its message."""
        leaves = {name: tensor for name, tensor in self._received.items() if tensor.requires_grad}
        shares = self._shares()
        if self._weights is not None:
            # Φ only weighs clients, so the gradient of the weighed sum is Φ of their gradients
            torch.stack([share * scalar for share, scalar in zip(shares, scalars, strict=True)]).sum().backward()
        else:
            self._backward_by_client(scalars, shares, list(leaves.values()))
        self._update()
        replies: dict[str, Message] = {name: {} for name in self._names}
        for name, leaf in leaves.items():
            for (client, part), share in zip(self._by_client(gradient_of(leaf)).items(), shares, strict=True):
                # without its share, the gradient is that of the client's own mean loss
                replies[client][name] = part / share if self._averaged else part
        self._received, self._outputs = {}, {}
        return replies

    def _shares(self) -> list[float]:
        """Return each client's weight in the objective: given by Φ, or by rows if Φ is a custom function."""
        return (self._weights or by_rows)(self._rows)

    def _backward_by_client(self, scalars: Sequence[Tensor], shares: Sequence[float], leaves: Sequence[Tensor]) -> None:
        """Run one backward pass per client for a custom Φ; gradients returned to clients are weighed by rows."""
        found: list[list[Tensor]] = []
        totals = list(map(torch.zeros_like, leaves))
        # Φ may be any function of the clients' gradients, so each client's is needed by itself
        for place, (scalar, share) in enumerate(zip(scalars, shares, strict=True)):
            scalar.backward(retain_graph=place < len(scalars) - 1)
            found.append(list(map(gradient_of, self._parameters)))
            # clients update by the joint objective whatever Φ is: it is about the server's weights only
            for total, leaf in zip(totals, leaves, strict=True):
                total += share * gradient_of(leaf)
            for tensor in (*self._parameters, *leaves):
                tensor.grad = None
        for parameter, gradient in zip(self._parameters, self._aggregated(found), strict=True):
            parameter.grad = gradient
        for leaf, total in zip(leaves, totals, strict=True):
            leaf.grad = total

    def _aggregated(self, found: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
        shapes = [parameter.shape for parameter in self._parameters]
        gradients = self._aggregate(found, self._rows) if callable(self._aggregate) else None
        if not isinstance(gradients, Sequence) or [getattr(each, "shape", None) for each in gradients] != shapes:
            raise TrainingError(
                f"the aggregation must return {len(shapes)} gradients, shaped like the server's weights."
            )
        return gradients


def _rows(message: Message) -> int:
    return len(next(iter(message.values())))


def _count(received: Mapping[str, Message]) -> int:
    return sum(map(_rows, received.values()))


def _joined(received: Mapping[str, Message], name: str) -> Tensor:
    """Return one tensor of all clients' messages, in the order of clients."""
    return torch.cat([message[name] for message in received.values()])
