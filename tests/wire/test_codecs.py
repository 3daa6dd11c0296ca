"""Codecs: what comes back, how wide a row is, and what is refused."""

from pathlib import Path

import pytest
import torch

from shards import written
from splitwiper.config import CODECS
from splitwiper.errors import DataError, FormatError
from splitwiper.wire import Column, Label, open_shard
from splitwiper.wire.codecs import decode, encode, fitters, pack, stored, unpack
from splitwiper.wire.shard_check import check_shard

SHAPES = [(6, 4, 4), (3, 3, 3), (5, 8), (7,), ()]
LABELS = [Label("", "a")]
LEVELS = {"int8": 255, "int4": 15}


def drawn(shape: tuple[int, ...], rows: int = 40) -> torch.Tensor:
    values = torch.randn(rows, *shape, generator=torch.Generator().manual_seed(1))
    return values * torch.linspace(0.1, 9, shape[0] if shape else 1).reshape([-1] + [1] * (len(shape) - 1))[:rows]


def fitted(values: torch.Tensor, column: Column, codec: str) -> dict[str, torch.Tensor] | None:
    found = fitters([column], codec)
    if not found:
        return None
    for part in values.split(16):
        found[column.name].add(part)
    return found[column.name].fitted()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("codec", CODECS)
def test_what_comes_back_is_what_went_in_to_half_a_step(codec: str, shape: tuple[int, ...]) -> None:
    column, values = Column("x", "F32", shape), drawn(shape)
    ranges = fitted(values, column, codec)
    sent = encode(values, column, codec, ranges)
    assert tuple(sent.shape[1:]) == stored(column, codec).shape
    back = decode(sent, column, codec, ranges)
    assert back.shape == values.shape
    if codec == "none":
        assert torch.equal(back, values)
    elif ranges is None:
        assert torch.allclose(back, values, rtol={"float16": 1e-3, "bfloat16": 1e-2}[codec])
    else:
        axis = 1 if len(shape) == 3 else max(1, len(shape))
        step = ranges["step"].reshape([-1 if d == axis else 1 for d in range(values.ndim)]) if shape else ranges["step"]
        assert bool(((back - values).abs() <= 0.5001 * step).all())


@pytest.mark.parametrize("codec", LEVELS)
def test_each_shard_is_read_with_its_own_ranges(codec: str) -> None:
    column = Column("x", "F32", (6, 4, 4))
    parts = [drawn((6, 4, 4)) * scale + shift for scale, shift in ((1, 0), (100, 7))]
    ranges = [fitted(part, column, codec) for part in parts]
    rows = torch.cat([encode(part, column, codec, r) for part, r in zip(parts, ranges, strict=True)])
    table = {k: torch.stack([r[k] for r in ranges]) for k in ("low", "step")}
    owner = torch.tensor([0] * 40 + [1] * 40)
    alone = torch.cat(
        [decode(encode(p, column, codec, r), column, codec, r) for p, r in zip(parts, ranges, strict=True)]
    )
    assert torch.equal(decode(rows, column, codec, table, owner=owner), alone)


@pytest.mark.parametrize(("codec", "share"), [("float16", 0.5), ("bfloat16", 0.5), ("int8", 0.25), ("int4", 0.125)])
def test_bytes_per_row(codec: str, share: float) -> None:
    column = Column("x", "F32", (64, 32, 32))
    assert stored(column, codec).width == share * column.width
    assert stored(Column("mask", "I64", (8,)), codec) == Column("mask", "I64", (8,))  # integers travel as they are


def test_a_few_outliers_do_not_cost_the_others_their_levels() -> None:
    column, values = Column("x", "F32", (4,)), torch.randn(5000, 4, generator=torch.Generator().manual_seed(0))
    calm = fitted(values, column, "int4")
    values[0] = 1e6
    wild = fitted(values, column, "int4")
    assert bool((calm["step"] < 1).all()) and bool((wild["step"] < 1e4).all())  # min to max would be 66,666


def test_constant_channels_come_back_exactly() -> None:
    column, values = Column("x", "F32", (2,)), torch.tensor([[0.0, 3.25]]).repeat(9, 1)
    for codec in LEVELS:
        ranges = fitted(values, column, codec)
        assert torch.equal(decode(encode(values, column, codec, ranges), column, codec, ranges), values)


def coded(path: Path, codec: str, ranges: dict[str, dict[str, torch.Tensor]] | None = None) -> Path:
    """A shard of random values, with what the codec fitted to them, or something else in its place."""
    column, values = Column("x", "F32", (5, 8)), drawn((5, 8))
    own = fitted(values, column, codec)
    stored_values = encode(values, column, codec, own).numpy()
    fits = {"x": own} if ranges is None else ranges
    return written(path, column, stored_values, LABELS, codec=codec, fitted=fits)


@pytest.mark.parametrize("codec", CODECS)
def test_a_shard_says_how_it_is_coded(tmp_path: Path, codec: str) -> None:
    shard = open_shard(coded(tmp_path / "shard", codec))
    assert shard.codec == codec
    check_shard(shard, [Column("x", "F32", (5, 8))], codec)
    other = "int8" if codec != "int8" else "int4"
    with pytest.raises(DataError, match="coded as"):
        check_shard(shard, [Column("x", "F32", (5, 8))], other)


