"""The networks at the paper's cut: the halves are the model, bit for bit, and clients hold the same in all of them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from splitwiper import Halves, split
from splitwiper.errors import ConfigError, DataError
from splitwiper_lab.models import mini_bert, resnet18, vgg

ROWS = 6


def images(rows: int = ROWS, kind: torch.dtype = torch.uint8, side: int = 32) -> torch.Tensor:
    pixels = torch.randint(0, 256, (rows, 3, side, side), generator=torch.Generator().manual_seed(1))
    return pixels.to(kind) if kind == torch.uint8 else pixels.to(kind) / 255


def texts(rows: int = ROWS, tokens: int = 9, vocabulary: int = 40) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    mask = torch.arange(tokens) < torch.randint(2, tokens + 1, (rows, 1), generator=draw)
    ids = torch.randint(1, vocabulary, (rows, tokens), generator=draw, dtype=torch.int32)
    return {"input_ids": ids * mask, "attention_mask": mask}


def bert(**changes: Any) -> nn.Module:
    return mini_bert(3, **{"vocabulary": 40, "length": 9, "hidden": 16, "layers": 3, "heads": 2} | changes)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "vgg": (lambda: vgg(width=4), images),
    "vgg, augmented": (lambda: vgg(width=4, augment=True), images),
    "resnet18": (lambda: resnet18(width=4), images),
    "resnet18, augmented": (lambda: resnet18(width=4, augment=True), images),
    "mini_bert": (bert, texts),
}


def cut(model: nn.Module, inputs: Any) -> Halves:
    """As the paper cuts it, without a warning: warnings are errors."""
    example = {k: v[:1] for k, v in inputs.items()} if isinstance(inputs, dict) else inputs[:1]
    return split(model, at="stem", example=example, shared=["attention_mask"] if isinstance(inputs, dict) else ())


def called(model: nn.Module, inputs: Any) -> Any:
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


@pytest.mark.parametrize("name", NETWORKS)
def test_split_equals_unsplit(name: str) -> None:
    """Outputs in both modes, gradients, and one step of training."""
    make, rows = NETWORKS[name]
    torch.manual_seed(0)
    model, inputs = make(), rows()
    halves = cut(model, inputs)
    client, server = halves.client, halves.server
    whole = copy.deepcopy(model)
    for training in (False, True):
        for module in (whole, client, server):
            module.train(training)
        torch.manual_seed(5)
        one = called(whole, inputs)
        torch.manual_seed(5)
        two = server.logits(called(client, inputs))
        assert torch.isfinite(one).all() and one.shape == (ROWS, whole.get_submodule("head").out_features)
        assert torch.equal(one, two)
    labels = torch.arange(ROWS) % 3
    parameters = dict(client.named_parameters()) | dict(server.named_parameters())
    assert parameters.keys() == dict(whole.named_parameters()).keys()
    for output, owned in ((one, whole.parameters()), (two, parameters.values())):
        optimizer = torch.optim.SGD(list(owned), lr=0.1, momentum=0.9, nesterov=True)
        functional.cross_entropy(output, labels).backward()
        optimizer.step()
    for key, value in whole.named_parameters():
        assert value.grad is not None and torch.isfinite(value.grad).all(), key
        assert torch.equal(value.grad, parameters[key].grad), key
        assert torch.equal(value, parameters[key]), key
    buffers = dict(client.named_buffers()) | dict(server.named_buffers())
    assert all(torch.equal(value, buffers[key]) for key, value in whole.named_buffers())


def test_clients_hold_the_same_in_both_networks() -> None:
    halves = [cut(make(), images()) for make in (vgg, resnet18)]
    states = [{k: v.shape for k, v in h.client.state_dict().items()} for h in halves]
    assert states[0] == states[1] and sum(shape.numel() for shape in states[0].values()) == 3 * 64 * 9 + 64
    assert all(h.boundary[0].shape == (64, 32, 32) for h in halves)
    assert 60e6 < halves[0].flops[1] < 300e6


def test_bytes_and_floats_are_the_same_picture() -> None:
    torch.manual_seed(0)
    model = vgg(width=4).eval()
    assert torch.equal(model(images()), model(images(kind=torch.float32)))


def test_the_mask_crosses_in_a_byte_per_token_and_padding_does_not_count() -> None:
    torch.manual_seed(0)
    model = bert().eval()
    inputs = texts()
    specs = {spec.name: spec for spec in cut(model, inputs).boundary}
    assert specs["attention_mask"].bytes_per_row == 9 and specs["attention_mask"].kind == "side"
    mask = inputs["attention_mask"]
    other = torch.where(mask, inputs["input_ids"], 7)  # another text under the padding
    assert torch.equal(model(other, mask), model(**inputs))
    assert torch.equal(model(other, mask.to(torch.int64)), model(**inputs))
    assert (model.stem(other, mask)[~mask] == 0).all()
    assert torch.isfinite(model(other, torch.zeros_like(mask))).all()  # no token at all


def test_the_same_seed_builds_the_same_network() -> None:
    for make, _ in NETWORKS.values():
        states = []
        for _ in range(2):
            torch.manual_seed(3)
            states.append(make().state_dict())
        assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())


@pytest.mark.parametrize("make", [vgg, resnet18])
def test_other_sizes_of_images(make: Callable[..., nn.Module]) -> None:
    model = make(width=4, channels=1, side=28)
    assert model(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)).shape == (2, 10)
    with pytest.raises(DataError, match="images are 3×32×32, this network takes 1×28×28: resize them"):
        model(images())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input_ids": torch.full((2, 9), 40)}, "token id 40 is outside the model's vocabulary of 40: encode"),
        ({"input_ids": torch.full((2, 9), -1)}, "token id -1 is outside"),
        ({k: v.repeat(1, 2) for k, v in texts(2).items()}, "texts have 18 tokens, the model takes 9: encode them"),
        ({"attention_mask": torch.ones(2, 5)}, r"input_ids have shape \[2, 9\] and attention_mask \[2, 5\]"),
    ],
)
def test_texts_that_do_not_fit(change: dict[str, torch.Tensor], words: str) -> None:
    with pytest.raises(DataError, match=words):
        bert()(**{**texts(2), **change})


def test_sizes_of_a_bert_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="layers = 1, hidden = 16, heads = 2"):
        bert(layers=1)
    with pytest.raises(ConfigError, match="hidden a multiple of heads"):
        bert(heads=3)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'splitwiper\[text\]'"):
        bert()
