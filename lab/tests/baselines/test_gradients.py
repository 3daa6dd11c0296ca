"""Split training takes the very steps that unsplit training would take, batch by batch."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from baselines.small import digits, network, problem
from splitwiper.errors import TrainingError
from splitwiper_lab.baselines import FRAMEWORKS, Framework, Problem
from splitwiper_lab.baselines.aggregation import by_rows, mean
from splitwiper_lab.baselines.network import Network
from splitwiper_lab.baselines.training import Work

RATE = 0.1
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def unsplit(net: Network, client: str) -> nn.Sequential:
    """One client's network as one ordinary module."""
    whole = network()
    tail = net.tails.get(client)
    head = tail if tail is not None else net.halves[client].output_layer
    whole.head = nn.Linear(head.in_features, head.out_features)
    whole.head.load_state_dict(head.state_dict())
    state = {k: v for k, v in net.halves[client].state_dict().items() if not k.startswith("head.")}
    state |= {k.removeprefix("body."): v for k, v in net.stems[client].state_dict().items() if k.startswith("body.")}
    missing = whole.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) == {"head.weight", "head.bias"}
    return whole.train()


def steps(net: Network, turn: Any, weigh: Callable[[list[int]], list[float]], *, averaged: bool) -> dict[str, Tensor]:
    """The weights after one step of ordinary backpropagation through the clients' unsplit networks.

    Halves that are averaged later take the gradient of their own mean loss: their average moves as one half would.
    """
    modules = {client.name: unsplit(net, client.name) for client, _, _ in turn}
    first = next(iter(modules.values()))
    for whole in modules.values():  # one body for all of them
        whole.body = first.body
    sizes = [len(rows["@code"]) for _, rows, _ in turn]
    maps = torch.cat([modules[client.name].stem(rows["x"]) for client, rows, _ in turn])
    features = first.body(maps).split(sizes)
    losses = []
    for (client, rows, _), mine in zip(turn, features, strict=True):
        head = modules[client.name].head if net.tails else first.head
        losses.append(functional.cross_entropy(head(mine), rows["@code"]))
    sum(share * loss for share, loss in zip(weigh(sizes), losses, strict=True)).backward()
    found = {}
    for (name, whole), share in zip(modules.items(), weigh(sizes), strict=True):
        for key, parameter in whole.named_parameters():
            if parameter.grad is not None:
                scale = 1 / share if averaged and key.startswith("stem") else 1
                found[f"{name}.{key}"] = parameter.detach() - RATE * scale * parameter.grad
    return found


def weights_of(net: Network, names: list[str]) -> dict[str, Tensor]:
    found = {}
    for name in names:
        for key, parameter in unsplit(net, name).named_parameters():
            found[f"{name}.{key}"] = parameter.detach().clone()
    return found


@pytest.mark.share(4)
@pytest.mark.parametrize("start", ["scratch", "pretrained"])
@pytest.mark.parametrize("schedule", ["interleaved", "turns"])
@pytest.mark.parametrize("kind", FRAMEWORKS.values(), ids=FRAMEWORKS)
@pytest.mark.parametrize("aggregate", ["rows", "mean"])
def test_split_steps_are_unsplit_steps(
    kind: type[Framework], schedule: str, aggregate: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every weight of every party, after every batch."""
    seen: list[int] = []
    exchange, made = kind.exchange, Work.__init__
    nets: list[Network] = []

    def remember(self: Work, framework: Framework, problem: Problem, net: Network, *rest: Any, **more: Any) -> None:
        nets.append(net)
        made(self, framework, problem, net, *rest, **more)

    def watched(self: Framework, server: Any, turn: Any, channel: Any) -> Tensor:
        before = copy.deepcopy(nets[-1])
        turn = [(client, {k: v.clone() for k, v in rows.items()}, gone) for client, rows, gone in turn]
        loss = exchange(self, server, turn, channel)
        expected = steps(before, turn, by_rows if aggregate == "rows" else mean, averaged=self.synchronise)
        now = weights_of(nets[-1], [client.name for client, _, _ in turn])
        for key, value in expected.items():
            owner = key.split(".")[0]
            if ".body." in key and owner != turn[0][0].name and not self.copies:
                continue  # the body is one for all, and compared once
            torch.testing.assert_close(now[key], value, **CLOSE, msg=lambda text, key=key: f"{key}: {text}")
            seen.append(1)
        return loss

    monkeypatch.setattr(Work, "__init__", remember)
    monkeypatch.setattr(kind, "exchange", watched)
    kind(schedule=schedule, aggregate=aggregate, start=start).learn(problem(epochs=1))
    assert len(seen) >= 5 * 8  # weights compared: at least five batches of at least eight


def test_the_average_of_halves_moves_as_one_half_would() -> None:
    """Interleaved and averaged after one batch of equal clients: the step of the unsplit network."""
    start = problem(epochs=1, batch=1000)
    trained = FRAMEWORKS["vanilla"](synchronise=True, start="scratch").learn(start)
    whole = network()
    data = [digits()[name] for name in start.clients]
    x = torch.cat([torch.from_numpy(images) for images, _ in data])
    net = FRAMEWORKS["vanilla"](start="scratch").learn(problem(epochs=1, batch=1000, lr=1e-12)).network
    whole.head = nn.Linear(16, 6)
    whole.head.load_state_dict(net.halves["north"].output_layer.state_dict())
    codes = torch.cat([torch.from_numpy(labels) for _, labels in data])  # labels 0 to 5 are their own codes
    functional.cross_entropy(whole(x), codes).backward()
    moved = trained.network.stems["north"].body.state_dict()["stem.0.weight"]
    torch.testing.assert_close(moved, (whole.stem[0].weight - RATE * whole.stem[0].weight.grad).detach(), **CLOSE)


@pytest.mark.parametrize("kind", ["vanilla", "u-shaped"])
def test_an_aggregation_of_ones_own(kind: str) -> None:
    """The mean by rows as a function gives what the name gives; another function gives something else."""

    def rows(gradients: Any, counts: Any) -> list[Tensor]:
        shares = by_rows(counts)
        return [sum(s * g for s, g in zip(shares, many, strict=True)) for many in zip(*gradients, strict=True)]

    def median(gradients: Any, counts: Any) -> list[Tensor]:
        return [torch.stack(list(many)).median(0).values for many in zip(*gradients, strict=True)]

    named, given, other = (FRAMEWORKS[kind](aggregate=phi).learn(problem(epochs=1)) for phi in ("rows", rows, median))
    for key, value in named.network.halves["north"].state_dict().items():
        torch.testing.assert_close(given.network.halves["north"].state_dict()[key], value, **CLOSE)
    assert not torch.allclose(
        other.network.halves["north"].state_dict()["body.0.weight"],
        named.network.halves["north"].state_dict()["body.0.weight"],
    )


@pytest.mark.parametrize("phi", [lambda gradients, rows: gradients[0][:2], lambda gradients, rows: None])
def test_an_aggregation_that_returns_nonsense(phi: Any) -> None:
    with pytest.raises(TrainingError, match="must return 8 gradients"):
        FRAMEWORKS["vanilla"](aggregate=phi).learn(problem(digits(10), epochs=1))
