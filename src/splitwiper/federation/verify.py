"""Verification: three claims are proved separately, each by comparing or recomputing bit for bit.

*Rows*: the rows that were to be forgotten are not among the survivors. *State*: halves, shards and model follow from
the survivors. *History*: the ledger only grew, and all records are those it leads to. A state that follows from the
rows proves nothing about a request unless the requested rows are really gone, and neither is worth anything if the
record of the request could be changed: so all three must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from splitwiper.certainty import reproduced
from splitwiper.client import Client
from splitwiper.client.content import MAC_COLUMN
from splitwiper.errors import (
    AbsentClientError,
    ConfigError,
    CorruptError,
    DataError,
    FormatError,
    InputError,
    NotFoundError,
    StoreError,
    TrainingError,
)
from splitwiper.federation.history import Altered, check_history, heads_of
from splitwiper.formats import counted
from splitwiper.numerics import asking_for, fingerprint, pick_device
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.store import ShardRecord, tickets, undisturbed
from splitwiper.store.client_store import UNKNOWN
from splitwiper.store.ledger import Head
from splitwiper.store.tensors import load_state
from splitwiper.store.watching import StepWatcher
from splitwiper.wire import Label, Receipt, Request, Ticket

Outcome = Literal["exact", "mismatch", "not_comparable", "unverifiable"]
Claim = Literal["rows", "state", "history"]
_T = TypeVar("_T")
_NOTHING_ASKED = "nothing was asked"
_WORST: tuple[Outcome, ...] = ("mismatch", "unverifiable", "not_comparable")


@dataclass(frozen=True)
class Check:
    """One check and its outcome.

    Attributes:
        what: the party or record that was checked.
        claim: the claim: the requested rows are gone, the state follows from the rest, or the history only grew.
        outcome: the outcome.
        detail: the outcome as a sentence.
    """

    what: str
    claim: Claim
    outcome: Outcome
    detail: str

    @property
    def subject(self) -> str:
        """The claim and the party, as text."""
        return f"{'rows gone' if self.claim == 'rows' else self.claim}: {self.what}"


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification.

    ``exact``: recomputed, and equal bit for bit. ``mismatch``: recomputed or compared, and different.
    ``not_comparable``: the numerics here differ (another torch, device or instruction set) from the result's.
    ``unverifiable``: something needed is missing (a key, a client's folder, a superseded model).
    """

    outcome: Outcome
    checks: tuple[Check, ...]

    @classmethod
    def of(cls, checks: Sequence[Check]) -> Verification:
        """Combine checks: the worst outcome counts."""
        return cls(_worst(checks), tuple(checks))

    @property
    def exact(self) -> bool:
        """Whether everything was recomputed and is equal bit for bit."""
        return self.outcome == "exact"

    def __bool__(self) -> bool:
        """Return whether it is exact: a failed verification is false."""
        return self.exact

    @property
    def claims(self) -> dict[Claim, Outcome]:
        """The outcome of each of the three claims that were checked."""
        by_claim: dict[Claim, list[Check]] = {}
        for check in self.checks:
            by_claim.setdefault(check.claim, []).append(check)
        return {claim: _worst(checks) for claim, checks in by_claim.items()}

    @property
    def reason(self) -> str:
        """The reason for the outcome, in one sentence."""
        if self.exact:
            what = ", ".join(sorted({check.what for check in self.checks if check.claim == "state"}))
            asked = any(check.claim == "rows" and check.detail != _NOTHING_ASKED for check in self.checks)
            gone = "the requested rows are gone; " if asked else ""
            return f"{gone}recomputed from the surviving data and equal, bit for bit: {what}; the history only grew"
        return next(check.detail for check in self.checks if check.outcome == self.outcome)


def _worst(checks: Sequence[Check]) -> Outcome:
    return next((o for o in _WORST if any(c.outcome == o for c in checks)), "exact")


