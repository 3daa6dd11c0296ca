"""What a link costs its clients: a wrapper around any link that counts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from torch import Tensor

from splitwiper.errors import SplitWiperError
from splitwiper.wire.link import Accepted, Fence, Link, ModelCopy, Scores
from splitwiper.wire.messages import Spent, Statement


class MeteredLink:
    """A link that counts what each client sends, receives and says it has computed for that."""

    def __init__(self, link: Link) -> None:
        self._link, self._alone = link, threading.Lock()
        self.spent: dict[str, Spent] = {}
        """What each client has spent, by name."""
        # too small to be counted
        self.standing, self.largest_value = link.standing, link.largest_value
        self.submit, self.tickets, self.receipt = link.submit, link.tickets, link.receipt
        self.topic, self.posted, self.ended = link.topic, link.posted, link.ended

    def count(self, client: str, spent: Spent) -> None:
        """Add to what a client has spent."""
        with self._alone:
            self.spent[client] = self.spent.get(client, Spent()) + spent

    def upload(
        self, client: str, shard: Path, statement: Statement, *, digest: str | None = None, fence: Fence = nullcontext
    ) -> Accepted:
        """Upload a shard."""
        self.count(client, statement.spent)
        try:
            accepted = self._link.upload(client, shard, statement, digest=digest, fence=fence)
        except SplitWiperError:
            self.count(client, Spent(bytes_up=shard.stat().st_size))  # it was sent all the same
            raise
        self.count(client, Spent(bytes_up=accepted.travelled))
        return accepted

    def withdraw(self, client: str, statement: Statement, *, fence: Fence = nullcontext) -> None:
        """Erase the client's shard."""
        self.count(client, statement.spent)
        self._link.withdraw(client, statement, fence=fence)

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half."""
        scores = self._link.predict(client, boundary)
        self.count(client, Spent(bytes_up=_size(boundary), bytes_down=scores.logits.nbytes))
        return scores

    def model(self, client: str) -> ModelCopy:
        """Return the server half."""
        copy = self._link.model(client)
        self.count(client, Spent(bytes_down=_size(copy.state)))
        return copy

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Relay a sealed message to the other clients."""
        self.count(client, Spent(bytes_up=len(body)))
        self._link.post(client, topic, place, body)


def _size(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
