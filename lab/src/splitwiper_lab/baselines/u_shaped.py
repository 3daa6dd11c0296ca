"""U-shaped split learning (Section 2.1; Gupta and Raskar 2018): labels never leave their client.

Clients hold the first layers and the last one. Per batch: activations go up, features come down, the client computes
loss and output layer, the gradient of the features goes up, that of the activations comes down. Each client's output
layer covers only the client's own labels, so clients with different labels need no common list, and predictions are
always own labels. Output layers are never averaged: the average would show the server which labels exist.

Labels and their names never leave. But a row's gradient of features is Wᵀ(p − y), so the gradients of a batch span one
dimension fewer than there are labels, and rows of one label cluster: an observer can count labels and group rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from splitwiper_lab.baselines.channel import Channel
from splitwiper_lab.baselines.framework import Framework
from splitwiper_lab.baselines.server import BaselineServer
from splitwiper_lab.baselines.training import Turn


@dataclass(frozen=True, kw_only=True)
class UShaped(Framework):
    """Each client holds a head; the server sees no label."""

    name: ClassVar[str] = "u-shaped"
    tails: ClassVar[bool] = True

    def exchange(self, server: BaselineServer, turn: Turn, channel: Channel) -> Tensor:
        """Train on one batch in two round trips: activations up, features down; then the gradients of both."""
        received = {}
        for client, rows, gone in turn:
            received[client.name] = channel.up(client.name, client.send(rows, gone))
        features = server.features(received)
        gradients, losses = {}, []
        for client, _, gone in turn:
            answer, loss = client.answer(channel.down(client.name, features[client.name]))
            gradients[client.name] = channel.up(client.name, answer)
            losses.append(loss * len(gone))  # the mask has an entry for each row
        # clients have their gradients by now; the server's are a sum of theirs, so it waits for all of them
        replies = server.backward(gradients)
        for client, _, _ in turn:
            client.learn(channel.down(client.name, replies[client.name]))
        return torch.stack(losses).sum()
