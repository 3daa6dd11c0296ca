"""Verification: three claims are proved separately, each by comparing or recomputing bit for bit.

*Rows*: the rows that were to be forgotten are not among the survivors. *State*: halves, shards and model follow from
the survivors. *History*: the ledger only grew, and all records are those it leads to. A state that follows from the
rows proves nothing about a request unless the requested rows are really gone, and neither is worth anything if the
record of the request could be changed: so all three must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial

from splitwiper.certainty import reproduced
from splitwiper.checks import NOTHING_ASKED, Check, CheckFailed, Verification, failed_check, run_check, worst
from splitwiper.client import Client
from splitwiper.client.content import macs_in
from splitwiper.errors import (
    AbsentClientError,
    ConfigError,
    DataError,
    InputError,
    NotFoundError,
    StoreError,
    TrainingError,
)
from splitwiper.federation.history import check_history
from splitwiper.formats import counted
from splitwiper.numerics import asking_for, fingerprint, pick_device
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.store import ShardRecord, databases_unchanged, tickets
from splitwiper.store.client_store import UNKNOWN
from splitwiper.store.ledger import Head
from splitwiper.store.tensors import load_state
from splitwiper.wire import Label, Receipt, Request, Ticket


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

    Clients whose folders are ``here`` are opened with ``client_of``. A ``head`` is one that was kept outside the run;
    ``todo`` returns unfinished work that the records do not show.

    Raises:
        BusyError: another process changed the run meanwhile, so that what was read is inconsistent; or other
            threads of this process keep the recomputed result from being certain.
    """
    clients: dict[str, Client] = {}
    with databases_unchanged() as watch:

        def check_client(name: str) -> None:
            clients[name] = client_of(name)
            watch.add(clients[name].store.database)
            with closing(clients[name].store.database) as database:  # each is opened again when its turn comes
                database.check()

        watch.add(server.store.database)
        checks = [verify_record("server", server.store.database.check)]
        names = list(here) if receipt is None else [name for name in here if name == receipt.client]
        for name in names:
            checks.append(verify_record(f"client {name}", partial(check_client, name)))
        # each step relies on what the steps before it have checked
        if worst(checks) == "exact":
            history = partial(check_history, server, _heads(clients, head), receipt)
            checks.append(run_check("ledger", history, "history"))
        if worst(checks) == "exact":
            checks.append(_finished(server, receipt))
        if worst(checks) == "exact":
            concerned = names or ([receipt.client] if receipt else [])
            if receipt is None:
                concerned += [shard.client for shard in server.store.shards() if shard.client not in names]
            for name in concerned:
                checks += _check_client(server, clients.get(name), name, receipt)
            checks.append(run_check("server", partial(verify_server, server, recomputed=len(clients)), "state"))
            checks += _left(todo)
        return Verification(tuple(checks))


def _heads(clients: Mapping[str, Client], own: Head | None) -> dict[str, Head]:
    """Return ledger heads by the party that remembers them."""
    heads = {}
    for name, client in clients.items():
        with closing(client.store.database):
            if (pinned := client.pinned()) is not None:
                heads[f"client {name}"] = pinned
    return heads if own is None else {**heads, "you": own}


def _left(todo: Callable[[], Sequence[str]]) -> list[Check]:
    """Check that no work is left that only a settle or a person can do."""
    try:
        work = todo()
    except StoreError as problem:
        return [failed_check("run folder", problem, "state")]
    if not work:
        return []
    if work[0].startswith("remove "):
        return [Check("run folder", "unverifiable", f"forgotten rows may be left: {work[0]}", "state")]
    return [Check("clients", "unverifiable", f"work is unfinished ({work[0]}): call settle first", "state")]


# --- records -----------------------------------------------------------------------------------------------


def verify_record(what: str, check: Callable[[], None]) -> Check:
    """Check that a party's own records are as it left them."""
    try:
        check()
    except AbsentClientError as problem:
        return Check(what, "unverifiable", str(problem), "state")
    except NotFoundError as problem:  # no client has this name; or the server's database was removed meanwhile
        return Check(what, "unverifiable" if what == "server" else "mismatch", str(problem), "state")
    except InputError as problem:  # it joined with another client half
        return Check(what, "mismatch", str(problem), "state")
    except StoreError as problem:
        return failed_check(what, problem, "history")
    return Check(what, "exact", "its records are sealed and unchanged", "history")


def _finished(server: Server, receipt: Receipt | None) -> Check:
    """Check that there is a finished state to recompute, and that it is the receipt's."""
    outcome = partial(Check, "server", claim="state")
    if not server.store.is_current() or server.store.waiting():
        return outcome("unverifiable", "work is unfinished: call settle first")
    if receipt is not None:
        with server.store.database.reading() as db:
            now = tickets.commitments(db, receipt.client)
        if dict(receipt.after) != now:
            detail = (
                "the model of this receipt was replaced later and erased, its salt with it; verify the newest receipt, "
                "or the run as it is"
            )
            return outcome("unverifiable", detail)
        if not receipt.exact:
            return outcome("mismatch", "the server started warm, from a model that knew the data")
    model = server.store.model()
    if model is not None and not model.exact:
        return outcome("mismatch", "the server started warm: the model depends on more than the surviving data")
    return outcome("exact", "no work is pending" + ("; the state is this receipt's" if receipt else ""))


