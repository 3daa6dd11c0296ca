"""Split-learning frameworks: what makes each of them, and what they refuse."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from baselines.small import HELD, digits, network, problem
from baselines.test_messages import digest_of
from splitwiper import Config, Federation, split
from splitwiper.errors import ConfigError, DataError, TrainingError
from splitwiper.seeding import state_digest
from splitwiper.splitting import CutWarning
from splitwiper_lab.baselines import FRAMEWORKS, Problem, SplitFedV1, SplitFedV2, UShaped, Vanilla
from splitwiper_lab.baselines.starting import starts
from splitwiper_lab.baselines.training import average


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_they_learn(name: str) -> None:
    """Interleaved training classifies held-out digits."""
    trained = FRAMEWORKS[name](schedule="interleaved").learn(problem(digits(80), epochs=12, lr=0.2))
    found = trained.network.evaluate(digits(30, first=80))
    assert found.accuracy > 0.85
    assert trained.took_part == tuple(HELD)
    assert trained.losses[-1] < trained.losses[0] / 2
    assert all(cost.seconds > 0 and cost.flops > 0 and cost.storage > 0 for cost in trained.spent.values())
    assert trained.server.flops > sum(cost.flops for cost in trained.spent.values())


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_same_bits_twice(name: str) -> None:
    torch.manual_seed(1)
    first = FRAMEWORKS[name]().learn(problem(epochs=1))
    torch.manual_seed(2)
    assert digest_of(FRAMEWORKS[name]().learn(problem(epochs=1))) == digest_of(first)


@pytest.mark.parametrize("slices", [1, 3])
def test_pretrained_halves_are_splitwipers(slices: int, tmp_path: Path) -> None:
    """Bit for bit what a federation's clients freeze."""
    work = problem(client={"slices": slices, "standardise": True, "init": "independent"})
    federation = Federation(tmp_path / "run", work.halves, work.config)
    federation.learn(digits())
    made = starts(work, "pretrained")
    for name, start in made.items():
        (frozen,) = (tmp_path / "run" / "clients" / name).rglob("half-*.safetensors")
        assert state_digest(start.stem.state_dict()) == state_digest(load_file(frozen))
        assert start.cost.flops > 0


def test_synchronised_halves_are_equal_after_each_epoch() -> None:
    plain, averaged = Vanilla().learn(problem(epochs=1)), Vanilla(synchronise=True).learn(problem(epochs=1))
    weights = [averaged.network.stems[name].body.state_dict()["stem.0.weight"] for name in HELD]
    assert all(torch.equal(weight, weights[0]) for weight in weights)
    apart = [plain.network.stems[name].body.state_dict()["stem.0.weight"] for name in HELD]
    assert not torch.equal(apart[0], apart[1])
    assert averaged.spent["north"].bytes_up > plain.spent["north"].bytes_up


def test_average_is_weighted_and_keeps_counts() -> None:
    norms = {"a": nn.BatchNorm1d(1), "b": nn.BatchNorm1d(1)}
    with torch.no_grad():
        norms["a"].weight.fill_(1.0)
        norms["b"].weight.fill_(4.0)
        norms["a"].num_batches_tracked.fill_(7)
    average(norms, {"a": 1, "b": 3})
    assert [norm.weight.item() for norm in norms.values()] == [3.25, 3.25]
    assert int(norms["b"].num_batches_tracked) == 7


def test_splitfed_servers() -> None:
    """Version 1 has a server half for each client, all equal after an epoch; version 2 has one."""
    one, two = SplitFedV1().learn(problem(epochs=1)), SplitFedV2().learn(problem(epochs=1))
    halves = list(one.network.halves.values())
    assert halves[0] is not halves[1]
    assert state_digest(halves[0].state_dict()) == state_digest(halves[1].state_dict())
    assert two.network.halves["east"] is two.network.halves["north"]
    assert one.server.storage == pytest.approx(3 * two.server.storage, rel=0.01)


def test_splitfed_v2_visits_in_an_order_of_its_own() -> None:
    orders: list[tuple[str, ...]] = []

    class Watched(SplitFedV2):
        def exchange(self, server, turn, channel):  # type: ignore[no-untyped-def]
            orders.append(turn[0][0].name)  # type: ignore[arg-type]
            return super().exchange(server, turn, channel)

    Watched().learn(problem(epochs=6, batch=1000))
    visits = [tuple(orders[place : place + 3]) for place in range(0, 18, 3)]
    assert all(sorted(visit) == sorted(HELD) for visit in visits)
    assert len(set(visits)) > 1


def test_u_shaped_clients_with_different_labels() -> None:
    """Each client's output layer knows its own labels; nothing the server holds depends on their number."""
    trained = UShaped().learn(problem(epochs=1))
    assert {name: tuple(label.name for label in labels) for name, labels in trained.network.labels.items()} == HELD
    assert not any("head" in key for key in trained.network.halves["north"].state_dict())
    for name in HELD:
        assert {label.name for label in trained.network.predict(name, digits()[name][0])} <= set(HELD[name])


def test_u_shaped_needs_the_head_at_the_end() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * self.net(x)

    halves = split(Scaled(), at="net.stem", example=torch.zeros(2, 1, 8, 8))
    work = dataclasses.replace(problem(epochs=1), halves=halves)
    Vanilla(start="scratch").learn(work)
    with pytest.raises(DataError, match="not the last step"):
        UShaped(start="scratch").learn(work)


def one_row(rows: int = 1) -> dict:
    data = digits()
    data["east"] = tuple(part[:rows] for part in data["east"])
    return data


