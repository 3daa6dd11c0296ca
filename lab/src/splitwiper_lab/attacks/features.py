"""Rows as short vectors: pooled activations, and the outputs of the server half's layers at several depths."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from splitwiper.splitting import ServerHalf

WIDTH = 1024
"""The most numbers kept of a row's activations."""
DEEP = 512
"""The most numbers kept of a layer's output."""


def pooled(values: Tensor, most: int) -> Tensor:
    """Reduce rows to at most ``most`` numbers each: average maps and sequences over regions, project the rest.

    >>> pooled(torch.zeros(2, 64, 32, 32), 1024).shape, pooled(torch.zeros(2, 5000), 64).shape
    (torch.Size([2, 1024]), torch.Size([2, 64]))
    """
    values = values.float()
    if values[0].numel() <= most:
        return values.flatten(1)
    if values.ndim == 4:  # channels × height × width
        side = max(1, int((most / values.shape[1]) ** 0.5))
        values = functional.adaptive_avg_pool2d(values, (min(side, values.shape[2]), min(side, values.shape[3])))
    elif values.ndim == 3:  # positions × channels
        kept = max(1, min(values.shape[1], most // values.shape[2]))
        values = functional.adaptive_avg_pool1d(values.transpose(1, 2), kept)
    values = values.flatten(1)
    if values.shape[1] <= most:
        return values
    # a random projection keeps distances, and needs no fitting; the same width gets the same one in every block
    generator = torch.Generator().manual_seed(values.shape[1])
    chosen = torch.randn(values.shape[1], most, generator=generator) / most**0.5
    return torch.mm(values, chosen.to(values.device))


def activations(boundary: Mapping[str, Tensor]) -> Tensor:
    """Return the tensors at the cut as one short vector per row; masks and other integers are left out."""
    floats = list(filter(torch.is_floating_point, boundary.values()))
    parts = []
    if not floats:  # only integers cross the cut
        floats = list(map(Tensor.float, boundary.values()))
    for tensor in floats:
        values = tensor if tensor.ndim > 1 else tensor[:, None]
        parts.append(pooled(values, WIDTH // len(floats)))
    return torch.cat(parts, dim=1)


class Probe:
    """A copy of a trained server half that also returns the outputs of some of its layers, as many as ``depths``.

    A few rows of the boundary serve as an example, to find out which layers contribute something of their own.
    """

    def __init__(self, half: ServerHalf, device: torch.device, *, depths: int, example: Mapping[str, Tensor]) -> None:
        self._half = copy.deepcopy(half).eval().to(device)
        self.names = self._chosen(example, depths)

    def __call__(self, boundary: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the pooled outputs of the chosen layers, and the logits."""
        with self._recorded(set(self.names)) as outputs:
            logits = self._half.logits(boundary).float()
        return {name: pooled(outputs[name], DEEP) for name in self.names}, logits

    def _chosen(self, example: Mapping[str, Tensor], depths: int) -> list[str]:
        """Choose layers behind the cut, evenly spread, including the last one before the head."""
        with self._recorded(None) as outputs:
            logits = self._half.logits(example)
        before = [tensor.flatten(1) for tensor in example.values() if tensor.is_floating_point()]
        names: list[str] = []
        for name, output in outputs.items():
            flat = output.flatten(1)
            # Layers from before the cut, which the half may still contain, give all rows the same. A layer that changes
            # nothing (dropout, identity) repeats one before it, or the logits.
            differs = bool((flat != flat[:1]).any())
            repeats = any(flat.shape == other.shape and torch.equal(flat, other) for other in (*before[-2:], logits))
            if differs and not repeats:
                names.append(name)
                before.append(flat)
        # one more than asked for, without the first: it says least beyond the activations themselves
        places = np.unique(np.linspace(0, len(names) - 1, min(depths + 1, len(names))).round().astype(int))
        return [names[place] for place in places[-depths:]]

    @contextmanager
    def _recorded(self, wanted: set[str] | None) -> Iterator[dict[str, Tensor]]:
        """Record layers' outputs during one forward pass; None records all layers that have no layers inside."""
        outputs: dict[str, Tensor] = {}

        def record(name: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple | list) and output else output
            if isinstance(first, Tensor) and first.is_floating_point() and first.ndim > 1:
                outputs[name] = first

        with torch.no_grad(), ExitStack() as hooks:
            for name, module in self._half.named_modules():
                innermost = name and not list(module.children())
                if innermost and (wanted is None or name in wanted):
                    hooks.enter_context(module.register_forward_hook(partial(record, name)))
            yield outputs


def reduced(points: Tensor, most: int = 64, *, whiten: bool = False) -> Tensor:
    """Project rows onto at most ``most`` of their main axes; whitening gives all axes the same weight."""
    points = points - points.mean(0)
    # axes are fitted to a sample: all rows would cost time and memory, and hardly turn them
    sample = points[:: max(1, len(points) // 20_000)].double()
    values, axes = torch.linalg.eigh(sample.T @ sample / max(1, len(sample) - 1))
    order = values.argsort(descending=True)[: min(most, max(1, len(sample) - 1))]
    # axes without variance hold rounding errors, which whitening would blow up to the size of everything else
    order = order[values[order] > 1e-9 * values.max().clamp_min(1e-30)]
    axes = axes[:, order]
    if whiten:
        axes = axes / values[order].sqrt()
    return torch.mm(points, axes.to(points.dtype))
