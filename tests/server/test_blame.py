"""A shard with which training fails is found and set aside; what is published is that of a run that never had it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from federation.runs import FEATURES, assert_same, halves, ids_at, settings, three, without
from service.conftest import said, shard
from splitwiper import Config, Federation, Halves, ServerConfig, split
from splitwiper.errors import TrainingError, UntrainableError
from splitwiper.federation.history import check_history
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.server import blame as blaming
from splitwiper.server.blame import find_offender
from splitwiper.store import ServerStore, exclusion, ledger
from splitwiper.wire import Request

HUGE = 9e29


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 33])
def test_any_offender_is_found_in_few_trainings(count: int) -> None:
    for odd in range(count):
        tried: list[int] = []

        def trains(some: list[int], odd: int = odd, tried: list[int] = tried) -> bool:
            tried.append(len(some))
            return odd not in some

        assert find_offender(list(range(count)), trains) == (odd if count > 1 else None)
        assert len(tried) <= (1 if 0 < odd == count - 1 else 2 * math.log2(count) + 2)


def test_of_several_offenders_one_is_found() -> None:
    for odd in itertools.combinations(range(6), 2):
        assert find_offender(list(range(6)), lambda some, odd=odd: not set(some) & set(odd)) in odd


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_a_shard_that_is_too_small_by_itself_is_not_accused(count: int) -> None:
    for small, odd in itertools.permutations(range(count), 2):

        def trains(some: list[int], small: int = small, odd: int = odd) -> bool:
            return odd not in some and list(some) != [small]

        assert find_offender(list(range(count)), trains) == (odd if count > 2 else None)


def test_where_nothing_can_be_trained_on_nothing_is_accused() -> None:
    tried: list[int] = []
    assert find_offender(list(range(1000)), lambda some: bool(tried.append(len(some)))) is None
    assert len(tried) < 8 * 2 * math.log2(1000)


@pytest.mark.parametrize("count", [4, 5, 8, 9, 17])
def test_a_shard_that_is_too_small_by_itself_is_not_accused_where_others_succeed_by_luck(count: int) -> None:
    """Training with several at the edge fails with the least suspected one, and succeeds without it."""
    for odd in range(2, count - 1):
        tried: list[int] = []

        def trains(some: list[int], odd: int = odd, tried: list[int] = tried) -> bool:
            tried.append(len(some))
            return some != [0] and not (0 in some and max(some) >= odd)

        assert find_offender(list(range(count)), trains) == odd
        assert len(tried) <= 4 * math.log2(count)


# --- the server over a folder ------------------------------------------------------------------------------------


class Moody(nn.Module):
    """Fails on some values, as an embedding does on numbers beyond its table."""

    def __init__(self, fault: type[Exception] = IndexError) -> None:
        super().__init__()
        self._fault = fault

    def forward(self, x: Tensor) -> Tensor:
        if bool((x > 1e6).any()):
            raise self._fault("no")
        return x


class ForeignError(Exception):
    """What a net may raise as well."""


class Backward(torch.autograd.Function):
    """Fails on some values when gradients are computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        assert bool((ctx.saved_tensors[0].abs() < 1e6).all())
        return gradients[0]


class MoodyGradients(nn.Module):
    """Applies it."""

    def forward(self, x: Tensor) -> Tensor:
        return Backward.apply(x)  # type: ignore[no-untyped-call,no-any-return]


def cut(kind: str) -> Halves:
    torch.manual_seed(0)
    body: dict[str, nn.Module] = {
        "loss": nn.ReLU(),
        "batch norm": nn.BatchNorm1d(8),
        "layer": Moody(),
        "assertion": Moody(AssertionError),
        "foreign": Moody(ForeignError),
        "gradient": nn.Sequential(nn.Linear(8, 8), MoodyGradients()),
    }
    model = nn.Sequential(nn.Linear(FEATURES, 8), body[kind], nn.Linear(8, 3))
    return split(model, at="0", example=torch.zeros(1, FEATURES))


def served(tmp_path: Path, both: Halves, *, server: ServerConfig | None = None) -> Server:
    """A server whose clients are apart."""
    config = Config(seed=5, server=server or ServerConfig(epochs=2, batch=16), client=settings().client)
    fed = Federation(tmp_path, both, config)
    return Server(ServerStore(fed.path / "server"), both.server, shared=True)


def digest_of(server: Server) -> str:
    model = server.store.model()
    assert model is not None
    return state_digest(server.store.weights(model))


