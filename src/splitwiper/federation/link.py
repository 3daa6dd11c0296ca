"""The in-process link: calls the server directly, and meters everything that crosses."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from torch import Tensor

from splitwiper.server import Server
from splitwiper.store import files
from splitwiper.wire import Accepted, ModelCopy, Posted, Request, Scores, Spent, Standing, Statement, Ticket
from splitwiper.wire.link import Fence
from splitwiper.wire.transfer import carry, check_transfer


class InProcessLink:
    """Calls the server directly and accounts for what each client spent."""

    def __init__(self, server: Server, transfer: str = "none") -> None:
        check_transfer(transfer)
        self._server = server
        self._transfer = transfer
        self.spent: dict[str, Spent] = {}
        self.finished = False

    def begin(self) -> None:
        """Start a new account if the previous unit of work, from the first request to its settling, is finished."""
        if self.finished:
            self.spent.clear()
            self.finished = False

    def charge(self, client: str, spent: Spent) -> None:
        """Add to a client's account."""
        self.spent[client] = self.spent.get(client, Spent()) + spent

    travels = False

    def upload(
        self,
        client: str,
        shard: Path,
        statement: Statement,
        *,
        digest: str | None = None,
        fence: Fence = nullcontext,
    ) -> Accepted:
        """Upload a shard, compressed in transfer if so configured. The server computes the digest itself."""
        if self._transfer == "none":
            self.charge(client, statement.spent + Spent(bytes_up=shard.stat().st_size))
            with fence():
                return self._server.upload(client, shard, statement)
        arrived = self._server.store.root / "incoming" / files.owned_name("sent")
        try:
            with files.atomic_file(arrived) as file:
                travelled = carry(shard, file, self._transfer)
            self.charge(client, statement.spent + Spent(bytes_up=travelled))
            with fence():
                return self._server.upload(client, arrived, statement, travelled=travelled)
        finally:
            arrived.unlink(missing_ok=True)

    def withdraw(self, client: str, statement: Statement, *, fence: Fence = nullcontext) -> None:
        """Erase the client's shard."""
        self.charge(client, statement.spent)
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

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half."""
        scores = self._server.predict(client, boundary)
        up, down = (sum(t.nbytes for t in ts) for ts in (boundary.values(), (scores.logits,)))
        self.charge(client, Spent(bytes_up=up, bytes_down=down))
        return scores

    def model(self, client: str) -> ModelCopy:
        """Return the server half."""
        copy = self._server.model(client)
        self.charge(client, Spent(bytes_down=sum(t.nbytes for t in copy.state.values())))
        return copy

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Relay a sealed message to the other clients."""
        self.charge(client, Spent(bytes_up=len(body)))
        self._server.post(client, topic, place, body)

    def topic(self) -> str:
        """Return the current topic on the relay, or the latest one."""
        return self._server.topic()

    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Return the messages of a topic, from a sequence number on."""
        return self._server.posted(topic, since)
