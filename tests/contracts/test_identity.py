"""What a part from outside computes is part of the context: other code is never taken for the same."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from contracts import MODES, OUTSIDE
from federation.runs import halves, settings, three
from splitwiper import ClientConfig, Config, Federation, ServerConfig
from splitwiper.config import Masking, config_digest, from_dict, read_toml, to_toml
from splitwiper.errors import ConfigError, DataError, InputError
from splitwiper.extensions import load, origin, path_of
from splitwiper.masking.modes import expand
from splitwiper.masking.sealing import GroupKey
from splitwiper.wire import Column, Label, open_shard, write_shard
from splitwiper.wire.codecs import prepare
from splitwiper.wire.shard_check import check_shard

LOSS = """from torch.nn import functional
SCALE = 1.0
calls = []

def times(value):
    return SCALE * value

def scaled(logits, codes):
    # a remark
    return times(functional.cross_entropy(logits, codes))
"""
CODEC = """import torch
from splitwiper.wire.codecs import FloatCodec

class Half(FloatCodec):
    def __init__(self):
        super().__init__("F16", torch.float16)

    def encode(self, values, column, fitted):
        return super().encode(values * 1.0, column, fitted)
"""


class Module:
    """A file that is imported, and changed."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "own_parts.py"
        self.module: ModuleType | None = None

    def write(self, text: str) -> None:
        self.file.write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        if self.module is None:
            self.module = importlib.import_module("own_parts")
        else:
            sys.modules.pop("own_parts")
            for compiled in self.file.parent.glob("__pycache__/*"):
                compiled.unlink()
            self.module = importlib.import_module("own_parts")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield Module(folder)
    sys.modules.pop("own_parts", None)


def config(**server: Any) -> Config:
    plain = settings()
    return Config(seed=5, client=plain.client, server=ServerConfig(epochs=2, batch=16, **server))


@pytest.mark.parametrize(
    ("old", "new"),
    [("SCALE = 1.0", "SCALE = 1.5"), ("SCALE * value", "SCALE + value"), ("cross_entropy(", "multi_margin_loss(")],
)
def test_a_changed_loss_is_refused(tmp_path: Path, module: Module, old: str, new: str) -> None:
    module.write(LOSS)
    with_loss = config(loss="own_parts:scaled")
    fed = Federation(tmp_path / "run", halves(), with_loss)
    fed.learn(three())
    receipt = fed.unlearn("north", classes=["bird"])
    assert fed.verify(receipt).exact
    module.write(LOSS.replace(old, new))
    with pytest.raises(InputError, match="own_parts:scaled"):  # of the run that is open
        fed.verify(receipt)
    with pytest.raises(InputError, match="the code or the version of own_parts:scaled"):
        Federation(tmp_path / "run", halves())
    module.write(LOSS.replace("# a remark", "# another remark"))  # which is not code
    assert Federation(tmp_path / "run", halves()).verify(receipt).exact


def test_a_loss_that_keeps_something_is_refused(tmp_path: Path, module: Module) -> None:
    module.write(LOSS.replace("    # a remark", "    calls.append(1)"))
    fed = Federation(tmp_path / "run", halves(), config(loss="own_parts:scaled"))
    fed.learn(three())
    with pytest.raises(InputError, match="must not change its own code, attributes or globals"):
        fed.verify()


def test_a_changed_codec_is_refused(tmp_path: Path, module: Module) -> None:
    module.write(CODEC)
    fed = Federation(tmp_path / "run", halves(), settings(codec="own_parts:Half"))
    fed.learn(three())
    assert fed.verify(fed.unlearn("north", classes=["bird"])).exact
    module.write(CODEC.replace("* 1.0", "* 0.5"))
    with pytest.raises(InputError, match="own_parts:Half"):
        fed.verify()
    with pytest.raises(InputError, match="own_parts:Half"):
        Federation(tmp_path / "run", halves())