def verify(
    server: Server,
    client_of: Callable[[str], Client],
    receipt: Receipt | None,
    *,
    here: Sequence[str] = (),
    head: Head | None = None,
    todo: Callable[[], Sequence[str]] = tuple,
) -> Verification:
    """Verify one receipt, or, without one, everything as it is.

    Args:
        server: the server.
        client_of: returns a client by name.
        receipt: the receipt to verify.
        here: clients whose folders are here.
        head: a ledger head that was kept outside the run.
        todo: returns unfinished work that the records do not show.

    Raises:
        BusyError: another process changed the run meanwhile, so that what was read is inconsistent; or other
            threads of this process keep the recomputed result from being certain.
    """
    with undisturbed() as watch:
        watch.add(server.store.database)
        return Verification.of(_checks(server, client_of, receipt, here, head, todo, watch))


def _checks(
    server: Server,
    client_of: Callable[[str], Client],
    receipt: Receipt | None,
    here: Sequence[str],
    head: Head | None,
    todo: Callable[[], Sequence[str]],
    watch: StepWatcher,
) -> list[Check]:
    checks = [verify_record("server", server.store.database.check)]
    names = list(here) if receipt is None else [name for name in here if name == receipt.client]
    clients: dict[str, Client] = {}

    def opened(name: str) -> None:
        clients[name] = client_of(name)
        watch.add(clients[name].store.database)
        clients[name].store.database.check()
        clients[name].store.database.close()  # there may be many clients: each is opened again when its turn comes

    checks += [verify_record(f"client {name}", partial(opened, name)) for name in names]
    if _worst(checks) == "exact":
        remembered = heads_of((f"client {name}", _closing(client, client.pinned)) for name, client in clients.items())
        checks.append(verify_history(server, {**remembered, **heads_of([("you", head)])}, receipt))
    if _worst(checks) == "exact":
        checks.append(_finished(server, receipt))
    if _worst(checks) == "exact":
        concerned = names or ([receipt.client] if receipt else [])
        concerned += [r.client for r in server.store.shards() if not receipt and r.client not in concerned]
        for name in concerned:
            client = clients.get(name)
            checks += _closing(client, partial(_client, server, client, name, receipt))
        checks.append(guarded("server", lambda: verify_server(server, recomputed=len(clients))))
        checks += _left(todo)
    return checks


def _left(todo: Callable[[], Sequence[str]]) -> list[Check]:
    """Check that no work is left that only a settle or a person can do."""
    try:
        found = todo()
    except StoreError as problem:
        return [Check("run folder", "state", _meaning(problem), str(problem))]
    if not found:
        return []
    if found[0].startswith("remove "):
        return [Check("run folder", "state", "unverifiable", f"forgotten rows may be left: {found[0]}")]
    detail = f"work is unfinished ({found[0]}): call settle first"
    return [Check("clients", "state", "unverifiable", detail)]


def _closing(client: Client | None, work: Callable[[], _T]) -> _T:
    """Do some work on a client, and close its database afterwards."""
    try:
        return work()
    finally:
        if client is not None:
            client.store.database.close()


# --- records and history -----------------------------------------------------------------------------------


def verify_record(what: str, check: Callable[[], None]) -> Check:
    """Check that a party's own records are as it left them."""
    try:
        check()
    except AbsentClientError as problem:
        return Check(what, "state", "unverifiable", str(problem))
    except NotFoundError as problem:  # no client has this name; or the server's database was removed meanwhile
        return Check(what, "state", "unverifiable" if what == "server" else "mismatch", str(problem))
    except InputError as problem:  # it joined with another client half
        return Check(what, "state", "mismatch", str(problem))
    except StoreError as problem:
        return Check(what, "history", _meaning(problem), (problem.strerror or str(problem)).removesuffix("."))
    return Check(what, "history", "exact", "its records are sealed, and as it left them")


def verify_history(server: Server, heads: Mapping[str, Head], receipt: Receipt | None) -> Check:
    """Check that the ledger only grew, and that the server's records are those it leads to."""
    try:
        return Check("ledger", "history", "exact", check_history(server, heads, receipt))
    except Altered as problem:
        return Check("ledger", "history", "mismatch", str(problem))


