"""The loop on a GPU: graph or eager, resident or streamed, alone or beside others, the bits are the same."""

import logging
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from splitwiper.config import Recipe
from splitwiper.errors import TrainingError
from splitwiper.seeding import Stream, state_digest
from splitwiper.training import feeding, loop
from splitwiper.training.cache import Cache
from splitwiper.training.loop import Span, Training, finish, state_of
from splitwiper.wire import Column, Label, Shard
from splitwiper.wire.codecs import stored

pytestmark = pytest.mark.gpu
LABELS = tuple(Label("", n) for n in range(5))
CUT = Column("z", "F32", (16, 8, 8))


def cache(codec: str = "none", rows: int = 700) -> Cache:
    draw, shards = np.random.default_rng(0), []
    for number, count in enumerate((rows // 3, rows - rows // 3)):
        kept = stored(CUT, codec)
        if kept.dtype == "U8":
            values = draw.integers(0, 256, (count, *kept.shape), dtype=np.uint8)
        elif kept.dtype == "BF16":
            values = torch.randn(count, *CUT.shape).bfloat16().view(torch.int16).numpy()
        else:
            values = draw.normal(size=(count, *kept.shape)).astype({"F32": "<f4", "F16": "<f2"}[kept.dtype])
        own = {"low": torch.full((16,), -1.0 * number), "step": torch.full((16,), 0.2)}
        codes = (np.arange(count) % 5).astype(np.int32)
        shards.append(
            Shard(Path("memory"), count, {"z": values}, codes, LABELS, codec, {"z": own} if kept.dtype == "U8" else {})
        )
    return Cache(shards, LABELS, names=["z"], columns=[CUT])


class Net(nn.Module):
    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(512, 5),
        )

    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.body(tensors["z"])


def net(**more: float) -> Net:
    torch.manual_seed(0)
    return Net(**more)


def digest(rows: Cache, **recipe: object) -> str:
    one = net()
    settings = Recipe(device="cuda", batch=64, **recipe)
    Training(one, rows, settings, epochs=4, stream=Stream(1, "t"), what="test").run()
    return state_digest(state_of(one))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("codec", ["none", "float16", "bfloat16", "int8", "int4"])
def test_every_path_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, codec: str, precision: str) -> None:
    rows = cache(codec)
    decoded = digest(rows, precision=precision)
    assert digest(rows, precision=precision) == decoded
    monkeypatch.setattr(loop, "_GRAPHS_FROM", 10**9)
    assert digest(rows, precision=precision) == decoded, "eager"
    monkeypatch.undo()
    monkeypatch.setattr(feeding.DecodedFeed, "need", staticmethod(lambda *_: 10**18))
    assert digest(rows, precision=precision) == decoded, "resident, as stored"
    monkeypatch.setattr(feeding.ResidentFeed, "need", staticmethod(lambda *_: 10**18))
    assert digest(rows, precision=precision) == decoded, "streamed"


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_optimisers_and_clipping_in_a_graph(monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    recipe = {"optimizer": optimizer, "clip": 1.0, "schedule": "onecycle", "lr": 0.01}
    graphed = digest(cache(), **recipe)
    monkeypatch.setattr(loop, "_GRAPHS_FROM", 10**9)
    assert digest(cache(), **recipe) == graphed


def test_several_at_a_time_are_as_each_alone() -> None:
    rows = [cache(rows=n) for n in (300, 700, 450)]
    recipe = Recipe(device="cuda", batch=64)
    nets = {(place, drop): net(dropout=drop) for place in range(3) for drop in (0.0, 0.3)}
    alone = {}
    for (place, drop), one in nets.items():
        Training(one, rows[place], recipe, epochs=5, stream=Stream(place, "t"), what="test").run()
        alone[place, drop] = state_digest(state_of(one))
    fresh = {key: net(dropout=key[1]) for key in nets}
    work = {
        key: Training(one, rows[key[0]], recipe, epochs=5, stream=Stream(key[0], "t"), what="test").steps()
        for key, one in fresh.items()
    }
    while work:
        for key in list(work):
            try:
                next(work[key])
            except StopIteration:
                del work[key]
    assert {key: state_digest(state_of(one)) for key, one in fresh.items()} == alone


def test_a_full_gpu_streams_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    rows = cache(rows=40_000)  # 164 MB
    whole = digest(rows)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    try:
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 150e6) / total)
        with caplog.at_level(logging.WARNING, "splitwiper"):
            assert digest(rows) == whole
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert free > 1e9 and "streamed from disk" in caplog.text


