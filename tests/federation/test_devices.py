"""A device that is asked for and absent: said at once, and nothing is made or kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from federation.runs import halves, learned, settings, three
from splitwiper import Federation
from splitwiper.errors import ConfigError

absent = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@absent
@pytest.mark.parametrize("side", ["client", "server"])
def test_a_gpu_that_is_not_there(tmp_path: Path, side: str) -> None:
    config = settings()
    config = replace(config, **{side: replace(getattr(config, side), device="cuda")})
    with pytest.raises(ConfigError, match="torch sees no GPU; continue where there is one"):
        Federation(tmp_path / "run", halves(), config)
    assert not (tmp_path / "run").exists()


@absent
def test_a_run_made_on_a_gpu_predicts_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(data)
    answers = fed.predict("north", data["north"][0])
    texts = [tmp_path / "run" / "federation.toml", *(tmp_path / "run").glob("**/config.toml")]
    for path in texts:  # as if it had been made there
        path.write_text(path.read_text().replace('device = "cpu"', 'device = "cuda"'))
    monkeypatch.setattr("splitwiper.client.client.Client._check_store", lambda self: None)
    monkeypatch.setattr("splitwiper.federation.federation.check_settings", lambda *_: None)
    moved = Federation(tmp_path / "run", halves())
    assert moved.config.server.device == "cuda"
    assert moved.predict("north", data["north"][0]) == answers
    for work in (lambda: moved.learn(data), moved.settle):
        with pytest.raises(ConfigError, match="torch sees no GPU"):
            work()


@absent
def test_verifying_a_gpu_run_without_one_is_not_comparable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = learned(tmp_path / "run")

    def gone(name: str) -> torch.device:
        raise ConfigError(f"device {name!r} was asked for, but torch sees no GPU")

    for place in ("federation.verify", "server.server"):
        monkeypatch.setattr(f"splitwiper.{place}.pick_device", gone)
    assert fed.verify().outcome == "not_comparable"


@absent
def test_forgetting_without_the_gpu_says_so_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = learned(tmp_path / "run")
    monkeypatch.setattr(fed, "config", replace(fed.config, server=replace(fed.config.server, device="cuda")))
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        fed.unlearn("north", classes=["bird"])
    assert "bird" in fed.rows("north").values()
