"""Cache, heads and loop: the parts both sides train with."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from shards import shard
from splitwiper import numerics
from splitwiper.config import Recipe
from splitwiper.errors import ConfigError, TrainingError
from splitwiper.numerics import fingerprint, pick_device, reproducible, thread_count
from splitwiper.seeding import Stream
from splitwiper.training import cache as cache_module
from splitwiper.training import feeding
from splitwiper.training.cache import Cache
from splitwiper.training.loop import Training, finish, state_of
from splitwiper.training.output_layer import output_layer_for, rows_of
from splitwiper.training.parts import cosine, make_optimizer, one_cycle
from splitwiper.wire import Label

A, B, C = (Label("", name) for name in "abc")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    first = shard(tmp_path / "1", np.arange(8, dtype=np.float32).reshape(4, 2), (A, C), [0, 1, 0, 1])
    second = shard(tmp_path / "2", np.arange(8, 14, dtype=np.float32).reshape(3, 2), (B, C), [0, 1, 0])
    return Cache([first, second], (A, B, C), names=["z"])


def test_batches_gather_across_shards_in_the_order_asked(cache: Cache) -> None:
    assert len(cache) == 7
    index = np.array([6, 0, 5, 3, 3])
    tensors, codes = cache.batch(index)
    assert tensors["z"][:, 0].tolist() == [12, 0, 10, 6, 6]
    assert codes.tolist() == [1, 0, 2, 2, 2]  # codes of the common table
    assert [block[:, 0].tolist() for block in cache.blocks("z", 3)] == [[0, 2, 4], [6, 8, 10], [12]]


def test_a_head_row_depends_on_its_own_label_alone() -> None:
    both = output_layer_for([A, B, C], inputs=5, seed=1, purpose="head")
    fewer = output_layer_for([A, C], inputs=5, seed=1, purpose="head")
    assert torch.equal(both.weight[[0, 2]], fewer.weight) and torch.equal(both.bias[[0, 2]], fewer.bias)
    assert not torch.equal(both.weight[0], both.weight[1])
    assert float(both.weight.detach().abs().max()) <= 5**-0.5
    kept = output_layer_for([B, C], inputs=5, seed=2, purpose="head", known=rows_of(both, [A, B, C]))
    assert torch.equal(kept.weight, both.weight[1:])
    assert output_layer_for([A], inputs=5, seed=1, purpose="head", bias=False).bias is None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))

    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.body(tensors["z"])


def trained(cache: Cache, stream: Stream, **recipe: object) -> tuple[dict[str, torch.Tensor], tuple[float, ...]]:
    torch.manual_seed(0)
    net = Net()
    losses = Training(net, cache, Recipe(batch=3, **recipe), epochs=3, stream=stream, what="test").run()
    return net.state_dict(), losses


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("kind", ["constant", "cosine", "onecycle"])
def test_training_is_a_pure_function(cache: Cache, optimizer: str, kind: str) -> None:
    recipe = {"optimizer": optimizer, "schedule": kind, "clip": 1.0}
    one, losses = trained(cache, Stream(1, "t"), **recipe)
    torch.rand(5)
    two, again = trained(cache, Stream(1, "t"), **recipe)
    assert losses == again and len(losses) == 3
    assert all(torch.equal(one[k], two[k]) for k in one)
    other, _ = trained(cache, Stream(2, "t"), **recipe)
    assert any(not torch.equal(one[k], other[k]) for k in one)


def test_a_loss_that_is_not_finite_is_an_error_with_a_remedy(cache: Cache) -> None:
    with pytest.raises(TrainingError, match="Lower lr"):
        trained(cache, Stream(1, "t"), lr=1e38)


def test_one_row_and_batch_norm_is_an_error(tmp_path: Path) -> None:
    one = Cache([shard(tmp_path / "1", np.ones((1, 2), np.float32), (A,), [0])], (A,), names=["z"])
    with pytest.raises(TrainingError, match="a batch of 1 rows"):
        Training(Net(), one, Recipe(), epochs=1, stream=Stream(1, "t"), what="test").run()


def test_schedules_start_high_and_end_low() -> None:
    assert cosine(0.999) < 0.01 and one_cycle(0.999) < 0.01
    assert one_cycle(0.0) == pytest.approx(0.04) and one_cycle(0.3) == 1.0


def test_frozen_parameters_are_left_alone() -> None:
    net = Net()
    net.body[0].requires_grad_(False)
    count = sum(len(group["params"]) for group in make_optimizer(net, Recipe()).param_groups)
    assert count == len(list(net.parameters())) - 2


def test_settings_of_torch_are_restored() -> None:
    before = (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads())
    with reproducible(torch.device("cpu"), 2):
        assert torch.are_deterministic_algorithms_enabled() and torch.get_num_threads() == 2
    assert (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()) == before
    assert fingerprint(torch.device("cpu"), 0)["threads"] == str(thread_count(0))  # at most one for each core


def test_devices_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="not one torch knows"):
        pick_device("gpu0")
    with pytest.raises(ConfigError, match="not supported"):
        pick_device("meta")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="sees no GPU"):
            pick_device("cuda")


def test_no_more_threads_than_the_process_may_keep_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text("150000 100000\n")
    assert numerics._cores(limit) == min(2, len(os.sched_getaffinity(0)))
    limit.write_text("50000 100000\n")
    assert numerics._cores(limit) == 1
    limit.write_text("max 100000\n")
    assert numerics._cores(limit) == len(os.sched_getaffinity(0)) == numerics._cores(tmp_path / "none")
    monkeypatch.setattr(numerics, "_cores", lambda: 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with reproducible(torch.device("cpu"), 0):
            assert torch.get_num_threads() == 1
        with reproducible(torch.device("cpu"), 2), reproducible(torch.device("cpu"), 0):
            assert torch.get_num_threads() == 2  # as asked further out, say by verify
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bytes_ahead", [0, 1 << 40])
def test_reading_ahead_changes_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch, bytes_ahead: int) -> None:
    before, _ = trained(cache, Stream(1, "t"))
    monkeypatch.setattr(feeding, "_AHEAD", bytes_ahead)
    after, _ = trained(cache, Stream(1, "t"))
    assert all(torch.equal(before[k], after[k]) for k in before)


def test_a_batch_that_cannot_be_read_is_an_error_and_no_deadlock(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "_AHEAD", 0)
    cache._shards[1] = replace(cache._shards[1], columns={})
    with pytest.raises(KeyError):
        trained(cache, Stream(1, "t"))


class Remembers(Net):
    """Looks at the batch before, too."""

    before: torch.Tensor | None = None

    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        z = tensors["z"]
        seen = z if self.before is None else z + 0.1 * self.before.mean(0)
        self.before = z
        return self.body(seen)


def test_a_net_may_keep_a_batch(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    for ahead in (0, 1 << 40):
        monkeypatch.setattr(feeding, "_AHEAD", ahead)
        torch.manual_seed(0)
        net = Remembers()
        Training(net, cache, Recipe(batch=3), epochs=3, stream=Stream(1, "t"), what="test").run()
        states.append(state_of(net))
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def test_half_precision_is_for_gpus() -> None:
    with pytest.raises(ConfigError, match="for a GPU"):
        Recipe(precision="bfloat16")


def test_pausing_work_can_be_left_and_taken_up(cache: Cache) -> None:
    torch.manual_seed(0)
    nets = [Net(), Net()]
    nets[1].load_state_dict(nets[0].state_dict())
    both = [Training(n, cache, Recipe(batch=3), epochs=3, stream=Stream(1, "t"), what="test") for n in nets]
    work = [training.steps() for training in both]
    for _ in range(3):
        next(work[0])
        torch.rand(3)
        next(work[1])
    for steps in work:
        finish(steps)
    assert both[0].losses == both[1].losses and len(both[0].losses) == 3
    assert all(torch.equal(a, b) for a, b in zip(*(state_of(n).values() for n in nets), strict=True))
    assert not torch.are_deterministic_algorithms_enabled()


def test_wide_rows_are_gathered_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    parts = [draw.normal(size=(n, 3, 700)).astype(np.float32) for n in (40, 25)]
    shards = [shard(tmp_path / str(n), part, (A,), [0] * len(part)) for n, part in enumerate(parts)]
    rows, index = Cache(shards, (A,), names=["z"]), draw.permutation(65)
    batches = []
    for wide in (1, 1 << 40):
        monkeypatch.setattr(cache_module, "_WIDE", wide)
        batches.append(rows.batch(index)[0]["z"])
    assert torch.equal(*batches) and np.array_equal(batches[0].numpy(), np.concatenate(parts)[index])
    rows.touch(np.sort(index))