@pytest.mark.parametrize("name", ["vanilla", "u-shaped"])
def test_a_client_with_a_single_batch_or_row(name: str) -> None:
    """Interleaved it takes part in the first batches; visited alone, one row is too few for batch norm."""
    trained = FRAMEWORKS[name]().learn(problem(one_row(3), epochs=1))
    assert trained.spent["east"].round_trips == 3 * (1 + UShaped.tails * (name == "u-shaped"))
    assert FRAMEWORKS[name](schedule="turns").learn(problem(one_row(3), epochs=1)).spent["east"].flops > 0


def test_one_row_alone_cannot_be_normalised() -> None:
    class Flat(nn.Sequential):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Flatten(), nn.Linear(64, 8))
            self.norm = nn.BatchNorm1d(8)
            self.head = nn.Linear(8, 10)

    halves = split(Flat(), at="stem", example=torch.zeros(2, 1, 8, 8))
    work = dataclasses.replace(problem(one_row(), epochs=1), halves=halves)
    Vanilla(start="scratch").learn(work)
    with pytest.raises(TrainingError, match=r"the server, from east, .* 1 rows .*the other schedule"):
        Vanilla(start="scratch", schedule="turns").learn(work)


def test_halves_that_differ_cannot_be_averaged() -> None:
    work = problem(epochs=1)
    wide = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 1))
    halves = work.halves.with_clients({"east": wide}, examples={"east": torch.zeros(2, 1, 8, 8)})
    mixed = dataclasses.replace(work, halves=halves)
    Vanilla(start="scratch").learn(mixed)
    for kind in (Vanilla(synchronise=True, start="scratch"), SplitFedV1(start="scratch")):
        with pytest.raises(ConfigError, match="differ, and cannot be averaged"):
            kind.learn(mixed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "turn"}, "Did you mean 'turns'"),
        ({"start": "zero"}, "pretrained, scratch"),
        ({"aggregate": "row"}, "Did you mean 'rows'"),
        ({"aggregate": None}, "is not an aggregation"),
        ({"synchronise": "no"}, "must be true or false"),
    ],
)
def test_wrong_settings(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Vanilla(**settings)


@pytest.mark.parametrize("kind", [SplitFedV1, SplitFedV2])
def test_splitfed_averages(kind: type) -> None:
    with pytest.raises(ConfigError, match="vanilla split learning"):
        kind(synchronise=False)


def test_a_loss_that_is_not_finite() -> None:
    with pytest.raises(TrainingError, match=r"vanilla: the loss is .* Lower lr"):
        Vanilla(start="scratch").learn(problem(epochs=3, lr=1e30))


def test_parts_that_have_nothing_to_train() -> None:
    """A frozen half stays as it is, pre-trained or not; a client without weights only passes rows on."""
    frozen = network()
    frozen.stem.requires_grad_(False)
    halves = split(frozen, at="stem", example=torch.zeros(2, 1, 8, 8))
    work = dataclasses.replace(problem(epochs=1), halves=halves)
    for start in ("scratch", "pretrained"):
        after = Vanilla(start=start).learn(work).network.stems["north"].body.state_dict()["stem.0.weight"]
        assert torch.equal(after, frozen.stem[0].weight)
    with pytest.warns(CutWarning, match="batch norm"):
        head_only = split(network(), at="body", example=torch.zeros(2, 1, 8, 8))
    UShaped(start="scratch").learn(dataclasses.replace(work, halves=head_only))


def test_answers_are_of_the_clients_own_task() -> None:
    data = digits()
    tasks = {"east": "one", "north": "two", "south": "one"}
    base = problem(data, epochs=1)
    work = Problem.of(base.halves, base.config, data, tasks=tasks)
    trained = Vanilla(start="scratch").learn(work)
    for name, task in tasks.items():
        assert {label.task for label in trained.network.predict(name, data[name][0])} == {task}


def test_inputs_that_do_not_fit() -> None:
    trained = Vanilla(start="scratch").learn(problem(epochs=1))
    assert trained.network.predict("north", digits()["north"][0][:0]) == []
    with pytest.raises(DataError, match="rows of shape"):
        trained.network.predict("north", np.zeros((3, 1, 9, 8), np.float32))
    with pytest.raises(DataError, match=r"client 'north'.*but the cut expects"):
        problem({"north": (np.zeros((3, 1, 9, 8), np.float32), [1, 2, 3])})


def test_momentum_may_start_afresh() -> None:
    kept, fresh = (Vanilla(start="scratch", fresh=fresh).learn(problem(momentum=0.9)) for fresh in (False, True))
    assert kept.losses[0] == fresh.losses[0]
    assert digest_of(kept) != digest_of(fresh)


def test_nobody_and_nothing() -> None:
    with pytest.raises(DataError, match="no clients"):
        Problem.of(problem().halves, Config(), {})


def test_rows_that_repeat_are_one_row() -> None:
    """As for SplitWiper; and the order in which rows are given does not matter."""
    data = digits()
    x, y = data["north"]
    shuffled = {**data, "north": (np.concatenate([x, x[:7]])[::-1], np.concatenate([y, y[:7]])[::-1])}
    first, second = (Vanilla(start="scratch").learn(problem(given, epochs=1)) for given in (data, shuffled))
    assert digest_of(first) == digest_of(second)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_watching_changes_nothing(name: str) -> None:
    """Predictions between epochs put nothing out of training mode, and draw nothing."""
    seen: list[float] = []
    watched = FRAMEWORKS[name]().learn(
        problem(epochs=3), watch=lambda network: seen.append(network.evaluate(digits(20, first=80)).accuracy)
    )
    assert digest_of(FRAMEWORKS[name]().learn(problem(epochs=3))) == digest_of(watched)
    assert len(seen) == 3 and seen[-1] == watched.network.evaluate(digits(20, first=80)).accuracy
