"""Coded activations: exact forgetting with ranges refitted on the survivors, and fewer bytes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from federation.runs import assert_same, halves, learned, settings, three, without
from splitwiper import Federation, split
from splitwiper.config import CODECS
from splitwiper.errors import ConfigError, DataError
from splitwiper.wire import open_shard


def outliers() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`three`, where the rows to forget lie a million-fold further out than all others."""
    data = three()
    x, y = data["north"]
    return {**data, "north": (np.where((y == "bird")[:, None], 1e6 * x, x), y)}


@pytest.mark.share(2)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("slices", [1, 4])
def test_unlearned_equals_never_had(tmp_path: Path, codec: str, slices: int) -> None:
    config = settings(slices=slices, codec=codec, clip=1.0, standardise=codec == "float16")
    had = Federation(tmp_path / "had", halves(), config)
    data = outliers()
    had.learn(data)
    never = had.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], data["north"][1] != "bird")})
    receipt = had.unlearn("north", classes=["bird"])
    assert_same(had, never)
    assert had.verify(receipt).exact and had.verify().exact
    assert had.predict("north", data["south"][0][:3]) == never.predict("north", data["south"][0][:3])


def test_ranges_are_the_survivors_own(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), settings(codec="int4", clip=1.0))
    fed.learn(outliers())
    ranges = [_ranges(fed)]
    fed.unlearn("north", classes=["bird"])
    ranges.append(_ranges(fed))
    assert float(ranges[0].max()) > 1e3 * float(ranges[1].max())


def _ranges(fed: Federation) -> torch.Tensor:
    store = fed._server.store
    record = next(r for r in store.shards() if r.client == "north")
    (own,) = open_shard(store.root / "shards" / record.file).fitted.values()
    return own["step"]


def test_bytes_shrink_as_told(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(400, 6)).astype(np.float32), np.arange(400) % 3
    sent = {}
    for codec in CODECS:
        fed = Federation(tmp_path / codec, halves(), settings(codec=codec))
        sent[codec] = fed.learn({"north": rows}).spent["north"].bytes_up
    width = {codec: (sent[codec] - 1500) / 400 - 4 for codec in CODECS}  # 8 activations; 4 bytes of label
    for codec, bytes_ in {"none": 32, "float16": 16, "bfloat16": 16, "int8": 8, "int4": 4}.items():
        assert width[codec] == pytest.approx(bytes_, abs=3.8), codec


def test_compressed_on_the_way_the_same_when_it_arrives(tmp_path: Path) -> None:
    plain = Federation(tmp_path / "plain", halves(), settings(codec="int4", keys="seeded"))
    packed = Federation(tmp_path / "packed", halves(), settings(codec="int4", keys="seeded", transfer="zstd"))
    spent = [fed.learn(three()).spent["north"].bytes_up for fed in (plain, packed)]
    assert spent[1] < spent[0]
    shards = [[(r.client, r.digest) for r in fed._server.store.shards()] for fed in (plain, packed)]
    assert shards[0] == shards[1]
    for fed in (plain, packed):
        assert fed.verify(fed.unlearn("north", classes=["bird"])).exact
    assert packed.spent["north"].bytes_up < plain.spent["north"].bytes_up
    assert not list((packed.path / "server" / "incoming").iterdir())


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"splitwiper\[zstd\]"):
        Federation(tmp_path / "run", halves(), settings(transfer="zstd"))


def test_values_beyond_float16_are_an_error_with_a_remedy(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), replace(settings(codec="float16", clip=1e-9, lr=1e-9)))
    with pytest.raises(DataError, match="bfloat16"):
        fed.learn({"north": (1e7 * three()["north"][0], three()["north"][1])})


def test_another_codec_is_another_context(tmp_path: Path) -> None:
    Federation(tmp_path / "run", halves(), settings(codec="int8"))
    with pytest.raises(ConfigError, match=r"client\.codec is 'int8', given 'int4'"):
        Federation(tmp_path / "run", halves(), settings(codec="int4"))


@pytest.mark.parametrize("codec", CODECS)
def test_nothing_to_predict(tmp_path: Path, codec: str) -> None:
    fed = learned(tmp_path / "run", settings(codec=codec))
    assert fed.predict("north", np.empty((0, 6), np.float32)) == []


class Wide(nn.Module):
    """A layer whose activations are not float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("codec", CODECS)
def test_cuts_of_other_floats(tmp_path: Path, codec: str, dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(6, 8), Wide(dtype), nn.Linear(8, 3).to(dtype))
    fed = Federation(tmp_path / "run", split(model, at="1", example=torch.zeros(1, 6)), settings(codec=codec))
    fed.learn(three())
    receipt = fed.unlearn("north", classes=["bird"])
    assert fed.verify(receipt).exact and len(fed.predict("north", three()["north"][0])) == 30
