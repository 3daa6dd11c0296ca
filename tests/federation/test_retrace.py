"""The server's training, looked at epoch by epoch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from federation.runs import halves, settings, state_of, three
from splitwiper import Federation
from splitwiper.config import Masking, Noise
from splitwiper.errors import InputError, NotFoundError
from splitwiper.federation.retrace import Traced
from splitwiper.models import mlp
from splitwiper.splitting import split
from splitwiper.wire import Label

PLUS = {
    "masking": Masking(mode="duplicate", gamma=2),
    "noise": Noise(mechanism="laplace", epsilon=50.0, clip=5.0, reading="value"),
    "codec": "int8",
}


@pytest.mark.parametrize("client", [{}, PLUS], ids=["plain", "hidden"])
def test_the_last_epoch_is_the_model_in_use(client: dict[str, object], tmp_path: Path) -> None:
    config = settings(**client)
    config = dataclasses.replace(config, server=dataclasses.replace(config.server, epochs=12, lr=0.3))
    federation = Federation(tmp_path / "run", halves(), config)
    federation.learn(three())
    before = state_of(tmp_path / "run")
    traced = federation.retrace(three())
    assert len(traced) == 12 and traced[0].changed == 1
    assert traced[-1].evaluation == federation.evaluate(three())
    assert traced[0].evaluation != traced[-1].evaluation
    assert all(0 <= one.changed <= 1 for one in traced) and any(one.changed < 1 for one in traced)
    assert state_of(tmp_path / "run") == before


def test_dropout_and_batch_norm_are_as_in_use(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = mlp(6, 3, hidden=12, cut=8)
    net.body = torch.nn.Sequential(net.body, torch.nn.BatchNorm1d(12), torch.nn.Dropout(0.4))
    federation = Federation(tmp_path / "run", split(net, at="stem", example=torch.zeros(2, 6)), settings(keys="seeded"))
    federation.learn(three())
    assert federation.retrace(three())[-1].evaluation == federation.evaluate(three())  # and the same bits, or it raises


def test_nothing_to_retrace(tmp_path: Path) -> None:
    federation = Federation(tmp_path / "run", halves(), settings())
    with pytest.raises(NotFoundError, match="learn first"):
        federation.retrace(three())


def test_another_training_is_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path / "run", halves(), settings())
    federation.learn(three())
    monkeypatch.setattr(federation._server, "seed", 6)
    with pytest.raises(InputError, match="gives another model"):
        federation.retrace(three())


def test_changes_are_counted_over_all_clients() -> None:
    a, b = Label("", "a"), Label("", "b")
    before = {"north": ((a, a), (a, b)), "south": ((b, b), (a, a))}
    now = {"north": ((a, a), (a, a)), "south": ((b, b), (b, a))}
    found = Traced.of(now, before)
    assert found.changed == 0.5 and found.evaluation.accuracy == pytest.approx(np.mean([1, 1, 1, 0]))
