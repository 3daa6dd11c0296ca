"""Lanes: gradients and buffers are the same bits whoever computes which lane."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from federation.runs import assert_same, halves, three, without
from splitwiper import ClientConfig, Config, Federation, ServerConfig
from splitwiper.errors import ConfigError, TrainingError
from splitwiper.seeding import Stream
from splitwiper.training.cache import CODE
from splitwiper.training.lanes import Alone, Lanes, Team, TreeSum, lanes_of

pytestmark = pytest.mark.computes


class Meeting:
    """Where the threads of a team meet: each leaves a value, and sees all of them."""

    def __init__(self, size: int) -> None:
        self._values: list[object] = [None] * size
        self._barrier = threading.Barrier(size)

    def all_of(self, rank: int, value: object) -> list[object]:
        self._values[rank] = value
        self._barrier.wait(60)
        values = list(self._values)
        self._barrier.wait(60)
        return values


class OfThreads:
    """A team of threads."""

    def __init__(self, meeting: Meeting, rank: int, size: int) -> None:
        self._meeting, self.rank, self.size = meeting, rank, size

    def add(self, vector: Tensor) -> Tensor:
        tree = TreeSum()
        for one in self._meeting.all_of(self.rank, vector):
            assert isinstance(one, Tensor)
            tree.add(one)
        return tree.total

    def worst(self, problem: Exception | None) -> Exception | None:
        found = [one for one in self._meeting.all_of(self.rank, problem) if isinstance(one, Exception)]
        return found[0] if found else None


class Net(nn.Module):
    """Batch norm, a mask of the lowest numbers, a parameter that is never used, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4))
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("mask", torch.full((4,), torch.finfo(torch.float32).min))
        self.register_buffer("zero", torch.tensor([-0.0]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(self.body(x), self.mask)


def batch(rows: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(rows)
    return {"x": torch.randn(rows, 6, generator=draw), CODE: torch.randint(4, (rows,), generator=draw)}


def backward(net: nn.Module) -> Callable[[dict[str, Tensor], float], Tensor]:
    def compute(part: dict[str, Tensor], share: float) -> Tensor:
        loss = nn.functional.cross_entropy(net(part["x"]), part[CODE])
        (loss * share).backward()
        return loss.detach() * len(part[CODE])

    return compute


def computed(net: nn.Module, lanes: int, team: Team, rows: int) -> dict[str, bytes]:
    """What a batch leads to, as bytes."""
    loss = Lanes(net, lanes, team).backward(batch(rows), backward(net), Stream(1, "noise"))
    out = {"loss": loss.numpy().tobytes()}
    for name, parameter in net.named_parameters():
        out[f"gradient of {name}"] = b"" if parameter.grad is None else parameter.grad.numpy().tobytes()
    for name, buffer in net.named_buffers():
        out[name] = buffer.numpy().tobytes()
    return out


def shared(lanes: int, ranks: int, rows: int) -> list[dict[str, bytes]]:
    """What each of a number of ranks computes."""
    meeting, results = Meeting(ranks), [dict[str, bytes]() for _ in range(ranks)]
    nets = [Net() for _ in range(ranks)]

    count = torch.get_num_threads()

    def run(rank: int) -> None:
        torch.set_num_threads(count)  # a new thread starts with the number that any thread has set last
        results[rank] = computed(nets[rank], lanes, OfThreads(meeting, rank, ranks), rows)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


@pytest.mark.parametrize("rows", [256, 250, 100, 20, 2])
def test_any_number_of_ranks_computes_the_same(rows: int) -> None:
    alone = computed(Net(), 8, Alone(), rows)
    assert alone["gradient of unused"] == b""
    fresh = Net()
    assert alone["mask"] == fresh.mask.numpy().tobytes() and alone["zero"] == fresh.zero.numpy().tobytes()
    assert alone["body.1.num_batches_tracked"] == np.int64(1).tobytes()
    for ranks in (2, 4, 8):
        for found in shared(8, ranks, rows):
            assert found == alone, (ranks, [name for name in alone if alone[name] != found[name]])


def test_the_gradient_is_that_of_the_batch() -> None:
    net, plain = nn.Linear(6, 4), nn.Linear(6, 4)
    plain.load_state_dict(net.state_dict())
    loss = Lanes(net, 4, Alone()).backward(batch(100), backward(net), Stream(1, "noise"))
    total = backward(plain)(batch(100), 1.0)
    assert torch.allclose(loss, total) and net.weight.grad is not None and plain.weight.grad is not None
    assert torch.allclose(net.weight.grad, plain.weight.grad, atol=1e-6)


def test_one_rank_that_fails_fails_on_all() -> None:
    meeting, problems = Meeting(2), dict[int, str]()

    def run(rank: int) -> None:
        net = Net()

        def compute(part: dict[str, Tensor], share: float) -> Tensor:
            if rank == 1:
                raise TrainingError("this lane cannot be computed")
            return backward(net)(part, share)

        try:
            Lanes(net, 2, OfThreads(meeting, rank, 2)).backward(batch(64), compute, Stream(1, "noise"))
        except TrainingError as problem:
            problems[rank] = str(problem)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == dict.fromkeys(range(2), "this lane cannot be computed")


def test_lanes_that_cannot_be() -> None:
    for lanes in (3, 0, 2048):
        with pytest.raises(ConfigError, match="lanes"):
            ServerConfig(lanes=lanes)
    with pytest.raises(ConfigError, match="fewer than 16 rows"):
        ServerConfig(lanes=8, batch=64)
    with pytest.raises(ConfigError, match="cannot share lanes"):
        Lanes(Net(), 2, OfThreads(Meeting(4), 0, 4))
    with pytest.raises(ConfigError, match="complex"):
        Lanes(nn.Linear(2, 2, dtype=torch.complex64), 2, Alone())
    assert [lanes_of(rows, 4) for rows in (1, 31, 32, 63, 64, 1000)] == [1, 1, 2, 2, 4, 4]


def test_a_count_of_rows_cannot_be_shared() -> None:
    class Counting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 4)
            self.register_buffer("largest", torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            self.largest += int(x.argmax())
            return super().forward(x)

    net = Counting()
    with pytest.raises(TrainingError, match="set lanes = 1"):
        Lanes(net, 4, Alone()).backward(batch(100), backward(net), Stream(1, "noise"))


def test_large_counts_are_not_mistaken_for_equal_ones() -> None:
    class Summing(nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 4)
            self.register_buffer("total", torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            self.total += 10000 + (x[0, 0] == batch(100)["x"][0, 0]).long()  # 10001, 10000: their squares are rounded
            return super().forward(x)

    net = Summing()
    with pytest.raises(TrainingError, match="set lanes = 1"):
        Lanes(net, 2, Alone()).backward(batch(100), backward(net), Stream(1, "noise"))


def test_forgetting_with_lanes_is_exact(tmp_path: object) -> None:
    config = Config(
        seed=5,
        server=ServerConfig(epochs=2, batch=32, lanes=2, transcript=True),
        client=ClientConfig(epochs=2, batch=8, head_width=4),
    )
    data = three()
    fed = Federation(f"{tmp_path}/run", halves(), config)
    fed.learn(data)
    receipt = fed.unlearn("north", classes=["bird"])
    assert fed.verify(receipt).exact and fed.verify().exact
    never = fed.twin(f"{tmp_path}/never")
    never.learn({**data, "north": without(data["north"], data["north"][1] != "bird")})
    assert_same(fed, never)