def test_a_changed_mode_is_another_codebook(module: Module, tmp_path: Path) -> None:
    module.write("from ward_parts.modes import Striped\n\nclass Own(Striped):\n    pass\n")
    key, labels = GroupKey.of("a secret of sixteen or more", federation="f"), [Label("", "a"), Label("", "b")]
    masking = Masking(mode="own_parts:Own")
    one = expand(labels, key, masking)
    assert expand(labels, key, Masking(mode="own_parts:Own", mode_args={"stripes": 2})).id != one.id
    fed = Federation(tmp_path / "run", halves(), settings(masking=masking))
    fed.learn(three())
    module.write("from ward_parts.modes import Striped\n\nclass Own(Striped):\n    more = 1\n")
    assert expand(labels, key, masking).id != one.id
    with pytest.raises(InputError, match="own_parts:Own"):
        Federation(tmp_path / "run", halves())


def test_names_and_paths_are_the_same_part() -> None:
    assert path_of("splitwiper.codecs", "logarithmic") == "ward_parts.codecs:Logarithmic"
    assert ClientConfig(codec="logarithmic").encoding == ClientConfig(codec="ward_parts.codecs:Logarithmic").encoding
    found = origin("ward_parts.codecs:Logarithmic", {"reach": 2.0})
    assert found.version == "ward-parts 1.4" and str(found).startswith('ward_parts.codecs:Logarithmic {"reach":2.0} ')
    with pytest.raises(ConfigError, match="cannot be imported"):
        load("ward_parts.codecs:Nothing")


def test_a_recorded_codec_must_be_what_is_installed() -> None:
    told = ClientConfig(codec="logarithmic").encoding
    assert prepare(told) == told
    with pytest.raises(ConfigError, match=r"is not what this was made with.*\n.*then: .*1\.3\n"):
        prepare(told.replace("ward-parts 1.4", "ward-parts 1.3"))


def test_settings_with_parts_survive_toml(tmp_path: Path) -> None:
    given = ClientConfig(codec="logarithmic", codec_args={"reach": 5.0}, masking=MODES[OUTSIDE], loss="focal")
    (tmp_path / "c.toml").write_text(to_toml(given))
    assert from_dict(ClientConfig, read_toml(tmp_path / "c.toml")) == given
    others = [ClientConfig(codec="logarithmic", codec_args={"reach": 6.0}), ClientConfig(), ClientConfig(loss="focal")]
    assert len({config_digest(one, seed=0) for one in (given, *others)}) == 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"codec": "in8"}, "Did you mean 'int8'"),
        ({"codec": "a b:c"}, "is not one of"),
        ({"loss": "focl"}, "Did you mean 'focal'"),
        ({"codec_args": {"reach": 1}}, "codec_args is not for codec = 'none'"),
        ({"codec": "logarithmic", "codec_args": {"reach": float("nan")}}, "cannot be written"),
        ({"optimizer": "torch.optim:RMSprop", "momentum": 0.5}, "put it into optimizer_args"),
    ],
)
def test_settings_that_cannot_be_meant(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ClientConfig(**given)


def test_masking_of_another_kind_has_settings_of_its_own() -> None:
    with pytest.raises(ConfigError, match="gamma is not for mode = 'striped'"):
        Masking(mode="striped", gamma=2)


@pytest.mark.parametrize("told", ["never_imported:Codec {} 00", "never_imported:Codec", "os:system {}"])
def test_a_shard_cannot_name_what_is_imported(tmp_path: Path, told: str) -> None:
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    file, column = io.BytesIO(), Column("x", "F32", (1,))
    block = {"x": np.zeros((2, 1), np.float16)}, np.zeros(2, np.int32)
    write_shard(file, columns=[column], rows=2, labels=[Label("", "a")], blocks=[block], codec="float16")
    raw = file.getvalue()
    size = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + size].rstrip().replace(b'"codec":"float16"', b'"codec":"%b"' % told.encode())
    header += b" " * (-(8 + len(header)) % 64)
    (tmp_path / "shard").write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + size :])
    opened = open_shard(tmp_path / "shard")
    for encoding in ("none", "float16"):
        with pytest.raises(DataError, match="coded as"):
            check_shard(opened, [column], encoding)
    with pytest.raises(ConfigError, match="not a codec of this federation"):
        check_shard(opened, [column], told)
    assert "never_imported" not in sys.modules
