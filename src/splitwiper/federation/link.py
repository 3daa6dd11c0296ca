"""The link of clients in the server's own process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from torch import Tensor

from splitwiper.server import Server
from splitwiper.store import files
from splitwiper.wire import Accepted, ModelCopy, Posted, Receipt, Request, Scores, Standing, Statement, Ticket
from splitwiper.wire.link import Fence
from splitwiper.wire.transfer import carry, check_transfer


class InProcessLink:
    """Calls the server directly.

    If ``transfer`` is 'zstd', shards are compressed on their way, so that costs are those of a link that does.
    """

    def __init__(self, server: Server, transfer: str = "none") -> None:
        check_transfer(transfer)
        self._server, self._transfer = server, transfer

    def upload(
        self, client: str, shard: Path, statement: Statement, *, digest: str | None = None, fence: Fence = nullcontext
    ) -> Accepted:
        """Upload a shard. The server computes the digest itself."""
        # the fence is held while the server takes the shard in, and not while it is compressed and carried there
        if self._transfer == "none":
            with fence():
                return self._server.upload(client, shard, statement)
        arrived = self._server.store.root / "incoming" / files.owned_name("sent")
        try:
            with files.atomic_file(arrived) as file:
                travelled = carry(shard, file, self._transfer)
            with fence():
                return self._server.upload(client, arrived, statement, travelled=travelled)
        finally:
            arrived.unlink(missing_ok=True)

    def withdraw(self, client: str, statement: Statement, *, fence: Fence = nullcontext) -> None:
        """Erase the client's shard."""
        with fence():
            self._server.withdraw(client, statement)

    def standing(self, client: str) -> Standing:
        """Return whether the server erased the client's shard of its own accord, or refuses new ones."""
        return self._server.standing(client)

    def largest_value(self) -> float:
        """Return the largest absolute value of an activation that the server accepts."""
        return self._server.limits.largest_value

    def submit(self, request: Request) -> Ticket:
        """Submit a request to forget."""
        return self._server.submit(request)

    def tickets(self, client: str) -> tuple[Ticket, ...]:
        """Return every request made in this client's name."""
        return self._server.tickets(client)

    def receipt(self, ticket: str) -> Receipt:
        """Return the receipt of a settled request."""
        return self._server.store.receipt(ticket)

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half."""
        return self._server.predict(client, boundary)

    def model(self, client: str) -> ModelCopy:
        """Return the server half."""
        return self._server.model(client)

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Relay a sealed message to the other clients."""
        self._server.post(client, topic, place, body)

    def topic(self) -> str:
        """Return the current topic on the relay, or the latest one."""
        return self._server.topic()

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Return the messages of a topic, from a sequence number on."""
        return self._server.posted(topic, since)

    def ended(self, topic: str, proof: bytes = b"") -> None:
        """Report that a negotiation has ended, or was abandoned."""
        self._server.ended(topic, proof)
