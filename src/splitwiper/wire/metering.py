"""What a link costs its clients: a wrapper around any link that counts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from torch import Tensor

from splitwiper.errors import SplitWiperError
from splitwiper.wire.link import Accepted, Fence, Link, ModelCopy, Posted, Scores, Standing
from splitwiper.wire.messages import Receipt, Request, Spent, Statement, Ticket


class MeteredLink:
    """A link that counts what each client sends, receives and says it has computed for that.

    Args:
        link: the link that does the work.
    """

    def __init__(self, link: Link) -> None:
        self._link, self._alone = link, threading.Lock()
        self.spent: dict[str, Spent] = {}
        """What each client has spent, by name."""

    def count(self, client: str, spent: Spent) -> None:
        """Add to what a client has spent."""
        with self._alone:
            self.spent[client] = self.spent.get(client, Spent()) + spent

    # --- counted -------------------------------------------------------------------------------------------

    def upload(
        self,
        client: str,
        shard: Path,
        statement: Statement,
        *,
        digest: str | None = None,
        fence: Fence = nullcontext,
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

    # --- too small to be counted ---------------------------------------------------------------------------

    def standing(self, client: str) -> Standing:
        """Return whether the server erased the client's shard of its own accord, or refuses new ones."""
        return self._link.standing(client)

    def largest_value(self) -> float:
        """Return the largest absolute value of an activation that the server accepts."""
        return self._link.largest_value()

    def submit(self, request: Request) -> Ticket:
        """Submit a request to forget."""
        return self._link.submit(request)

    def tickets(self, client: str) -> tuple[Ticket, ...]:
        """Return every request made in this client's name."""
        return self._link.tickets(client)

    def receipt(self, ticket: str) -> Receipt:
        """Return the receipt of a settled request."""
        return self._link.receipt(ticket)

    def topic(self) -> str:
        """Return the current topic on the relay, or the latest one."""
        return self._link.topic()

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Return the messages of a topic, from a sequence number on."""
        return self._link.posted(topic, since)

    def ended(self, topic: str, proof: bytes = b"") -> None:
        """Report that a negotiation has ended, or was abandoned."""
        self._link.ended(topic, proof)


def _size(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
