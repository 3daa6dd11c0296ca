"""The heart: after unlearning, every bit is that of a run that never had the data."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from federation.runs import (
    Table,
    assert_same,
    halves,
    ids_at,
    learned,
    positions_in_last_slice,
    settings,
    state_of,
    table,
    three,
    without,
)
from splitwiper import Config, Federation, Halves, ServerConfig, split
from splitwiper.models import digits_cnn
from splitwiper.wire import Spent


@pytest.fixture
def pair(tmp_path: Path):
    """Learn with the data, unlearn; learn in a twin that never had it."""

    def make(config: Config, data: dict[str, Table], never: dict[str, Table], cut: Halves | None = None):
        had = Federation(tmp_path / "had", cut or halves(), config)
        had.learn(data)
        twin = had.twin(tmp_path / "never")
        twin.learn(never)
        return had, twin

    return make


@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("level", ["class", "sample", "client"])
def test_every_level_with_and_without_slices(pair, level: str, slices: int) -> None:
    data = three()
    never = dict(data)
    labels = data["north"][1]
    if level == "class":
        request = {"classes": ["bird"]}
        never["north"] = without(data["north"], labels != "bird")
    elif level == "sample":
        request = {}  # ids depend on the key, which is drawn when the client joins
        never["north"] = without(data["north"], ~np.isin(np.arange(len(labels)), [0, 7, 11, 29]))
    else:
        request = {"everything": True}
        del never["north"]
    had, twin = pair(settings(slices=slices), data, never)
    if level == "sample":
        request["samples"] = ids_at(had, "north", [0, 7, 11, 29])
    before = state_of(had.path)
    receipt = had.unlearn("north", **request)
    assert_same(had, twin)
    assert state_of(had.path)["model"] != before["model"]  # the data did matter
    assert receipt.exact
    assert had.verify(receipt).exact


@pytest.mark.parametrize("slices", [1, 3])
def test_several_requesters_in_one_retraining(pair, slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = three()
    never = {
        "north": without(data["north"], data["north"][1] != "bird"),
        "south": without(data["south"], np.arange(24) != 3),
        "west": data["west"],
    }
    had, twin = pair(settings(slices=slices), data, never)
    had.submit("north", classes=["bird"])
    had.submit("south", samples=ids_at(had, "south", [3]))
    trainings = []
    compute = had._server.compute
    monkeypatch.setattr(had._server, "compute", lambda *a, **k: trainings.append(1) or compute(*a, **k))
    receipts = had.settle()
    assert len(receipts) == 2 and len(trainings) == 1
    assert {r.client for r in receipts} == {"north", "south"}
    assert_same(had, twin)
    assert all(had.verify(r).exact for r in receipts)


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("standardise", [False, True])
def test_outlier_rows_leave_nothing_in_fitted_quantities(pair, slices: int, standardise: bool) -> None:
    """Forgotten rows are million-fold outliers with a class of their own."""
    never = three()
    values, labels = never["north"]
    wild = (1e6 * table(9, ("comet",), 6)[0], np.array(["comet"] * 6))
    data = {**never, "north": (np.concatenate([values, wild[0]]), np.concatenate([labels, wild[1]]))}
    config = settings(slices=slices, standardise=standardise, clip=1.0)
    config = Config(seed=config.seed, client=config.client, server=ServerConfig(epochs=2, batch=16, clip=1.0))
    had, twin = pair(config, data, never)
    had.unlearn("north", samples=ids_at(had, "north", range(30, 36), data["north"]))
    assert_same(had, twin)
    assert "comet" not in [label.name for label in had.labels]


class Tokens(nn.Module):
    """Token ids and a mask in, as a text model has; the mask crosses the cut."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.mix = nn.Linear(8, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.mix(self.words(ids)))
        return self.out((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def test_rows_with_a_token_of_their_own(pair) -> None:
    torch.manual_seed(0)
    example = {"ids": torch.ones(1, 5, dtype=torch.int64), "mask": torch.ones(1, 5)}
    cut = split(Tokens(), at="words", example=example, shared=["mask"])
    draw = np.random.default_rng(0)

    def text(rows: int, low: int, high: int) -> dict[str, np.ndarray]:
        ids = draw.integers(low, high, (rows, 5))
        return {"ids": ids, "mask": np.ones((rows, 5), np.float32)}

    kept, gone = text(20, 0, 40), text(4, 49, 50)
    labels = np.arange(20) % 2
    never = {"north": (kept, labels), "south": (text(12, 0, 40), np.arange(12) % 2)}
    both = {name: np.concatenate([kept[name], gone[name]]) for name in kept}
    had, twin = pair(settings(), {**never, "north": (both, np.array([*labels, 7, 7, 7, 7]))}, never, cut)
    # four identical rows are one row
    had.unlearn("north", classes=[7])
    assert_same(had, twin)


def test_a_class_nobody_holds_leaves_no_output(pair) -> None:
    data = three()
    never = {**data, "north": without(data["north"], data["north"][1] != "bird")}
    had, twin = pair(settings(), data, never)
    assert "bird" in [label.name for label in had.labels]
    had.unlearn("north", classes=["bird"])
    assert "bird" not in [label.name for label in had.labels]
    assert had.predict_proba("north", data["north"][0]).shape[1] == len(had.labels) == 3
    assert "bird" not in had.predict("north", data["north"][0])
    assert_same(had, twin)


def test_a_label_others_still_hold_stays(pair) -> None:
    data = three()
    never = {**data, "north": without(data["north"], data["north"][1] != "cat")}
    had, twin = pair(settings(), data, never)
    had.unlearn("north", classes=["cat"])
    assert "cat" in [label.name for label in had.labels]
    assert_same(had, twin)


def test_batch_norm_dropout_and_convolutions(pair) -> None:
    torch.manual_seed(0)
    cut = split(digits_cnn(width=4), at="stem", example=torch.zeros(1, 1, 8, 8))
    draw = np.random.default_rng(0)

    def images(rows: int) -> Table:
        return draw.normal(size=(rows, 1, 8, 8)).astype(np.float32), np.arange(rows) % 3

    data = {"north": images(21), "south": images(18)}
    never = {**data, "north": without(data["north"], data["north"][1] != 2)}
    had, twin = pair(settings(slices=2), data, never, cut)
    receipt = had.unlearn("north", classes=[2])
    assert_same(had, twin)
    assert had.verify(receipt).exact and had.verify().exact


def test_independent_initialisation(pair) -> None:
    data = three()
    never = {**data, "north": without(data["north"], data["north"][1] != "bird")}
    had, twin = pair(settings(init="independent"), data, never)
    had.unlearn("north", classes=["bird"])
    assert_same(had, twin)
    north, south = ((had.path / "clients" / n / "initial.safetensors").read_bytes() for n in ("north", "south"))
    assert north != south


def test_clients_with_different_inputs(pair) -> None:
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(9, 8), nn.ReLU())
    cut = halves().with_clients({"west": wide}, examples={"west": torch.zeros(1, 9)})
    draw = np.random.default_rng(0)
    data = {**three(), "west": (draw.normal(size=(20, 9)).astype(np.float32), np.array(["cat", "eel"] * 10))}
    never = {**data, "west": without(data["west"], data["west"][1] != "eel")}
    had, twin = pair(settings(slices=2), data, never, cut)
    receipt = had.unlearn("west", classes=["eel"])
    assert_same(had, twin)
    assert had.verify(receipt).exact
    again = Federation(had.path, cut)
    assert again.predict("west", data["west"][0]) == had.predict("west", data["west"][0])


def test_history_leaves_no_trace(tmp_path: Path) -> None:
    """Rows in other order, in pieces, late joiners, detours through forgetting: the same bits."""
    data = three()
    straight = Federation(tmp_path / "straight", halves(), settings(slices=3))
    straight.learn(data)
    crooked = straight.twin(tmp_path / "crooked")
    values, labels = data["north"]
    extra = table(8, ("cat", "fox"), 7)
    crooked.learn({"north": (values[20:][::-1].copy(), labels[20:][::-1].copy())})
    detour = crooked.learn({"west": data["west"], "north": extra}).added["north"].ids
    crooked.unlearn("west", everything=True)
    crooked.learn({"south": data["south"]})
    crooked.unlearn("north", samples=detour)
    crooked.learn({"north": (values[:25], labels[:25])})
    fresh = crooked.learn({"west": data["west"]}).added["west"]
    assert fresh.refused == len(data["west"][1]) and fresh.new == 0  # what west forgot may not come back
    straight.unlearn("west", everything=True)
    assert_same(straight, crooked)


def test_restart_from_the_last_checkpoint_that_never_saw_the_rows(tmp_path: Path) -> None:
    config = settings(slices=6, keys="seeded")
    fed = learned(tmp_path / "run", config)
    store = fed._client("north").store
    before = {n: r.file for n, r in store.checkpoints().items()}
    victim = ids_at(fed, "north", positions_in_last_slice(fed, "north")[:1])
    steps: list[int] = []
    fed._registry.progress = lambda what, done, total, loss=None: (
        steps.append(total) if "pre-training" in what else None
    )
    fed.unlearn("north", samples=victim)
    after = {n: r.file for n, r in fed._client("north").store.checkpoints().items()}
    assert after == before and before  # all earlier checkpoints were kept, and only the last stage ran again
    assert set(steps) == {config.client.stage_epochs}


def test_others_do_no_work_and_may_be_gone(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(data)
    for name in ("south", "west"):
        shutil.rmtree(tmp_path / "run" / "clients" / name)
    receipt = fed.unlearn("north", classes=["bird"])
    assert fed.spent["north"].seconds > 0 and fed.spent["north"].bytes_up > 0
    assert receipt.others == {"contacted": 0, "bytes": 0, "seconds": 0}
    for name in ("south", "west"):
        assert fed.spent[name] == Spent()
        assert not (tmp_path / "run" / "clients" / name).exists()
    assert fed.verify(receipt).exact
    assert fed.verify().outcome == "unverifiable"  # the absent clients' own halves cannot be recomputed


def test_warm_start_says_it_is_not_exact(tmp_path: Path) -> None:
    data = three()
    warm = Federation(tmp_path / "warm", halves(), settings(start="warm"))
    warm.learn(data)
    receipt = warm.unlearn("north", classes=["bird"])
    assert not receipt.exact
    check = warm.verify(receipt)
    assert check.outcome == "mismatch" and "warm" in check.reason
    cold = warm.twin(tmp_path / "cold")
    cold.learn({**data, "north": without(data["north"], data["north"][1] != "bird")})
    assert state_of(warm.path)["model"] != state_of(cold.path)["model"]
    assert "bird" not in [label.name for label in warm.labels]


def test_other_threads_of_randomness_change_nothing(tmp_path: Path) -> None:
    """The global generators are neither read nor moved."""
    data = three()
    one = Federation(tmp_path / "one", halves(), settings())
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.random.get_rng_state()
    one.learn(data)
    assert torch.equal(before, torch.random.get_rng_state())
    two = one.twin(tmp_path / "two")
    torch.manual_seed(2)
    two.learn(dict(reversed(data.items())))
    assert_same(one, two)