def _finished(server: Server, receipt: Receipt | None) -> Check:
    """Check that there is a finished state to recompute, and that it is the receipt's."""
    what = "server"
    if not server.store.is_current() or any(t.state != "settled" for t in server.store.tickets()):
        return Check(what, "state", "unverifiable", "work is unfinished: call settle first")
    if receipt is not None:
        with server.store.database.reading() as db:
            now = tickets.commitments(db, receipt.client)
        if dict(receipt.after) != now:
            return Check(
                what,
                "state",
                "unverifiable",
                "the model of this receipt was replaced later and erased, its salt with it; verify the newest receipt, "
                "or the run as it is",
            )
        if not receipt.exact:
            return Check(what, "state", "mismatch", "the server started warm, from a model that knew the data")
    model = server.store.model()
    if model is not None and not model.exact:
        return Check(
            what, "state", "mismatch", "the server started warm: the model depends on more than the surviving data"
        )
    return Check(what, "state", "exact", "the state is finished" + (" and the receipt's own" if receipt else ""))


# --- a client ----------------------------------------------------------------------------------------------


def _client(server: Server, client: Client | None, name: str, receipt: Receipt | None) -> list[Check]:
    """Check one client: its requests, its half and its shard."""
    what, record = f"client {name}", server.store.shard(name)
    if client is None:
        if record is None:
            return [Check(what, "state", "exact", "it has no shard and no folder: nothing of it is left")]
        return [Check(what, "state", "unverifiable", f"the folder of {name} is not here: its shard is not recomputed")]
    known = server.store.tickets(name)
    if lost := client.store.unheard(known):
        return [Check(what, "history", "mismatch", f"the server no longer knows {len(lost)} of its requests")]
    asked = [Request(t.id, name, t.level, t.commitment) for t in known]
    if receipt is not None:
        asked = [Request(receipt.ticket, name, receipt.level, receipt.commitment)]
    gone = guarded(what, lambda: verify_gone(client, asked), claim="rows")
    if gone.outcome != "exact":
        return [gone]
    context = _context(client, record, receipt)
    if context is not None:
        return [gone, context]
    accepted = record.digest if record else None
    return [gone, guarded(what, lambda: verify_client(client, accepted, known=known))]


def guarded(what: str, check: Callable[[], Check], claim: Claim = "state") -> Check:
    """Run a check; damaged files are a mismatch, a disk that fails or is full makes it unverifiable."""
    try:
        return check()
    except StoreError as problem:
        return Check(what, claim, _meaning(problem), (problem.strerror or str(problem)).removesuffix("."))


def _meaning(problem: StoreError) -> Outcome:
    """Return what an error proves: that bytes are not those that were written, or nothing."""
    return "mismatch" if isinstance(problem, CorruptError | FormatError) else "unverifiable"


def verify_gone(client: Client, asked: Sequence[Request]) -> Check:
    """Check that the rows that requests committed to are not among the remaining ones.

    Args:
        client: the client that made the requests.
        asked: its requests, as the server has recorded them.
    """
    what = f"client {client.name}"
    if client.store.key() is None:
        return Check(what, "rows", "unverifiable", f"the key of {client.name} was destroyed")
    if client.store.requests("open", "sent"):  # their rows are suppressed, and may still be in the slices
        return Check(what, "rows", "unverifiable", _unfinished(client))
    left = {m.tobytes() for part in client.holdings.slices().values() for m in np.asarray(part.columns[MAC_COLUMN])}
    for request in asked:
        ticket = request.ticket
        try:
            opening, own = client.store.opening(ticket), client.store.commitment(ticket)
        except NotFoundError:
            if not request.commitment:  # the folder came back after its client was forgotten
                detail = f"ticket {ticket} was asked while the folder of {client.name} was away: call settle first"
                return Check(what, "rows", "unverifiable", detail)
            return Check(what, "rows", "mismatch", f"{client.name} never made the request of ticket {ticket}")
        if request.commitment and not own:
            detail = f"the folder that made the request of ticket {ticket} is lost, so its rows cannot be looked for"
            return Check(what, "rows", "unverifiable", detail)
        if (own, opening.level) != (request.commitment, request.level) or (own and opening.commitment != own):
            detail = f"what {client.name} suppressed is not what ticket {ticket} committed to"
            return Check(what, "rows", "mismatch", detail)
        if not left.isdisjoint(opening.rows):
            return Check(what, "rows", "mismatch", f"rows that ticket {ticket} asked to forget are still there")
    if not left.isdisjoint(client.store.suppressed()):
        return Check(what, "rows", "mismatch", "rows on the suppression list are still there")
    told = "the requested rows are" if len(asked) == 1 else f"the rows of {len(asked)} requests are"
    return Check(what, "rows", "exact", f"{told} not among the survivors" if asked else _NOTHING_ASKED)


