"""Verification: recompute from the surviving data and the context, and compare bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from splitwiper.client import Client
from splitwiper.config import config_digest
from splitwiper.errors import AbsentClientError, ConfigError, CorruptError
from splitwiper.numerics import fingerprint, pick_device, reproducible
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.store import ledger, tickets
from splitwiper.store.tensors import load_state
from splitwiper.wire import Receipt

Outcome = Literal["exact", "mismatch", "not_comparable", "unverifiable"]
_WORST: tuple[Outcome, ...] = ("mismatch", "unverifiable", "not_comparable")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    what: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Verification:
    """What came out of verifying.

    ``exact``: recomputed, bit for bit equal. ``mismatch``: recomputed or compared, and different. ``not_comparable``:
    other numerics here (another torch, device or instruction set) than the result was made with. ``unverifiable``:
    something needed is gone (a key, a client's folder, a superseded model).
    """

    outcome: Outcome
    checks: tuple[Check, ...]

    @property
    def exact(self) -> bool:
        """Whether everything was recomputed and is equal, bit for bit."""
        return self.outcome == "exact"

    @property
    def reason(self) -> str:
        """Why the outcome is what it is, in one sentence."""
        if self.exact:
            what = ", ".join(check.what for check in self.checks[2:])
            return f"recomputed from the surviving data and equal, bit for bit: {what}"
        return next(check.detail for check in self.checks if check.outcome == self.outcome)


def verify(
    server: Server, client_of: Callable[[str], Client], receipt: Receipt | None, *, todo: Sequence[str] = ()
) -> Verification:
    """Verify one receipt, or, without one, everything as it is.

    Args:
        server: the server.
        client_of: finds a client.
        receipt: what to verify.
        todo: work that is unfinished, which what is there says nothing of.
    """
    checks = [_ledger(server, receipt)]
    if checks[0].outcome == "exact":
        checks.append(_state(server, receipt))
    if all(check.outcome == "exact" for check in checks):
        names = [receipt.client] if receipt else [record.client for record in server.tree.shards()]
        checks += [_whole(f"client {n}", partial(_client, server, client_of, n, receipt)) for n in names]
        checks.append(_whole("server", partial(_server, server, len(names))))
        if todo:
            checks.append(Check("clients", "unverifiable", f"work is unfinished ({todo[0]}): call settle first"))
    outcome: Outcome = next((o for o in _WORST if any(c.outcome == o for c in checks)), "exact")
    return Verification(outcome, tuple(checks))


def _whole(what: str, check: Callable[[], Check]) -> Check:
    """A check; where it meets damaged files, that is what came out of it."""
    try:
        return check()
    except CorruptError as problem:
        return Check(what, "mismatch", str(problem))


def _ledger(server: Server, receipt: Receipt | None) -> Check:
    what = "ledger"
    try:
        entries = ledger.entries(server.tree.book)
    except CorruptError as problem:
        return Check(what, "mismatch", str(problem))
    made = [e for e in entries if e.get("kind") == "created"][-1:]
    now = {key: server.tree.book.meta(key) for key in ("config", "initial", "client-initial")}
    if not made or any(made[0][key] != value for key, value in now.items()):
        return Check(what, "mismatch", "settings or first weights are not those the ledger says the run was made with")
    if config_digest(server.config, seed=server.seed) != now["config"]:
        return Check(what, "mismatch", "the server's config.toml is not what the run was made with")
    if receipt is not None:
        entry = next((e for e in entries if e.get("kind") == "settled" and e.get("ticket") == receipt.ticket), None)
        if entry is None:
            return Check(what, "mismatch", f"ticket {receipt.ticket} was never settled in this run")
        if entry["receipt"] != tickets.receipt_digest(receipt) or entry["hash"] != receipt.ledger.get("hash"):
            return Check(what, "mismatch", "the receipt is not the one the ledger recorded: it was altered")
    return Check(what, "exact", f"{len(entries)} entries, the chain holds")


def _state(server: Server, receipt: Receipt | None) -> Check:
    """Whether there is a finished state to recompute, and whether it is the receipt's."""
    what = "state"
    if not server.tree.is_current() or any(t.state != "settled" for t in server.tree.tickets()):
        return Check(what, "unverifiable", "work is unfinished: call settle first")
    if receipt is not None:
        now = tickets.commitments(server.tree.book.db, receipt.client)
        if dict(receipt.after) != now:
            return Check(
                what,
                "unverifiable",
                "the model of this receipt was replaced later and erased, its salt with it; verify the newest receipt, "
                "or the run as it is",
            )
        if not receipt.exact:
            return Check(what, "mismatch", "the server started warm, from a model that knew the data: not exact")
    model = server.tree.model()
    if model is not None and not model.exact:
        return Check(what, "mismatch", "the server started warm: the model depends on more than the surviving data")
    return Check(what, "exact", "the state is finished" + (" and the receipt's own" if receipt else ""))


def _differs(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two fingerprints; the number of threads is set as it was."""
    return [f"{k} was {then.get(k)}, is {now.get(k)}" for k in now if k != "threads" and then.get(k) != now.get(k)]


def _client(server: Server, client_of: Callable[[str], Client], name: str, receipt: Receipt | None) -> Check:
    what = f"client {name}"
    record = server.tree.shard(name)
    try:
        client = client_of(name)
    except AbsentClientError:
        if record is None:
            return Check(what, "exact", "it has no shard and no folder: nothing of it is left")
        return Check(what, "unverifiable", f"the folder of {name} is not here, so its shard cannot be recomputed")
    if client.tree.key() is None:
        return Check(what, "unverifiable", f"the key of {name} was destroyed")
    if receipt is not None and receipt.context["client_key"] is not None:
        own = client.statement()
        if (own.config, own.initial, own.key) != tuple(
            receipt.context[f"client_{part}"] for part in ("config", "initial", "key")
        ):
            return Check(what, "mismatch", "settings, first weights or key are not those of the receipt")
        if receipt.context["codebook"] not in (None, own.codebook):
            return Check(what, "mismatch", "the codebook is not that of the receipt")
    half = client.tree.half()
    if record is None:
        left = bool(client.tree.slices() or client.tree.checkpoints() or half)
        return Check(what, "mismatch" if left else "exact", "no rows, no shard" + (", yet files remain" * left))
    if half is None or client.tree.is_behind() or client.unknown_tickets():
        return Check(what, "unverifiable", f"{name} has unfinished work: call settle first")
    try:
        device = pick_device(client.config.device)
    except ConfigError as problem:
        return Check(what, "not_comparable", str(problem))
    if odd := _differs(half[1], fingerprint(device, client.config.threads, client.config.numerics)):
        return Check(what, "not_comparable", "; ".join(odd))
    with reproducible(device, int(half[1]["threads"]), client.config.numerics):
        state, shard = client.recompute()
    if state_digest(state) != half[0].digest:
        return Check(what, "mismatch", "the recomputed client half differs from the one in use")
    if shard != record.digest:
        return Check(what, "mismatch", "the recomputed shard differs from the one the server holds")
    load_state(client.tree.root / "half" / half[0].file, half[0].digest)
    return Check(what, "exact", f"half and shard recomputed from {record.rows} surviving rows")


def _server(server: Server, recomputed: int) -> Check:
    what = "server"
    model, shards = server.tree.model(), server.tree.shards()
    if model is None:
        return Check(what, "exact", "nobody holds rows: there is no model")
    try:
        now = server.fingerprint()
    except ConfigError as problem:
        return Check(what, "not_comparable", str(problem))
    if odd := _differs(model.fingerprint, now):
        return Check(what, "not_comparable", "; ".join(odd))
    threads, numerics = int(model.fingerprint["threads"]), server.config.numerics
    with reproducible(pick_device(server.config.device), threads, numerics):
        trained, labels = server.compute(shards)
    if labels != model.labels:
        return Check(what, "mismatch", "the model's labels are not those of the shards, in their order")
    if state_digest(trained.state) != model.digest:
        return Check(what, "mismatch", "the recomputed server half differs from the one in use")
    server.tree.weights(model)
    rows = sum(record.rows for record in shards)
    taken = len(shards) - min(recomputed, len(shards))
    as_held = f", {taken} of them taken as the server holds them" if taken else ""
    return Check(what, "exact", f"server half recomputed from {rows} rows of {len(shards)} shards{as_held}")
