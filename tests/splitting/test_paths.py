"""Branches on data: what the examples show is what is known."""

import pytest
import torch
from torch import Tensor, nn

from splitting.zoo import Gated, vectors
from splitwiper.splitting import CutWarning, split
from splitwiper.splitting.trees import same


def test_a_path_not_taken_is_given_away_with_a_warning() -> None:
    up = vectors(2).abs()
    with pytest.warns(CutWarning, match=r"never uses negative.weight, negative.bias"):
        halves = split(Gated(), "mid", up, allow_data_dependent=True)
    assert "negative.weight" in halves.client.state_dict()


def test_several_examples_take_several_paths() -> None:
    model, up = Gated(), vectors(2).abs()
    halves = split(model, "mid", [up, -up], allow_data_dependent=True)
    assert halves.warnings == ()
    for inputs in (up, -up):
        assert same(halves.server(halves.client(inputs)), model(inputs))


class Depth(nn.Module):
    """Skips a layer by chance, in its own code before the cut."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.out = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if not self.training or torch.rand(()) > 0.5:
                x = layer(x)
        return self.out(x)


def test_chance_before_the_cut_does_not_shift_the_generator_after_it() -> None:
    model = Depth()
    with pytest.warns(CutWarning, match="random"):
        halves = split(model, "out.0", vectors(1), allow_data_dependent=True)
    for seed in range(5):
        inputs = vectors(3)
        torch.manual_seed(seed)
        expected = model(inputs)
        torch.manual_seed(seed)
        assert same(halves.server(halves.client(inputs)), expected)