# --- a client ----------------------------------------------------------------------------------------------


def _check_client(server: Server, client: Client | None, name: str, receipt: Receipt | None) -> list[Check]:
    """Check one client: its requests, its half and its shard."""
    what, record = f"client {name}", server.store.shard(name)
    if client is None:
        if record is None:
            return [Check(what, "exact", "it has no shard and no folder: nothing of it is left", "state")]
        return [Check(what, "unverifiable", f"the folder of {name} is not here: its shard is not recomputed", "state")]
    with closing(client.store.database):
        known = server.store.tickets(name)
        if lost := client.store.unheard(known):
            return [Check(what, "mismatch", f"the server no longer knows {len(lost)} of its requests", "history")]
        if receipt is not None:
            asked = [Request(receipt.ticket, name, receipt.level, receipt.commitment)]
        else:
            asked = [Request(ticket.id, name, ticket.level, ticket.commitment) for ticket in known]
        gone = run_check(what, partial(verify_gone, client, asked), "rows")
        if gone.outcome != "exact":
            return [gone]
        if wrong := _wrong_context(client, record, receipt):
            return [gone, Check(what, "mismatch", wrong, "state")]
        accepted = record.digest if record else None
        return [gone, run_check(what, partial(verify_client, client, accepted, known=known), "state")]


def verify_gone(client: Client, asked: Sequence[Request]) -> str:
    """Check that the rows that a client's requests committed to are not among the remaining ones; return a sentence."""
    name, store = client.name, client.store
    if store.key() is None:
        raise CheckFailed(f"the key of {name} was destroyed", "unverifiable")
    if store.requests("open", "sent"):  # their rows are suppressed, and may still be in the slices
        raise CheckFailed(_unfinished(client), "unverifiable")
    left = set(macs_in(client.holdings.slices().values()))
    for request in asked:
        ticket = request.ticket
        try:
            opening, own = store.opening(ticket), store.commitment(ticket)
        except NotFoundError as problem:
            if not request.commitment:  # the folder came back after its client was forgotten
                detail = f"ticket {ticket} was asked while the folder of {name} was away: call settle first"
                raise CheckFailed(detail, "unverifiable") from problem
            raise CheckFailed(f"{name} never made the request of ticket {ticket}") from problem
        if request.commitment and not own:
            detail = f"the folder that made the request of ticket {ticket} is lost, so its rows cannot be looked for"
            raise CheckFailed(detail, "unverifiable")
        # the opening is recomputed from the suppression list, so a row that was taken off it shows here
        if (own, opening.level) != (request.commitment, request.level) or (own and opening.commitment != own):
            raise CheckFailed(f"what {name} suppressed is not what ticket {ticket} committed to")
        if not left.isdisjoint(opening.rows):
            raise CheckFailed(f"rows that ticket {ticket} asked to forget are still there")
    if not left.isdisjoint(store.suppressed()):
        raise CheckFailed("rows on the suppression list are still there")
    if not asked:
        return NOTHING_ASKED
    subject = "the requested rows are" if len(asked) == 1 else f"the rows of {len(asked)} requests are"
    return f"{subject} not among the survivors"


def _unfinished(client: Client) -> str:
    return f"{client.name} has unfinished work: finish it with settle (a run) or forget (a site) first"


def _wrong_context(client: Client, record: ShardRecord | None, receipt: Receipt | None) -> str:
    """Return what is wrong with a client's context: its codebook, or what the receipt says of it; empty if nothing."""
    own = client.statement()
    if record is not None and (record.codebook, record.outputs) != (own.codebook, own.outputs):
        return "the server records another codebook for the shard than the client's"
    if receipt is None:
        return ""
    before = client.store.before(receipt.ticket)
    if client.store.commitment(receipt.ticket) and before not in (receipt.before["shard"] or "", UNKNOWN):
        return "the shard before the request is not the one that the client had sent"
    context = receipt.context
    if context["client_key"] is None:
        return ""
    stated = context["client_config"], context["client_initial"], context["client_key"]
    if (own.config, own.initial, own.key) != stated:
        return "settings, first weights or key are not those of the receipt"
    return "" if context["codebook"] in (None, own.codebook) else "the codebook is not that of the receipt"