def test_a_step_too_large_for_the_gpu_is_an_error_with_a_remedy() -> None:
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    try:
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 40e6) / total)
        with pytest.raises(TrainingError, match="Lower batch"):
            Training(
                net(), cache(rows=8000), Recipe(device="cuda", batch=8000), epochs=1, stream=Stream(1, "t"), what="test"
            ).run()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


class Looks(Net):
    """Decides in Python by what it sees: no graph can be captured."""

    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        scale = 2.0 if float(tensors["z"].sum()) > 0 else 1.0
        return self.body(scale * tensors["z"])


def test_what_cannot_be_captured_runs_eagerly(caplog: pytest.LogCaptureFixture) -> None:
    digests = []
    for _ in range(2):
        torch.manual_seed(0)
        one = Looks()
        Training(one, cache(), Recipe(device="cuda", batch=64), epochs=3, stream=Stream(1, "t"), what="test").run()
        digests.append(state_digest(state_of(one)))
    assert digests[0] == digests[1] and "runs eagerly" in caplog.text


class Views(Net):
    """Insists on the order of a map's values."""

    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        z = tensors["z"]
        return self.body[-1](z.view(len(z), -1)[:, :512])


def test_a_net_that_insists_on_the_order_of_values() -> None:
    torch.manual_seed(0)
    one = Views()
    training = Training(one, cache("int4"), Recipe(device="cuda"), epochs=3, stream=Stream(1, "t"), what="test")
    assert len(training.run()) == 3


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_maps_of_one_channel_are_laid_out_alike(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    draw, cut = np.random.default_rng(0), Column("z", "F32", (1, 16, 16))
    values, codes = draw.normal(size=(700, 1, 16, 16)).astype(np.float32), (np.arange(700) % 5).astype(np.int32)
    rows = Cache([Shard(Path("memory"), 700, {"z": values}, codes, LABELS)], LABELS, names=["z"], columns=[cut])

    def told() -> str:
        torch.manual_seed(0)
        one = Net()
        one.body[0], one.body[6] = nn.Conv2d(1, 32, 3, padding=1), nn.Linear(2048, 5)
        recipe = Recipe(device="cuda", batch=64, lr=1e-3, precision=precision)
        Training(one, rows, recipe, epochs=3, stream=Stream(1, "t"), what="test").run()
        return state_digest(state_of(one))

    decoded = told()
    monkeypatch.setattr(feeding.DecodedFeed, "need", staticmethod(lambda *_: 10**18))
    assert told() == decoded
    monkeypatch.setattr(feeding.ResidentFeed, "need", staticmethod(lambda *_: 10**18))
    assert told() == decoded


def test_half_precision_follows_the_weights() -> None:
    """Casts must not outlive a step: a net that saw its first weights all along would hardly learn."""
    losses = {
        precision: Training(
            net(),
            cache(),
            Recipe(device="cuda", batch=64, precision=precision),
            epochs=4,
            stream=Stream(1, "t"),
            what="t",
        ).run()
        for precision in ("float32", "bfloat16")
    }
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.1)


class Drops(Net):
    """Decides by Python's generator: a graph would replay one decision for ever."""

    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.body(tensors["z"] if random.random() < 0.5 else 2 * tensors["z"])


