"""The paper's networks in a federation: unlearned equals never-had, bit for bit, and what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from federation.runs import Table, assert_same, state_of, without
from splitwiper import ClientConfig, Config, Federation, Halves, ServerConfig, split
from splitwiper.errors import DataError
from splitwiper_lab.models import mini_bert, resnet18, vgg

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LENGTH, WORDS = 12, 60


def images(seed: int, rows: int, labels: tuple[str, ...], side: int = 32) -> Table:
    draw = np.random.default_rng(seed)
    names = np.array([labels[i % len(labels)] for i in range(rows)])
    return draw.integers(0, 256, (rows, 3, side, side), dtype=np.uint8), names


def texts(seed: int, rows: int, labels: tuple[str, ...], length: int = LENGTH) -> tuple[dict[str, np.ndarray], Any]:
    draw = np.random.default_rng(seed)
    mask = np.arange(length)[None] < draw.integers(3, length + 1, rows)[:, None]
    ids = np.where(mask, draw.integers(4, WORDS, (rows, length)), 0).astype(np.int32)
    return {"input_ids": ids, "attention_mask": mask}, images(0, rows, labels, side=1)[1]


def cut(make: Callable[..., torch.nn.Module], **args: object) -> Halves:
    torch.manual_seed(0)
    return split(make(**args), at="stem", example=torch.zeros(1, 3, 32, 32, dtype=torch.uint8))


def bert() -> Halves:
    torch.manual_seed(0)
    model = mini_bert(vocabulary=WORDS, length=LENGTH, hidden=16, layers=2, heads=2)
    example = {"input_ids": torch.ones(1, LENGTH, dtype=torch.int32), "attention_mask": torch.ones(1, LENGTH) > 0}
    return split(model, at="stem", example=example, shared=["attention_mask"])


def settings(device: str, **server: Any) -> Config:
    return Config(
        seed=5,
        server=ServerConfig(**{"epochs": 2, "batch": 32, "lr": 0.1, "schedule": "onecycle", "device": device} | server),
        client=ClientConfig(epochs=1, batch=16, slices=2, head_width=8, device=device),
    )


@pytest.mark.share(2)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("make", [vgg, resnet18])
def test_networks_for_images_forget(
    tmp_path: Path, make: Callable[..., torch.nn.Module], augment: bool, device: str
) -> None:
    data = {"north": images(1, 27, ("bird", "cat", "dog")), "south": images(2, 20, ("cat", "dog"))}
    had = Federation(tmp_path / "had", cut(make, width=4, augment=augment), settings(device))
    had.learn(data)
    before = state_of(had.path)
    never = had.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], data["north"][1] != "bird")})
    receipt = had.unlearn("north", classes=["bird"])
    assert_same(had, never)
    assert state_of(had.path)["model"] != before["model"]
    assert had.verify(receipt).exact and had.verify().exact
    assert "bird" not in had.predict("north", data["north"][0])


@pytest.mark.parametrize("device", DEVICES)
def test_a_small_bert_forgets_a_class_with_words_of_its_own(tmp_path: Path, device: str) -> None:
    inputs, labels = texts(1, 27, ("Sports", "World", "Business"))
    own = labels == "Sports"
    inputs["input_ids"][own] = np.where(inputs["attention_mask"][own], WORDS - 1, 0)
    inputs["input_ids"][own, 0] = np.arange(own.sum()) + 4  # nine texts, not one
    data = {"north": (inputs, labels), "south": texts(2, 20, ("World", "Business"))}
    had = Federation(tmp_path / "had", bert(), settings(device, optimizer="adamw", lr=1e-3, clip=1.0))
    had.learn(data)
    never = had.twin(tmp_path / "never")
    never.learn({**data, "north": ({k: v[~own] for k, v in inputs.items()}, labels[~own])})
    receipt = had.unlearn("north", classes=["Sports"])
    assert_same(had, never)
    assert had.verify(receipt).exact and had.verify().exact
    assert set(had.predict("south", data["south"][0])) <= {"World", "Business"}


def test_images_of_another_size_are_refused_before_training(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", cut(vgg, width=4), settings("cpu"))
    with pytest.raises(DataError, match="images are 3×28×28, this network takes 3×32×32: resize them"):
        fed.learn({"north": images(1, 9, ("bird", "cat"), side=28)})
    fed.learn({"north": images(1, 9, ("bird", "cat"))})
    with pytest.raises(DataError, match=r"rows of shape \[3, 28, 28\]"):
        fed.predict("north", images(1, 3, ("cat",), side=28)[0])


def test_texts_that_do_not_fit_are_refused_before_training(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", bert(), settings("cpu"))
    with pytest.raises(DataError, match=f"texts have {LENGTH + 1} tokens, the model takes {LENGTH}: encode them"):
        fed.learn({"north": texts(1, 9, ("World",), length=LENGTH + 1)})
    with pytest.raises(DataError, match=rf"into activation of shape \[{LENGTH - 1}, 16\], but the cut expects"):
        fed.learn({"north": texts(1, 9, ("World",), length=LENGTH - 1)})
    inputs, labels = texts(1, 9, ("World",))
    inputs["input_ids"][7, 2] = WORDS
    with pytest.raises(DataError, match=f"token id {WORDS} is outside the model's vocabulary of {WORDS}: encode"):
        fed.learn({"north": (inputs, labels)})
    assert not list((tmp_path / "run" / "clients").glob("*/slices/*"))