@pytest.mark.parametrize("kind", ["loss", "batch norm", "layer", "assertion", "foreign", "gradient"])
def test_whoever_makes_training_fail_is_set_aside(tmp_path: Path, kind: str) -> None:
    both = cut(kind)
    server, never = served(tmp_path / "run", both), served(tmp_path / "never", both)
    for one in (server, never):
        for number, name in enumerate(("north", "south")):
            one.upload(name, shard(tmp_path / name, 20 + number, 0.1 + number), said())
    never.train()
    server.train()
    server.submit(Request("t1", "north", "class", "c0" * 32))
    for one in (server, never):
        one.upload("north", shard(tmp_path / "north", 18), said("t1"))
    server.upload("mallory", shard(tmp_path / "bad", 2, HUGE), said())
    never.train()
    (receipt,) = server.train()
    assert receipt.ticket == "t1" and receipt.exact
    assert [one.client for one in server.store.shards()] == ["north", "south"]
    assert digest_of(server) == digest_of(never)
    model = server.store.model()
    assert model and all(torch.isfinite(tensor).all() for tensor in server.store.weights(model).values())
    (entry,) = [e for e in ledger.entries(server.store.database) if e["kind"] == "withdrawn"]
    assert (entry["client"], entry["by"]) == ("mallory", "training")
    assert server.standing("mallory").by == "training" and not server.standing("north").seq
    assert "shards and model" in check_history(server, {})
    assert len(list((server.store.root / "shards").iterdir())) == 2  # nothing of it is left
    server.upload("mallory", shard(tmp_path / "good", 8), said())  # what can be trained on is taken
    server.train()
    assert len(server.store.shards()) == 3 and not server.standing("mallory").seq


@pytest.mark.parametrize("value", [0.1, HUGE])
def test_training_ends_once_a_shard_that_it_uses_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    """Whether it would succeed or fail: it could take days, and everybody would wait for its end."""
    monkeypatch.setattr("splitwiper.server.training._EVERY", 0.0)
    steps = 0

    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal steps
            steps += self.training
            if steps == 3:
                exclusion.evict(ServerStore(tmp_path / "run" / "server"), "mallory", "ops")
            return x

    model = nn.Sequential(nn.Linear(FEATURES, 8), Counting(), nn.Linear(8, 3))
    both = split(model, at="0", example=torch.zeros(1, FEATURES))
    steps = 0
    server = served(tmp_path / "run", both)
    server.upload("north", shard(tmp_path / "north", 20), said())
    server.upload("mallory", shard(tmp_path / "bad", 1000, value), said())
    server.train()
    assert server.store.is_current() and [one.client for one in server.store.shards()] == ["north"]
    assert steps <= 3 + 2 * 2  # two epochs of two batches


class Edge(nn.Module):
    """Fails where an enormous value comes with more rows than some: the edge of divergence, without its chances."""

    def forward(self, x: Tensor) -> Tensor:
        if bool((x.abs() > 1e3).any()) and bool(((x > 0.25) & (x < 0.35)).any()):
            raise IndexError("index out of range in self")
        return x