def verify_client(client: Client, accepted: str | None, *, known: Sequence[Ticket] = ()) -> str:
    """Recompute a client's half and shard from its surviving rows; return a sentence. The server is not asked.

    Args:
        client: the client.
        accepted: digest of the shard that the server holds; None if it holds none.
        known: requests in the client's name that the server has, if that is known.
    """
    store, half = client.store, client.store.half()
    store.initial()  # checked even if nothing is computed from it
    if store.key() is None:
        raise CheckFailed(f"the key of {client.name} was destroyed", "unverifiable")
    if accepted is None and not store.slices():
        if store.checkpoints() or half:
            raise CheckFailed("no rows, no shard, yet files remain")
        return "no rows, no shard"
    reason = store.database.meta("untrainable")
    stuck = accepted is None and bool(reason)
    if not stuck and (half is None or store.is_behind() or store.unknown(known)):
        raise CheckFailed(_unfinished(client), "unverifiable")
    try:
        now = fingerprint(pick_device(client.config.device), client.config.threads, client.config.numerics)
    except ConfigError as problem:
        raise CheckFailed(problem, "not_comparable") from problem
    then = half[1] if half else now
    _check_comparable(then, now)
    with asking_for(int(then["threads"])):
        expected = (half[0].digest, accepted) if half else reason or ""
        outcome = reproduced(partial(_recomputed, client, sent=accepted is not None), expected, f"client {client.name}")
    if isinstance(outcome, str):
        if stuck:
            return f"no shard, since what is left cannot be trained on: {outcome}"
        raise CheckFailed(f"the half cannot be recomputed: {outcome}")
    excluded = store.database.meta("set_aside") or store.database.meta("evicted")
    if half is None or (accepted is None and not excluded):
        raise CheckFailed("the rows that are left can be trained on, yet there is no shard of them")
    if outcome[0] != half[0].digest:
        raise CheckFailed("the recomputed client half differs from the one in use")
    if outcome[1] != accepted:
        raise CheckFailed("the recomputed shard differs from the one the server holds")
    load_state(store.root / "half" / half[0].file, half[0].digest)
    rows = sum(record.rows for record in store.slices().values())
    if accepted is None:
        return f"half recomputed from {rows} surviving rows; the server has erased the shard: {excluded}"
    return f"half and shard recomputed from {rows} surviving rows"


def _recomputed(client: Client, *, sent: bool) -> tuple[str, str | None] | str:
    """Return digests of half and, if it was sent, shard computed from a client's rows, or why there are none."""
    try:
        state, shard = client.recompute()
    except (TrainingError, DataError) as problem:
        return str(problem)
    return state_digest(state), shard if sent else None


def _check_comparable(then: Mapping[str, str], now: Mapping[str, str]) -> None:
    if odd := differing(then, now):
        raise CheckFailed("; ".join(odd), "not_comparable")


def differing(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """List the differences between two fingerprints, except the number of threads, which is set to the recorded one."""
    differences = []
    for name in dict.fromkeys([*now, *then]):
        if name != "threads" and then.get(name) != now.get(name):
            differences.append(f"{name} was {then.get(name)}, is {now.get(name)}")
    return differences


# --- the server --------------------------------------------------------------------------------------------


def verify_server(server: Server, *, recomputed: int = 0) -> str:
    """Recompute the server half from the shards that the server holds; return a sentence.

    ``recomputed`` is the number of shards that were recomputed from their clients' rows.
    """
    model, shards = server.store.model(), server.store.shards()
    if model is None:
        return "nobody holds rows: there is no model"
    try:
        now = server.fingerprint()
    except ConfigError as problem:
        raise CheckFailed(problem, "not_comparable") from problem
    _check_comparable(model.fingerprint, now)
    kept = server.transcript().digests if model.transcript else ()

    def computed() -> tuple[tuple[Label, ...], str, tuple[float, ...], tuple[str, ...]]:
        """Train on the shards: return labels, digest of the half, losses, and digests of all states."""
        states: dict[int, str] = {}
        on_state = (lambda epoch, state: states.update({epoch: state_digest(state)})) if model.transcript else None
        trained, labels = server.compute(shards, on_state=on_state)
        return labels, state_digest(trained.state), trained.losses, tuple(states.values())

    with asking_for(int(model.fingerprint["threads"])):
        expected = (model.labels, model.digest, tuple(model.losses), kept)
        labels, digest, losses, states = reproduced(computed, expected, "server")
    if labels != model.labels:
        raise CheckFailed("the model's labels are not those of the shards, in their order")
    if digest != model.digest:
        raise CheckFailed("the recomputed server half differs from the one in use")
    server.store.weights(model)
    if [record.epoch for record in server.store.epochs()] != list(range(len(states))):
        raise CheckFailed("the states that are kept are not one of each epoch of the training")
    if kept != states:
        raise CheckFailed("the recomputed epochs are not those of the transcript")
    for epoch, state in enumerate(states):
        if state_digest(server.store.epoch_state(epoch)) != state:
            raise CheckFailed("the state that is kept after an epoch is not that of the training")
    if losses != tuple(model.losses):
        raise CheckFailed("the recomputed losses are not those that are recorded")
    rows = sum(record.rows for record in shards)
    taken = len(shards) - min(recomputed, len(shards))
    as_held = f", of which {taken} were not recomputed" if taken else ""
    return f"server half recomputed from {counted(rows, 'row')} of {counted(len(shards), 'shard')}{as_held}"
