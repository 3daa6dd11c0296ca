"""Vanilla split learning (Section 2.1; Gupta and Raskar 2018).

Per batch: clients send activations and labels, the server computes the loss, updates its part by Φ of the clients'
gradients, and returns the gradient of what each client sent; each client updates its own part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from splitwiper_lab.baselines.channel import Channel
from splitwiper_lab.baselines.framework import Framework
from splitwiper_lab.baselines.server import BaselineServer
from splitwiper_lab.baselines.training import Turn


@dataclass(frozen=True, kw_only=True)
class Vanilla(Framework):
    """One server half for all clients; the server sees labels."""

    name: ClassVar[str] = "vanilla"

    def exchange(self, server: BaselineServer, turn: Turn, channel: Channel) -> Tensor:
        """Train on one batch in one round trip: activations and labels up, gradients down."""
        received = {}
        for client, rows, gone in turn:
            received[client.name] = channel.up(client.name, client.send(rows, gone))
        replies, loss = server.train(received)
        for client, _, _ in turn:
            client.learn(channel.down(client.name, replies[client.name]))
        return loss
