"""Finish all unfinished work: the whole of crash recovery, and the second half of learning and forgetting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

from splitwiper.client import Added, Client
from splitwiper.data.sources import NAME
from splitwiper.errors import (
    AbsentClientError,
    BusyError,
    CorruptError,
    DataError,
    FencedError,
    SplitWiperError,
    StoreError,
    TrainingError,
    let_go,
)
from splitwiper.federation.agreeing import Agreement, agree
from splitwiper.federation.registry import ClientRegistry
from splitwiper.formats import counted
from splitwiper.server import Server
from splitwiper.store import exclusion, ledger
from splitwiper.training.loop import Pausing
from splitwiper.wire import Receipt, Spent, Ticket

LANES = 8
"""Clients that pre-train on one GPU at the same time."""


@dataclass(frozen=True)
class Learned:
    """The outcome of a call of `learn`.

    Attributes:
        added: what became of each client's rows.
        spent: what each client spent; clients that were not named spent nothing.
        losses: the server's mean loss per epoch; empty if nothing had to be trained.
        server_seconds: the time of training on the server, in seconds.
        receipts: receipts of requests that this call settled.
        agreement: the outcome of the negotiation about labels, if clients hide them and one was needed.
    """

    added: Mapping[str, Added]
    spent: Mapping[str, Spent]
    losses: tuple[float, ...]
    server_seconds: float
    receipts: tuple[Receipt, ...]
    agreement: Agreement | None = None


@dataclass(frozen=True)
class Reconciled:
    """The outcome of finishing all unfinished work.

    Attributes:
        receipts: receipts of the requests that were settled.
        agreement: the outcome of the negotiation about labels, if clients hide them and one was needed.
        failed: what kept clients from being brought up to date, by name.
        waiting: requests of clients whose folders are not here.
    """

    receipts: tuple[Receipt, ...]
    agreement: Agreement | None
    failed: Mapping[str, SplitWiperError]
    waiting: Sequence[Ticket]

    def check(self, named: AbstractSet[str] | None) -> None:
        """Raise what went wrong with the clients that a call named; `status` reports the others.

        ``named`` is None for a call that names nobody; problems are raised then if no request was settled.
        """
        concerned = named if named is not None else set[str]() if self.receipts else self.failed.keys()
        for name, problem in self.failed.items():
            if name in concerned:
                raise problem
        if self.waiting and named is None and not self.receipts:
            missing = ", ".join(sorted({ticket.client for ticket in self.waiting}))
            many = counted(len(self.waiting), "request waits", "requests wait")
            raise AbsentClientError(
                f"{many} for {missing}, whose folder is not here: bring it back and settle again. Only if it is lost: "
                "forget the whole client (everything=True), which needs only the server."
            )


def reconcile(registry: ClientRegistry) -> Reconciled:
    """Finish interrupted clients, answer open requests, and train if the model is not the manifest's.

    One client's failure does not stop the others.
    """
    server, here = registry.server, set(registry.here())
    open_tickets = _open_tickets(server)
    # marks show what was begun; a client's own database shows what remains when another process erased the mark
    behind = set(filter(registry.is_behind, sorted(here)))
    names = registry.marked() | behind | {ticket.client for ticket in open_tickets}
    working = sorted(names & here)
    went_back = registry.went_back()
    if went_back:  # the server is an older copy: requests are made again below, and the ledger records that it is
        server.store.note_restored()
    agreement = agree(registry, working)
    failed = _bring_up(registry, working, behind)  # even if nothing was agreed: forgetting needs no codebook
    failed |= agreement.problems if agreement else {}
    absent = set()
    for name in names - here:
        registry.unmark_pending(name)
        if NAME.fullmatch(name) and server.store.knows(name):
            absent.add(name)
    for ticket in open_tickets:  # a whole client can be forgotten in its absence
        if ticket.client in absent and ticket.level == "client":
            answers = [other.id for other in open_tickets if other.client == ticket.client]
            server.store.withdraw(ticket.client, None, answers=answers)
    receipts = server.train()
    for name in sorted(here):  # clients whose shards were set aside so that others could be served
        if exclusion.taken_away(server.store, name) is not None:
            with suppress(StoreError):  # a damaged folder is reported when it is worked on
                registry.client(name).heed()
    for name in sorted((names & here | went_back) - failed.keys()):
        registry.client(name).pin(ledger.head(server.store.database))
    for name in failed:
        if registry.is_untrainable(name):  # nothing is left to do until it gets other rows
            registry.unmark_pending(name)
    waiting = [ticket for ticket in _open_tickets(server) if ticket.client in absent]
    return Reconciled(receipts, agreement, failed, waiting)


def _open_tickets(server: Server) -> list[Ticket]:
    return [ticket for ticket in server.store.tickets() if ticket.state == "accepted"]


def _bring_up(registry: ClientRegistry, names: Sequence[str], behind: AbstractSet[str]) -> dict[str, SplitWiperError]:
    """Bring clients up to date, several at a time on a GPU; return the errors of clients that failed."""
    failed: dict[str, SplitWiperError] = {}
    # on a GPU, several small nets fill it better than one; the order in which they take turns changes no bits
    waiting, running = list(names), dict[str, tuple[Client, Pausing[bool]]]()
    lanes = LANES if registry.config.client.device.startswith("cuda") else 1
    with ExitStack() as stack:
        while waiting or running:
            for name in [*running, *waiting[: lanes - len(running)]]:
                try:
                    if name not in running:
                        waiting.remove(name)
                        client = registry.client(name)
                        running[name] = (client, stack.enter_context(closing(client.syncing(again=name in behind))))
                    client, work = running[name]
                    with client.timed():
                        next(work)
                    continue
                except StopIteration:
                    registry.link.count(name, running[name][0].take_spent())
                    registry.unmark_pending(name)
                except FencedError:  # another process has taken over this client, and maybe others
                    raise
                except (DataError, TrainingError, CorruptError, BusyError) as problem:
                    failed[name] = let_go(problem)
                running.pop(name, None)
    return failed
