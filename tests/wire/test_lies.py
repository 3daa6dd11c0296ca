"""Shards from somebody who means harm: every lie in a header is an error of ours, and costs no memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from splitwiper.errors import CorruptError, FormatError, StoreError
from splitwiper.wire import open_shard

META = {"format": "splitwiper-shard", "version": "1", "features": "[]", "labels": '["[\\"\\",0]"]'}


def shard(path: Path, header: Any, data: bytes = b"\0" * 8, *, size: int | None = None) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(raw) if size is None else size).to_bytes(8, "little") + raw + data)
    return path


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def columns(**changes: Any) -> dict[str, Any]:
    return {"__metadata__": META, "x": entry(), "@label": entry("I32", (1,), (4, 8)), **changes}


def meta(**changes: Any) -> dict[str, Any]:
    kept = {key: value for key, value in {**META, **changes}.items() if value is not None}
    return columns(__metadata__=kept)


def test_the_honest_one_opens(tmp_path: Path) -> None:
    assert open_shard(shard(tmp_path / "s", columns())).rows == 1


LIES: dict[str, Any] = {
    "negative offsets": columns(x=entry(offsets=(-4, 0))),
    "offsets in reverse": columns(x=entry(offsets=(4, 0))),
    "overlapping offsets": columns(x=entry(offsets=(2, 6))),
    "both columns in one place": columns(x=entry(offsets=(4, 8))),
    "a hole": {**columns(), "@label": entry("I32", (1,), (8, 12))},
    "beyond the end": {**columns(), "@label": entry("I32", (2,), (4, 12))},
    "a huge offset": columns(x=entry(offsets=(0, 2**63))),
    "an offset beyond 64 bits": columns(x=entry(offsets=(0, 2**70))),
    "a shape that does not fit": columns(x=entry(shape=(2,))),
    "a huge shape": columns(x=entry(shape=(2**40,))),
    "a shape that wraps around": columns(x=entry(shape=(2**32, 2**32))),
    "a shape of too many dimensions": columns(x=entry(shape=(1,) * 65)),
    "a negative shape": columns(x=entry(shape=(-1,))),
    "a shape of fractions": columns(x=entry(shape=(1.0,))),
    "a shape of text": columns(x=entry(shape="1")),
    "an unknown dtype": columns(x=entry("F31")),
    "a dtype shards do not carry": columns(x=entry("BF16", (2,))),
    "a dtype of a number": columns(x=entry(dtype=4)),  # type: ignore[arg-type]
    "a column that is a list": columns(x=[]),
    "a column without offsets": columns(x={"dtype": "F32", "shape": [1]}),
    "no columns": {"__metadata__": META},
    "no label column": {"__metadata__": META, "x": entry(shape=(2,), offsets=(0, 8))},
    "labels that are floats": {**columns(), "@label": entry("F32", (1,), (4, 8))},
    "labels in a table": {**columns(), "@label": entry("I32", (1, 1), (4, 8))},
    "a scalar column": columns(x=entry(shape=())),
    "columns of different length": {"__metadata__": META, "x": entry(shape=(0,), offsets=(0, 0)),
                                    "@label": entry("I32", (2,), (0, 8))},
    "metadata that is a list": columns(__metadata__=[]),
    "metadata of numbers": columns(__metadata__={"format": 1}),
    "no metadata": {"x": entry(), "@label": entry("I32", (1,), (4, 8))},
    "another format": meta(format="other"),
    "a newer version": meta(version="2"),
    "no version": meta(version=None),
    "a version in words": meta(version="one"),
    "a version that only looks like a number": meta(version="²"),
    "an unknown feature": meta(features='["zstd"]'),
    "features that are no list": meta(features="7"),
    "features that are no JSON": meta(features="["),
    "features of features": meta(features="[[1]]"),
    "features without a bottom": meta(features="[" * 100_000),
    "no labels": meta(labels=None),
    "labels that are no JSON": meta(labels="a"),
    "labels that are numbers": meta(labels="[1]"),
    "labels of three parts": meta(labels='["[1,2,3]"]'),
    "labels that are truth values": meta(labels='["[\\"\\",true]"]'),
    "labels without a bottom": meta(labels="[" * 100_000),
    "a label without a bottom": meta(labels=json.dumps(["[" * 100_000])),
    "a header that is a list": [],
    "a header that is no JSON": b"{",
    "a header of zeros": b"\0" * 64,
    "a header without a bottom": b"[" * 100_000,
    "a header that is no text": b"\xff" * 64,
}  # fmt: skip


@pytest.mark.parametrize("what", LIES)
def test_lies_are_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(StoreError) as error:
        open_shard(shard(tmp_path / "lie", LIES[what]))
    assert isinstance(error.value, CorruptError | FormatError)
    assert "lie" in str(error.value) or "label" in str(error.value)


def test_unknown_features_and_versions_say_upgrade(tmp_path: Path) -> None:
    for header, message in (
        (meta(features='["zstd","fp4"]'), "does not have: fp4, zstd. Upgrade"),
        (meta(version="2"), "version '2'.*upgrade"),
    ):
        with pytest.raises(FormatError, match=message):
            open_shard(shard(tmp_path / "newer", header))


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**40, 2**63, 2**64 - 1])
def test_a_lying_header_size_costs_no_memory(tmp_path: Path, size: int) -> None:
    path = shard(tmp_path / "lie", columns(), size=size)
    tracemalloc.start()
    with pytest.raises(StoreError):
        open_shard(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_header_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    raw = json.dumps(columns()).encode()
    path = shard(tmp_path / "long", raw + b" " * (17 << 20))
    with pytest.raises(FormatError, match="beyond the limit"):
        open_shard(path)


def test_a_header_beyond_the_limit_is_not_parsed(tmp_path: Path) -> None:
    """Parsing takes many times its size in memory: what safetensors would call malformed is never shown to it."""
    with pytest.raises(FormatError, match="beyond the limit"):
        open_shard(shard(tmp_path / "long", b"{" * (17 << 20)))


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, -1, -8])
def test_a_truncated_shard_is_refused(tmp_path: Path, keep: int) -> None:
    path = shard(tmp_path / "cut", columns())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptError, match=r"cut.*truncated or corrupted"):
        open_shard(path)


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    path = shard(tmp_path / "more", columns(), b"\0" * 9)
    with pytest.raises(CorruptError):
        open_shard(path)


def test_a_missing_shard_is_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        open_shard(tmp_path / "nowhere")