def test_ranges_that_are_missing_or_absurd_are_refused(tmp_path: Path) -> None:
    column = Column("x", "F32", (5, 8))
    good = fitted(drawn((5, 8)), column, "int4")
    for number, bad in enumerate(
        [
            {},
            {"x": {"low": good["low"][:3], "step": good["step"][:3]}},
            {"x": {"low": good["low"], "step": good["step"] * 0}},
            {"x": {"low": good["low"] * torch.nan, "step": good["step"]}},
            {"x": {"low": good["low"]}},
            {"x": good, "y": good},
            {"y": good},
        ]
    ):
        shard = open_shard(coded(tmp_path / str(number), "int4", bad))
        with pytest.raises(DataError, match="fitted"):
            check_shard(shard, [column], "int4")


def test_infinite_bfloat16_is_refused(tmp_path: Path) -> None:
    path = coded(tmp_path / "shard", "bfloat16")
    raw = bytearray(path.read_bytes())
    at = bytes(raw).index(open_shard(path).columns["x"].tobytes()[:16])
    raw[at : at + 2] = b"\x80\x7f"
    path.write_bytes(raw)
    with pytest.raises(DataError, match="NaN or infinite"):
        check_shard(open_shard(path), [Column("x", "F32", (5, 8))], "bfloat16")


def test_a_codec_of_the_future_is_refused(tmp_path: Path) -> None:
    path = coded(tmp_path / "shard", "int8")
    path.write_bytes(path.read_bytes().replace(b'"codec":"int8"', b'"codec":"int2"'))
    with pytest.raises(FormatError, match="Upgrade"):
        open_shard(path)


def test_predictions_cross_in_the_same_form() -> None:
    column, values = Column("x", "F32", (6, 4, 4)), drawn((6, 4, 4))
    for codec in CODECS:
        own = fitted(values, column, codec)
        sent = pack({"x": values}, [column], codec, {"x": own} if own else {})
        assert torch.equal(unpack(sent, [column], codec)["x"], decode(sent["x"], column, codec, own))
    with pytest.raises(DataError, match="did not come"):
        unpack({"x": sent["x"]}, [column], "int4")
    with pytest.raises(DataError, match="arrived as"):
        unpack({"x": sent["x"][:, :3]}, [column], "int4")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"x": torch.zeros(4, 48)}, "arrived as torch.float32"),
        ({"x": torch.zeros(4, 48, dtype=torch.int64)}, "arrived as torch.int64"),
        ({"@low/x": torch.zeros(1)}, "not of the shapes"),
        ({"@low/x": torch.full((6,), torch.nan)}, "out of range"),
        ({"@step/x": torch.zeros(6)}, "out of range"),
        ({"@step/x": torch.full((6,), 3.4e38)}, "out of range"),
        ({"@step/x": torch.ones(6, dtype=torch.int32)}, "out of range"),
        ({"@step/x": torch.ones(6, 1)}, "out of range"),
    ],
)
def test_malformed_predictions_are_refused(change: dict[str, torch.Tensor], told: str) -> None:
    good = {"x": torch.zeros(4, 48, dtype=torch.uint8), "@low/x": torch.zeros(6), "@step/x": torch.ones(6)}
    column = Column("x", "F32", (6, 4, 4))
    assert unpack(good, [column], "int4")["x"].shape == (4, 6, 4, 4)
    with pytest.raises(DataError, match=told):
        unpack({**good, **change}, [column], "int4")


@pytest.mark.parametrize("name", ["\ud800", "a\x00b", "x" * 1001, 10**30])
def test_labels_that_rows_may_not_have_no_shard_may_have(tmp_path: Path, name: str | int) -> None:
    column, label = Column("x", "F32", (1,)), Label("", name)
    path = written(tmp_path / "shard", column, torch.zeros(2, 1).numpy(), [label])
    with pytest.raises(DataError, match="label"):
        check_shard(open_shard(path), [column])


def test_values_too_large_to_train_on_are_refused(tmp_path: Path) -> None:
    for codec in ("none", "bfloat16"):
        column, values = Column("x", "F32", (1,)), torch.full((2, 1), 3e38)
        path = written(tmp_path / codec, column, encode(values, column, codec).numpy(), LABELS, codec=codec)
        with pytest.raises(DataError, match=r"e\+38.*values up to 1e\+30"):
            check_shard(open_shard(path), [column], codec)


@pytest.mark.parametrize("codec", ["none", "float16", "bfloat16", "int8", "int4"])
def test_the_federations_own_bound_is_kept_under_every_codec(tmp_path: Path, codec: str) -> None:
    column, values = Column("x", "F32", (1,)), torch.tensor([[1.0], [-900.0]])
    own = fitted(values, column, codec)
    stored_values = encode(values, column, codec, own).numpy()
    opened = open_shard(written(tmp_path / "shard", column, stored_values, LABELS, codec=codec, fitted={"x": own}))
    check_shard(opened, [column], codec, client="north", largest=1000.0)
    with pytest.raises(DataError, match=r"client 'north': column 'x' has the value 900.* up to 100.*standardise"):
        check_shard(opened, [column], codec, client="north", largest=100.0)
