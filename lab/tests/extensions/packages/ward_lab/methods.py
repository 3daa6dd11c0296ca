"""A framework and a way to forget, in the terms of the laboratory's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from splitwiper_lab.baselines import Forgetting, Framework, Trained
from splitwiper_lab.baselines.channel import Channel
from splitwiper_lab.baselines.schedules import Portion
from splitwiper_lab.baselines.server import BaselineServer
from splitwiper_lab.baselines.training import Turn
from splitwiper_lab.baselines.unlearning.method import Adjusting, everything


@dataclass(frozen=True, kw_only=True)
class Halved(Framework):
    """Vanilla split learning whose clients learn from a part of the gradient.

    Attributes:
        part: the part.
    """

    part: float = 0.5

    name: ClassVar[str] = "halved"

    def exchange(self, server: BaselineServer, turn: Turn, channel: Channel) -> Tensor:
        received = {client.name: channel.up(client.name, client.send(rows, gone)) for client, rows, gone in turn}
        replies, loss = server.train(received)
        for client, _, _ in turn:
            reply = {name: self.part * tensor for name, tensor in replies[client.name].items()}
            client.learn(channel.down(client.name, reply))
        return loss


@dataclass(frozen=True, kw_only=True)
class Shrinking(Adjusting):
    """Trains a little on the rows that stay, at the clients that have the most of them.

    Attributes:
        clients: how many clients take part, besides the requester.
    """

    name: ClassVar[str] = "shrinking"
    clients: int = 1

    def portions(self, trained: Trained, forgetting: Forgetting) -> Mapping[str, Portion]:
        every = everything(trained, forgetting)
        largest = sorted(every, key=lambda name: (-len(every[name].kept), name))[: self.clients]
        chosen = {name: every[name] for name in every if name in largest}
        return {name: Portion(portion.kept, portion.gone[:0]) for name, portion in chosen.items() if len(portion.kept)}
