"""Output layers with one row per label, each initialised from a stream keyed by its label.

A row depends only on its own label, so a label that nobody holds leaves no trace in any other row, and no output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from splitwiper.seeding import Stream
from splitwiper.splitting.output_layer import empty_linear
from splitwiper.wire import Label


def linear(inputs: int, outputs: int, generator: torch.Generator, dtype: torch.dtype) -> nn.Linear:
    """Return a linear layer initialised as in torch, but from a generator that nothing else draws from."""
    layer = empty_linear(inputs, outputs, bias=True, dtype=dtype)
    bound = 1 / math.sqrt(inputs) if inputs else 0.0
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer


def output_layer_for(
    labels: Sequence[Label],
    *,
    inputs: int,
    seed: int,
    purpose: str,
    bias: bool = True,
    dtype: torch.dtype = torch.float32,
    known: Mapping[Label, tuple[Tensor, Tensor | None]] | None = None,
) -> nn.Linear:
    """Return a linear layer with one row per label, in this order.

    Each row is drawn from a stream that ``purpose`` and its label name, unless it is among the ``known`` ones.
    """
    layer = empty_linear(inputs, len(labels), bias=bias, dtype=dtype)
    bound = 1 / math.sqrt(inputs) if inputs else 0.0
    with torch.no_grad():
        for row, label in enumerate(labels):
            if known and label in known:
                weight, shift = known[label]
            else:
                generator = Stream(seed, purpose, label.text).generator()
                weight = torch.empty(inputs, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
                shift = torch.empty((), dtype=torch.float32).uniform_(-bound, bound, generator=generator)
            layer.weight[row] = weight
            if layer.bias is not None and shift is not None:
                layer.bias[row] = shift
    return layer


def rows_of(layer: nn.Linear, labels: Sequence[Label]) -> dict[Label, tuple[Tensor, Tensor | None]]:
    """Return the rows of a layer by label, for `output_layer_for(known=…)`."""
    rows: dict[Label, tuple[Tensor, Tensor | None]] = {}
    for row, label in enumerate(labels):
        shift = None if layer.bias is None else layer.bias[row].detach().clone()
        rows[label] = layer.weight[row].detach().clone(), shift
    return rows
