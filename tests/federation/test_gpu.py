"""Exactness on a GPU : deterministic algorithms, two equal runs, unlearned equals never-had."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from federation.runs import Table, assert_same, recomputed, settings, without
from splitwiper import Config, Federation, ModelConfig, split
from splitwiper.models import digits_cnn
from splitwiper.server import Server
from splitwiper.store import ServerStore

pytestmark = pytest.mark.gpu


def images(seed: int, rows: int) -> Table:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(rows, 1, 8, 8)).astype(np.float32), np.arange(rows) % 4


def on_gpu(config: Config) -> Config:
    return replace(config, server=replace(config.server, device="cuda"), client=replace(config.client, device="cuda"))


@pytest.mark.parametrize("slices", [1, 3])
def test_unlearned_equals_never_had_on_a_gpu(tmp_path: Path, slices: int) -> None:
    torch.manual_seed(0)
    halves = split(digits_cnn(), at="stem", example=torch.zeros(1, 1, 8, 8))
    data = {"north": images(1, 300), "south": images(2, 200)}
    had = Federation(tmp_path / "had", halves, on_gpu(settings(slices=slices)))
    had.learn(data)
    again = had.twin(tmp_path / "again")
    again.learn(data)
    assert_same(had, again)
    never = had.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], data["north"][1] != 3)})
    receipt = had.unlearn("north", classes=[3])
    assert_same(had, never)
    assert had.verify(receipt).exact and had.verify().exact
    assert receipt.fingerprint["server"]["device"].startswith("cuda")


@pytest.mark.parametrize("codec", ["none", "int4"])
def test_half_precision_and_codes_are_exact_too(tmp_path: Path, codec: str) -> None:
    torch.manual_seed(0)
    halves = split(digits_cnn(), at="stem", example=torch.zeros(1, 1, 8, 8))
    base = on_gpu(settings(codec=codec))
    config = replace(
        base,
        server=replace(base.server, precision="bfloat16"),
        client=replace(base.client, precision="bfloat16"),
    )
    data = {name: images(seed, rows) for name, seed, rows in (("north", 1, 300), ("south", 2, 200), ("west", 3, 90))}
    had = Federation(tmp_path / "had", halves, config)
    had.learn(data)
    never = had.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], data["north"][1] != 3)})
    receipt = had.unlearn("north", classes=[3])
    assert_same(had, never)
    assert had.verify(receipt).exact and had.verify().exact
    assert had.predict("south", data["south"][0][:5]) == never.predict("south", data["south"][0][:5])


def test_verified_by_another_process(tmp_path: Path) -> None:
    config = on_gpu(settings())
    model = ModelConfig(factory="splitwiper.models:digits_cnn", at="stem", inputs={"x": "float32[1,8,8]"})
    Federation(tmp_path / "run", config=replace(config, model=model)).learn({"north": images(1, 100)})
    code = f"from splitwiper import Federation; print(Federation({str(tmp_path / 'run')!r}).verify().outcome)"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CUBLAS")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "exact"


def test_client_on_the_gpu_server_on_the_cpu(tmp_path: Path) -> None:
    torch.manual_seed(0)
    halves = split(digits_cnn(), at="stem", example=torch.zeros(1, 1, 8, 8))
    config = settings()
    config = replace(config, client=replace(config.client, device="cuda"))
    fed = Federation(tmp_path / "run", halves, config)
    fed.learn({"north": images(1, 300)})
    x = [images(seed, 250)[0] for seed in range(5)]
    first = [fed.predict_proba("north", one) for one in x]
    again = [fed.predict_proba("north", one) for one in reversed(x)][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("server", [{}, {"optimizer": "adamw", "lr": 0.01, "precision": "bfloat16"}])
def test_a_transcript_on_a_gpu(tmp_path: Path, server: dict[str, object]) -> None:
    torch.manual_seed(0)
    halves = split(digits_cnn(), at="stem", example=torch.zeros(1, 1, 8, 8))
    data = {"north": images(1, 300), "south": images(2, 200)}
    models = []
    for transcript in (True, False):
        config = on_gpu(settings(keys="seeded"))
        config = replace(config, server=replace(config.server, epochs=3, transcript=transcript, **server))
        fed = Federation(tmp_path / str(transcript), halves, config)
        fed.learn(data)
        one = Server(ServerStore(fed.path / "server"), halves.server)
        models.append(one.store.model().digest)
        if transcript:
            checks = recomputed(one, 1, 2, 3)
            assert all(check.exact for check in checks), checks
    assert models[0] == models[1]