@pytest.mark.parametrize("learns", [False, True])
def test_a_shard_at_the_edge_of_training_is_set_aside_and_not_the_one_that_changed(
    tmp_path: Path, learns: bool
) -> None:
    """Mallory's enormous values could be trained on, by luck, until somebody else's shard changes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), Edge(), nn.Linear(8, 3))
    server = served(tmp_path / "run", split(model, at="0", example=torch.zeros(1, FEATURES)))
    for name, value in (("north", 0.1), ("south", 0.2), ("mallory", 56234.0)):
        server.upload(name, shard(tmp_path / name, 20, value), said())
    server.train()
    if learns:
        server.upload("west", shard(tmp_path / "west", 20, 0.3), said())
    else:
        server.submit(Request("t1", "north", "class", "c0" * 32))
        server.upload("north", shard(tmp_path / "north", 18, 0.3), said("t1"))
    receipts = server.train()
    assert "mallory" not in {one.client for one in server.store.shards()}
    assert [receipt.ticket for receipt in receipts] == ([] if learns else ["t1"])
    assert [e["client"] for e in ledger.entries(server.store.database) if e["kind"] == "withdrawn"] == ["mallory"]


def test_of_shards_of_one_magnitude_the_one_that_changed_is_suspected(tmp_path: Path) -> None:
    server = served(tmp_path / "run", cut("loss"))
    for name, value in (("north", 1.9), ("south", 3.9), ("west", 1e9)):
        server.upload(name, shard(tmp_path / name, 20, value), said())
    server.train()
    server.upload("mallory", shard(tmp_path / "mallory", 20, 2.1), said())
    ordered = blaming._by_suspicion(server, server.store.shards())
    assert [one.client for one in ordered] == ["north", "south", "mallory", "west"]


def test_one_row_before_batch_norm_is_not_taken_for_the_offender(tmp_path: Path) -> None:
    """The least suspected shard cannot be trained on alone, and the one at fault is not the most suspected one."""

    class Picky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if bool(((x > 50) & (x < 150)).any()):
                raise IndexError("index out of range in self")
            return x

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), Picky(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    server = served(tmp_path / "run", split(model, at="0", example=torch.zeros(1, FEATURES)))
    for name, rows, value in (("lonely", 1, 0.1), ("mallory", 6, 100.0), ("north", 20, 1000.0), ("south", 20, 2000.0)):
        server.upload(name, shard(tmp_path / name, rows, value), said())
    server.train()
    assert [one.client for one in server.store.shards()] == ["lonely", "north", "south"]
    assert server.standing("mallory").by == "training"


def test_several_offenders_and_requests_of_their_own(tmp_path: Path) -> None:
    server = served(tmp_path / "run", cut("loss"))
    for number, name in enumerate(("a", "b", "c", "d", "e")):
        server.upload(name, shard(tmp_path / name, 10 + number), said())
    server.train()
    for name in ("b", "d"):
        server.submit(Request(f"t-{name}", name, "class", "c0" * 32))
        server.upload(name, shard(tmp_path / name, 4, HUGE), said(f"t-{name}"))
    server.submit(Request("t-e", "e", "class", "c0" * 32))  # and nothing follows
    receipts = server.train()
    assert {receipt.ticket for receipt in receipts} == {"t-b", "t-d"}
    assert all(receipt.after["shard"] is None for receipt in receipts)
    assert [one.client for one in server.store.shards()] == ["a", "c", "e"]
    assert [t.state for t in server.store.tickets("e")] == ["accepted"]  # nothing was done about it
    check_history(server, {})


def test_settings_that_nothing_can_be_trained_with_erase_nothing(tmp_path: Path) -> None:
    server = served(tmp_path / "run", cut("loss"), server=ServerConfig(epochs=3, batch=4, lr=1e37))
    for name in ("north", "south"):
        server.upload(name, shard(tmp_path / name, 20, 1e3), said())
    with pytest.raises(UntrainableError, match="Lower lr"):
        server.train()
    assert len(server.store.shards()) == 2
    server.submit(Request("t1", "north", "client", "c0" * 32))
    server.store.withdraw("north", None, answers=["t1"])
    assert [receipt.ticket for receipt in server.train()] == ["t1"]  # forgetting is honoured all the same
    assert server.store.shards() == () and server.store.is_current()


def test_a_constant_that_is_infinite_from_the_beginning_is_no_fault(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.exp(self.get_buffer("mask")[0])

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), Masked(), nn.Linear(8, 3))
    server = served(tmp_path / "run", split(model, at="0", example=torch.zeros(1, FEATURES)))
    server.upload("north", shard(tmp_path / "north", 20), said())
    server.train()
    assert server.store.model() is not None


# --- in one process ----------------------------------------------------------------------------------------------


def test_in_one_process_nobodys_rows_keep_another_from_forgetting(tmp_path: Path) -> None:
    """`learn` says what is wrong and changes nothing; a request of somebody else is settled without those rows."""
    config = settings(clip=1e-9, lr=1e-9, keys="seeded")
    fed, data = Federation(tmp_path / "run", halves(), config), three()
    fed.learn({name: data[name] for name in ("north", "south")})
    twin = fed.twin(tmp_path / "twin")
    x, y = data["west"]
    bad = (np.where((y == "eel")[:, None], x * np.float32(1e25), x), y)
    with pytest.raises(TrainingError, match="Lower lr"):
        fed.learn({"west": bad})
    assert exclusion.taken_away(fed._server.store, "west") is None  # nobody waits: nothing is set aside
    receipt = fed.unlearn("north", classes=["bird"])
    assert receipt.client == "north" and [s.client for s in fed._server.store.shards()] == ["north", "south"]
    found = fed.status()
    assert found.todo == () and "fails" in next(c for c in found.clients if c.name == "west").untrainable
    assert fed.verify(receipt).exact and fed.verify().exact
    fed.unlearn("south", samples=ids_at(fed, "south", [0]))  # and it is not tried with them again
    assert len([e for e in ledger.entries(fed._server.store.database) if e.get("by") == "training"]) == 1
    fed.unlearn("west", classes=["eel"])  # what can be trained on comes back by itself
    assert fed.verify().exact and len(fed._server.store.shards()) == 3
    kept = {name: data[name] for name in ("north", "south", "west")}
    kept["north"] = without(kept["north"], kept["north"][1] != "bird")
    kept["south"] = without(kept["south"], np.arange(len(kept["south"][1])) > 0)
    kept["west"] = without(kept["west"], kept["west"][1] != "eel")
    twin.learn(kept)
    assert_same(fed, twin)