def _unfinished(client: Client) -> str:
    return f"{client.name} has unfinished work: finish it with settle (a run) or forget (a site) first"


def _context(client: Client, record: ShardRecord | None, receipt: Receipt | None) -> Check | None:
    """Return a failed check of a client's context: its network, its codebook or the receipt's; None if all match."""
    if client.network != client.store.database.meta("model"):
        detail = "the client half here is another network: its code or constants differ"
        return Check(f"client {client.name}", "state", "mismatch", detail)
    own = client.statement()
    if record is not None and (record.codebook, record.outputs) != (own.codebook, own.outputs):
        detail = "the server records another codebook for the shard than the client's"
        return Check(f"client {client.name}", "state", "mismatch", detail)
    if receipt is None:
        return None
    before = client.store.before(receipt.ticket)
    if client.store.commitment(receipt.ticket) and before not in (receipt.before["shard"] or "", UNKNOWN):
        detail = "the shard before the request is not the one that the client had sent"
        return Check(f"client {client.name}", "state", "mismatch", detail)
    if receipt.context["client_key"] is None:
        return None
    parts = tuple(receipt.context[f"client_{part}"] for part in ("config", "initial", "key"))
    if (own.config, own.initial, own.key) != parts:
        detail = "settings, first weights or key are not those of the receipt"
        return Check(f"client {client.name}", "state", "mismatch", detail)
    if receipt.context["codebook"] not in (None, own.codebook):
        return Check(f"client {client.name}", "state", "mismatch", "the codebook is not that of the receipt")
    return None


def verify_client(client: Client, accepted: str | None, *, known: Sequence[Ticket] = ()) -> Check:
    """Recompute a client's half and shard from its surviving rows. The server is not asked.

    Args:
        client: the client.
        accepted: digest of the shard that the server holds; None if it holds none.
        known: requests in the client's name that the server has, if that is known.
    """
    what, half = f"client {client.name}", client.store.half()
    client.store.initial()  # checked even if nothing is computed from it
    if client.store.key() is None:
        return Check(what, "state", "unverifiable", f"the key of {client.name} was destroyed")
    if accepted is None and not client.store.slices():
        left = bool(client.store.checkpoints() or half)
        return Check(
            what, "state", "mismatch" if left else "exact", "no rows, no shard" + (", yet files remain" * left)
        )
    reason = client.store.database.meta("untrainable")
    stuck = accepted is None and bool(reason)
    if not stuck and (half is None or client.store.is_behind() or client.store.unknown(known)):
        return Check(what, "state", "unverifiable", _unfinished(client))
    try:
        device = pick_device(client.config.device)
    except ConfigError as problem:
        return Check(what, "state", "not_comparable", str(problem))
    then = half[1] if half else fingerprint(device, client.config.threads, client.config.numerics)
    if odd := differing(then, fingerprint(device, client.config.threads, client.config.numerics)):
        return Check(what, "state", "not_comparable", "; ".join(odd))

    def computed() -> tuple[str, str | None] | str:
        """Return digests of half and shard computed from the rows, or why there are none."""
        try:
            state, shard = client.recompute()
        except (TrainingError, DataError) as problem:
            return str(problem)
        return state_digest(state), shard if accepted is not None else None

    with asking_for(int(then["threads"])):
        found = reproduced(computed, (half[0].digest, accepted) if half else reason or "", what)
    if isinstance(found, str):
        if stuck:
            return Check(what, "state", "exact", f"no shard, since what is left cannot be trained on: {found}")
        return Check(what, "state", "mismatch", f"the half cannot be recomputed: {found}")
    excluded = client.store.database.meta("set_aside") or client.store.database.meta("evicted")
    if half is None or (accepted is None and not excluded):
        return Check(
            what, "state", "mismatch", "the rows that are left can be trained on, yet there is no shard of them"
        )
    if found[0] != half[0].digest:
        return Check(what, "state", "mismatch", "the recomputed client half differs from the one in use")
    if found[1] != accepted:
        return Check(what, "state", "mismatch", "the recomputed shard differs from the one the server holds")
    load_state(client.store.root / "half" / half[0].file, half[0].digest)
    rows = sum(record.rows for record in client.store.slices().values())
    if accepted is None:
        told = f"half recomputed from {rows} surviving rows; the server has erased the shard: {excluded}"
        return Check(what, "state", "exact", told)
    return Check(what, "state", "exact", f"half and shard recomputed from {rows} surviving rows")


