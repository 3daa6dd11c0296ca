"""The shard format: what goes in comes out, the bytes are a pure function of the rows, limits are checked."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from splitwiper.errors import DataError
from splitwiper.wire import Column, Label, open_shard, write_shard
from splitwiper.wire.columns import DTYPES
from splitwiper.wire.labels import in_order
from splitwiper.wire.shard_check import check_shard

Array = np.ndarray[Any, np.dtype[Any]]


def values(column: Column, rows: int, draw: np.random.Generator) -> Array:
    kind = np.dtype(DTYPES[column.dtype])
    raw = draw.integers(-100, 100, size=(rows, *column.shape))
    if kind.kind == "b":
        return (raw % 2).astype(kind)
    return (raw / 8 if kind.kind == "f" else np.abs(raw) if kind.kind == "u" else raw).astype(kind)


def written(columns: list[Column], tensors: dict[str, Array], labels: list[Label], *, block: int = 1 << 30) -> bytes:
    table = in_order(labels)
    codes = np.array([table.index(label) for label in labels], np.int32)
    out = io.BytesIO()
    blocks = (
        ({name: array[at : at + block] for name, array in tensors.items()}, codes[at : at + block])
        for at in range(0, len(labels), block)
    )
    write_shard(out, columns=columns, rows=len(labels), labels=table, blocks=blocks)
    return out.getvalue()


@pytest.mark.parametrize("seed", range(40))
def test_what_goes_in_comes_out(tmp_path: Path, seed: int) -> None:
    """Columns of any dtype and shape, any number of rows, labels of any kind, in blocks of any size."""
    draw = np.random.default_rng(seed)
    kinds = list(DTYPES)
    columns = []
    for number in range(draw.integers(1, 5)):
        least = 0 if draw.random() < 0.1 else 1
        shape = tuple(draw.integers(least, 5, draw.integers(0, 4)).tolist())
        columns.append(Column(f"c{number}", kinds[(seed + number) % len(kinds)], shape))
    rows = int(draw.integers(1, 50))
    names: list[Label] = [Label("", "é"), Label("", 3), Label("", "3"), Label("t", -1), Label("t", 'quo"te')]
    labels = [names[i] for i in draw.integers(0, len(names), rows)]
    tensors = {column.name: values(column, rows, draw) for column in columns}
    raw = written(columns, tensors, labels, block=int(draw.integers(1, 60)))
    path = tmp_path / "shard"
    path.write_bytes(raw)
    shard = open_shard(path)
    check_shard(shard, columns)
    assert shard.rows == rows
    assert [shard.labels[code] for code in shard.codes] == labels
    for column in columns:
        back = shard.columns[column.name]
        assert back.dtype == np.dtype(DTYPES[column.dtype])
        assert np.array_equal(back, tensors[column.name])
    # the same rows give the same bytes, whatever the blocks and the order of columns
    assert written(columns[::-1], tensors, labels, block=int(draw.integers(1, 60))) == raw
    # and plain safetensors reads them too
    plain = safetensors.numpy.load(raw)
    assert all(np.array_equal(plain[c.name], tensors[c.name]) for c in columns)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_extremes(tmp_path: Path, dtype: str) -> None:
    kind = np.dtype(DTYPES[dtype])
    if kind.kind == "f":
        ends = [np.finfo(kind).min, np.finfo(kind).tiny, -0.0, np.finfo(kind).max]
    elif kind.kind == "b":
        ends = [False, True, True, False]
    else:
        ends = [np.iinfo(kind).min, 0, 1, np.iinfo(kind).max]
    array = np.array(ends, kind)
    path = tmp_path / "shard"
    path.write_bytes(written([Column("x", dtype, ())], {"x": array}, [Label("", 0)] * 4))
    assert open_shard(path).columns["x"].tobytes() == array.tobytes()


def test_one_changed_value_changes_the_bytes() -> None:
    columns, labels = [Column("x", "F32", (2,))], [Label("", 0), Label("", 1)]
    array = np.zeros((2, 2), np.float32)
    raw = written(columns, {"x": array}, labels)
    array[1, 1] = 1e-30
    assert written(columns, {"x": array}, labels) != raw
    assert written(columns, {"x": array * 0}, labels[::-1]) != raw
    assert written(columns, {"x": array * 0}, labels) == raw


def test_the_header_says_nothing_but_the_format() -> None:
    raw = written([Column("x", "F32", ())], {"x": np.zeros(1, np.float32)}, [Label("t", "a")])
    size = int.from_bytes(raw[:8], "little")
    meta = json.loads(raw[8 : 8 + size])["__metadata__"]
    assert meta == {"format": "splitwiper-shard", "version": "1", "features": "[]", "labels": '["[\\"t\\",\\"a\\"]"]'}
    assert (8 + size) % 64 == 0


@pytest.mark.parametrize("shape", [(3, 2), (2,), (2, 2, 1)])
def test_values_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="every row must fit the cut"):
        written([Column("x", "F32", (2,))], {"x": np.zeros(shape, np.float32)}, [Label("", 0)] * 2)


@pytest.mark.parametrize("announced", [1, 3])
def test_a_wrong_number_of_rows_is_refused(announced: int) -> None:
    block = ({"x": np.zeros(2, np.float32)}, np.zeros(2, np.int32))
    with pytest.raises(DataError, match=f"2 rows were given where {announced} were announced"):
        write_shard(
            io.BytesIO(), columns=[Column("x", "F32", ())], rows=announced, labels=[Label("", 0)], blocks=[block]
        )


# --- what the server looks at before it takes a shard -------------------------------------------------------


def shard_of(path: Path, array: Array, labels: list[Label], dtype: str = "F32", name: str = "x") -> Any:
    path.write_bytes(written([Column(name, dtype, array.shape[1:])], {name: array}, labels))
    return open_shard(path)


CUT = [Column("x", "F32", (2,))]
TWO = [Label("", 0), Label("", 1)]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    array = np.zeros((2, 2), np.float32)
    array[1, 0] = value
    with pytest.raises(DataError, match=r"'x' has the value (nan|inf) in rows 0 to 1"):
        check_shard(shard_of(tmp_path / "shard", array, TWO), CUT)


def test_a_shard_that_does_not_fit_the_cut_is_refused(tmp_path: Path) -> None:
    good = np.zeros((2, 2), np.float32)
    for array, dtype, name, message in (
        (good, "F32", "y", r"carries \['y'\], the cut sends \['x'\]"),
        (good.astype(np.float64), "F64", "x", "float64"),
        (np.zeros((2, 3), np.float32), "F32", "x", r"\[3\], the cut sends x F32\[2\]"),
        (np.zeros((0, 2), np.float32), "F32", "x", "no rows; a client with nothing left withdraws"),
    ):
        with pytest.raises(DataError, match=message):
            check_shard(shard_of(tmp_path / "shard", array, TWO[: len(array)], dtype, name), CUT)


def test_labels_that_do_not_fit_the_table_are_refused(tmp_path: Path) -> None:
    array = np.zeros((2, 2), np.float32)
    for table, codes in (
        (TWO, [0, 2]),
        (TWO, [-1, 0]),
        (TWO, [0, 0]),
        (TWO[::-1], [0, 1]),
        ([TWO[0], TWO[0]], [0, 1]),
    ):
        with (tmp_path / "shard").open("wb") as file:
            write_shard(file, columns=CUT, rows=2, labels=table, blocks=[({"x": array}, np.array(codes, np.int32))])
        with pytest.raises(DataError, match="do not match the shard's table"):
            check_shard(open_shard(tmp_path / "shard"), CUT)


def test_truth_values_other_than_true_and_false_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    raw = bytearray(written([Column("m", "BOOL", ())], {"m": np.array([True, False])}, TWO))
    raw[-1] = 7
    path.write_bytes(raw)
    with pytest.raises(DataError, match="'m'"):
        check_shard(open_shard(path), [Column("m", "BOOL", ())])


def test_label_indices_are_checked_in_bounded_memory(tmp_path: Path) -> None:
    rows = 1 << 21
    column, codes = Column("m", "BOOL", ()), (np.arange(rows) % 2).astype(np.int32)
    with (tmp_path / "shard").open("wb") as file:
        write_shard(file, columns=[column], rows=rows, labels=TWO, blocks=[({"m": np.zeros(rows, bool)}, codes)])
    opened = open_shard(tmp_path / "shard")
    tracemalloc.start()
    check_shard(opened, [column])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < codes.nbytes / 2