def test_what_draws_on_the_cpu_runs_eagerly(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    digests = []
    for graphs_from in (1, 10**9):
        monkeypatch.setattr(loop, "_GRAPHS_FROM", graphs_from)
        torch.manual_seed(0)
        one = Drops()
        Training(one, cache(), Recipe(device="cuda", batch=64), epochs=4, stream=Stream(1, "t"), what="test").run()
        digests.append(state_digest(state_of(one)))
    assert digests[0] == digests[1] and "on the CPU" in caplog.text


def test_a_failed_capture_harms_no_graph_made_before() -> None:
    recipe = Recipe(device="cuda", batch=64)
    alone = net()
    Training(alone, cache(), recipe, epochs=5, stream=Stream(1, "t"), what="test").run()
    torch.manual_seed(0)
    beside, other = net(), Looks()
    work = [Training(n, cache(), recipe, epochs=5, stream=Stream(1, "t"), what="test").steps() for n in (beside, other)]
    for _ in range(3):
        for one in work:
            next(one)
    for one in work:
        finish(one)
    assert state_digest(state_of(beside)) == state_digest(state_of(alone))


class LateViews(Net):
    """Insists on the usual order of channels, after batch norm and dropout have left their traces."""

    def __init__(self) -> None:
        super().__init__()
        self.body[4] = nn.Identity()
        self.early = nn.Dropout(0.3)

    def forward(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        maps = self.body[:5](self.early(tensors["z"]))
        return self.body[5:](maps.view(len(maps), -1))


def states(make: type[Net], recipe: Recipe, span: Span | None = None) -> dict[int, dict[str, torch.Tensor]]:
    """The state after each epoch of a training, or of a part of it."""
    found: dict[int, dict[str, torch.Tensor]] = {}
    torch.manual_seed(0)
    rows, stream = cache(), Stream(1, "t")
    Training(make(), rows, recipe, epochs=4, stream=stream, what="test", on_state=found.__setitem__, span=span).run()
    return found


@pytest.mark.parametrize("graphs_from", [1, 10**9])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_every_epoch_alone_is_as_in_the_whole(
    monkeypatch: pytest.MonkeyPatch, optimizer: str, precision: str, graphs_from: int
) -> None:
    """Whether the whole ran as graphs or eagerly, and whether the part does: the state after each epoch is the same."""
    recipe = Recipe(
        device="cuda", batch=64, optimizer=optimizer, lr=0.01, schedule="onecycle", clip=1.0, precision=precision
    )
    monkeypatch.setattr(loop, "_GRAPHS_FROM", graphs_from)
    whole = states(Net, recipe)
    digests = [state_digest(state) for state in whole.values()]
    assert list(whole) == [0, 1, 2, 3, 4] and len(set(digests)) == 5
    assert all(
        tensor.device.type == "cpu" and tensor.is_contiguous() for state in whole.values() for tensor in state.values()
    )
    for part_from in (1, 10**9):
        monkeypatch.setattr(loop, "_GRAPHS_FROM", part_from)
        for epoch in range(4):
            part = states(Net, recipe, Span(epoch, epoch + 1, whole[epoch]))
            assert [state_digest(state) for state in part.values()] == digests[epoch : epoch + 2]
        rest = states(Net, recipe, Span(1, 4, whole[1]))
        assert [state_digest(state) for state in rest.values()] == digests[1:]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_net_that_insists_on_a_layout_is_recomputed_too(optimizer: str) -> None:
    """The first try of its first batch fails; neither batch norm nor the generators remember it."""
    recipe = Recipe(device="cuda", batch=64, optimizer=optimizer, lr=0.01)
    whole = states(LateViews, recipe)
    assert int(whole[1]["net/body.1.num_batches_tracked"]) == 11  # one for each batch of 700 rows
    for epoch in range(4):
        part = states(LateViews, recipe, Span(epoch, epoch + 1, whole[epoch]))
        assert state_digest(part[epoch + 1]) == state_digest(whole[epoch + 1])


def test_a_full_gpu_hands_out_the_same_states() -> None:
    recipe, found = Recipe(device="cuda", batch=64), list[tuple[int, str]]()

    def on_state(epoch: int, state: dict[str, torch.Tensor]) -> None:
        found.append((epoch, state_digest(state)))
        if len(found) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Made up.")

    Training(net(), cache(), recipe, epochs=4, stream=Stream(1, "t"), what="test", on_state=on_state).run()
    assert [epoch for epoch, _ in found] == [0, 1, 2, 0, 1, 2, 3, 4]
    assert found[:3] == found[3:6]
    assert found[3:] == [(epoch, state_digest(state)) for epoch, state in states(Net, recipe).items()]