def differing(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """List the differences between two fingerprints, except the number of threads, which is set to the recorded one."""
    names = [*now, *(name for name in then if name not in now)]
    return [f"{k} was {then.get(k)}, is {now.get(k)}" for k in names if k != "threads" and then.get(k) != now.get(k)]


# --- the server --------------------------------------------------------------------------------------------


def verify_server(server: Server, *, recomputed: int = 0) -> Check:
    """Recompute the server half from the shards that the server holds.

    Args:
        server: the server.
        recomputed: the number of shards that were recomputed from their clients' rows.
    """
    what = "server"
    model, shards = server.store.model(), server.store.shards()
    if model is None:
        return Check(what, "state", "exact", "nobody holds rows: there is no model")
    try:
        now = server.fingerprint()
    except ConfigError as problem:
        return Check(what, "state", "not_comparable", str(problem))
    if odd := differing(model.fingerprint, now):
        return Check(what, "state", "not_comparable", "; ".join(odd))
    kept = server.transcript().digests if model.transcript else ()

    def computed() -> tuple[tuple[Label, ...], str, tuple[float, ...], tuple[str, ...]]:
        """Train on the shards: return labels, digest of the half, losses, and digests of all states."""
        states: dict[int, str] = {}
        on_state = (lambda epoch, state: states.update({epoch: state_digest(state)})) if model.transcript else None
        trained, labels = server.compute(shards, on_state=on_state)
        return labels, state_digest(trained.state), trained.losses, tuple(states.values())

    with asking_for(int(model.fingerprint["threads"])):
        expected = (model.labels, model.digest, tuple(model.losses), kept)
        labels, digest, losses, states = reproduced(computed, expected, what)
    if labels != model.labels:
        return Check(what, "state", "mismatch", "the model's labels are not those of the shards, in their order")
    if digest != model.digest:
        return Check(what, "state", "mismatch", "the recomputed server half differs from the one in use")
    server.store.weights(model)
    if [record.epoch for record in server.store.epochs()] != list(range(len(states))):
        return Check(what, "state", "mismatch", "the states that are kept are not one of each epoch of the training")
    if model.transcript:
        if kept != states:
            return Check(what, "state", "mismatch", "the recomputed epochs are not those of the transcript")
        if any(state_digest(server.store.epoch_state(epoch)) != digest for epoch, digest in enumerate(states)):
            return Check(what, "state", "mismatch", "the state that is kept after an epoch is not that of the training")
    if losses != tuple(model.losses):
        return Check(what, "state", "mismatch", "the recomputed losses are not those that are recorded")
    rows = sum(record.rows for record in shards)
    taken = len(shards) - min(recomputed, len(shards))
    of = f"{counted(rows, 'row')} of {counted(len(shards), 'shard')}"
    as_held = f", {taken} of them taken as the server holds them" if taken else ""
    return Check(what, "state", "exact", f"server half recomputed from {of}{as_held}")
