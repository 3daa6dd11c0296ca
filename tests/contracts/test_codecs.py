"""The contract of codecs, over all implementations."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import shards
from contracts import CODEC_SETTINGS, OUTSIDE
from federation.runs import assert_same, halves, settings, three, without
from splitwiper import ClientConfig, Federation
from splitwiper.errors import DataError
from splitwiper.training.cache import Cache
from splitwiper.wire import Column, Label, Shard, open_shard
from splitwiper.wire.codecs import codec_for, decode, encode, fitters, named, pack, prepare, stored, unpack
from splitwiper.wire.shard_check import check_shard

SHAPES = [(6, 4, 4), (5, 8), (7,), ()]
NEAR = {"none": 0.0, "float16": 1e-3, "bfloat16": 1e-2, "int8": 0.1, "int4": 0.7, OUTSIDE: 0.3}
"""How far a value may be off, relative to itself or, if that is small, to 1."""


@pytest.fixture(params=CODEC_SETTINGS)
def encoding(request: pytest.FixtureRequest) -> str:
    return prepare(ClientConfig(**CODEC_SETTINGS[request.param]).encoding)


def drawn(shape: tuple[int, ...], rows: int = 40, seed: int = 1) -> Tensor:
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(seed))


def fitted(values: Tensor, column: Column, encoding: str) -> dict[str, Tensor]:
    found = fitters([column], encoding)
    if not found:
        return {}
    for part in values.split(16):
        found[column.name].add(part)
    return found[column.name].fitted()


def written(path: Path, values: Tensor, encoding: str, own: dict[str, Tensor]) -> Shard:
    column = Column("x", "F32", tuple(values.shape[1:]))
    coded = encode(values, column, encoding, own).numpy()
    return open_shard(shards.written(path, column, coded, [Label("", "a")], codec=encoding, fitted={"x": own}))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_comes_back_is_near_what_went_in(encoding: str, shape: tuple[int, ...]) -> None:
    column, values = Column("x", "F32", shape), drawn(shape)
    own = fitted(values, column, encoding)
    sent = encode(values, column, encoding, own)
    assert tuple(sent.shape[1:]) == stored(column, encoding).shape
    back = decode(sent, column, encoding, own)
    name = next(name for name in NEAR if ClientConfig(**CODEC_SETTINGS[name]).encoding == encoding)
    assert back.shape == values.shape and back.dtype == torch.float32
    assert bool(((back - values).abs() <= NEAR[name] * values.abs().clamp(min=1)).all())


def test_rows_do_not_depend_on_their_batch(encoding: str) -> None:
    column, values = Column("x", "F32", (5, 8)), drawn((5, 8))
    own = fitted(values, column, encoding)
    whole = encode(values, column, encoding, own)
    assert torch.equal(whole, encode(values, column, encoding, own))
    assert torch.equal(whole, torch.cat([encode(part, column, encoding, own) for part in values.split(7)]))
    back = decode(whole, column, encoding, own)
    assert torch.equal(back, torch.cat([decode(part, column, encoding, own) for part in whole.split(7)]))


def test_other_columns_and_floats(encoding: str) -> None:
    assert stored(Column("mask", "I64", (8,)), encoding) == Column("mask", "I64", (8,))
    for dtype, kind in (("F64", torch.float64), ("F16", torch.float16)):
        column, values = Column("x", dtype, (7,)), drawn((7,)).to(kind)
        own = fitted(values, column, encoding)
        assert decode(encode(values, column, encoding, own), column, encoding, own).dtype == kind


def test_a_batch_of_several_shards_is_decoded_with_what_each_was_fitted_to(encoding: str, tmp_path: Path) -> None:
    column, parts = Column("x", "F32", (5, 8)), [drawn((5, 8)), 100 * drawn((5, 8), seed=2) + 7]
    own = [fitted(part, column, encoding) for part in parts]
    alone = [
        decode(encode(part, column, encoding, fits), column, encoding, fits)
        for part, fits in zip(parts, own, strict=True)
    ]
    shards = [written(tmp_path / str(n), part, encoding, own[n]) for n, part in enumerate(parts)]
    for shard in shards:
        check_shard(shard, [column], encoding)
    rows = Cache(shards, shards[0].labels, names=["x"], columns=[column])
    assert torch.equal(rows.batch(np.arange(80))[0]["x"], torch.cat(alone))
    assert torch.equal(
        unpack(pack({"x": parts[0]}, [column], encoding, {"x": own[0]}), [column], encoding)["x"], alone[0]
    )


def test_a_fitter_knows_only_the_rows_it_was_given(encoding: str) -> None:
    column, values = Column("x", "F32", (5, 8)), drawn((5, 8))
    before = fitted(values, column, encoding)
    outliers = fitted(torch.cat([values, 1e6 * drawn((5, 8))]), column, encoding)
    again = fitted(values, column, encoding)
    assert before.keys() == again.keys() and all(torch.equal(before[name], again[name]) for name in before)
    codec = codec_for(column, encoding)
    shapes = codec.shapes(column) if codec else {}
    assert {name: tuple(t.shape) for name, t in before.items()} == shapes
    assert all(t.dtype == torch.float32 for t in before.values())
    if before:
        assert any(not torch.equal(before[name], outliers[name]) for name in before)  # it is fitted at all


def test_hostile_bytes_are_refused_or_can_be_trained_on(encoding: str, tmp_path: Path) -> None:
    column, values = Column("x", "F32", (5, 8)), drawn((5, 8), rows=400)
    path = tmp_path / "shard"
    shard = written(path, values, encoding, fitted(values, column, encoding))
    size, start = shard.columns["x"].nbytes, path.read_bytes().index(shard.columns["x"].tobytes())
    raw = bytearray(path.read_bytes())
    raw[start : start + size] = np.random.default_rng(0).bytes(size)
    path.write_bytes(raw)
    opened = open_shard(path)
    try:
        check_shard(opened, [column], encoding, largest=1e4)
    except DataError:
        return
    rows = decode(torch.from_numpy(np.array(opened.columns["x"])), column, encoding, opened.fitted.get("x"))
    assert rows.shape == values.shape and float(rows.abs().max()) <= 1e4


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 3e38, "shape", "missing", "more", "dtype"])
def test_what_was_fitted_is_checked_on_arrival(encoding: str, bad: float | str, tmp_path: Path) -> None:
    column, values = Column("x", "F32", (5, 8)), drawn((5, 8))
    own = fitted(values, column, encoding)
    sent = {"x": encode(values, column, encoding, own)}
    name = next(iter(own), "more")
    if bad == "more":
        own["more"] = torch.ones(1)
    elif not own:
        return
    elif bad == "missing":
        del own[name]
    elif bad == "shape":
        own[name] = own[name].repeat(2)
    elif bad == "dtype":
        own[name] = own[name].double()
    else:
        own[name] = own[name] + bad
    with pytest.raises(DataError):
        unpack(sent | named({"x": own}), [column], encoding)


@pytest.mark.parametrize("codec", CODEC_SETTINGS)
def test_forgotten_outliers_leave_nothing_behind(tmp_path: Path, codec: str) -> None:
    data = three()
    x, y = data["north"]
    data["north"] = np.where((y == "bird")[:, None], 1e6 * x, x), y
    config = settings(slices=2, clip=1.0, standardise=codec == "float16", **CODEC_SETTINGS[codec])
    had = Federation(tmp_path / "had", halves(), config)
    had.learn(data)
    never = had.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], y != "bird")})
    receipt = had.unlearn("north", classes=["bird"])
    assert_same(had, never)
    assert had.verify(receipt).exact and had.verify().exact
    assert had.predict("north", data["south"][0][:3]) == never.predict("north", data["south"][0][:3])
