"""One step of training: decode a batch, forward, backward, update. On a GPU the whole step becomes one CUDA graph.

The graph replays the very kernels of the eager step, so both give the same bits. What cannot be captured stays eager: a
net that looks at its data from Python, or draws from a generator on the CPU. Nobody can notice a net that counts its
steps in Python, or keeps tensors from one step to the next: such a net belongs on the CPU.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from splitwiper.cache import CODE, Parts
from splitwiper.config import Recipe
from splitwiper.errors import TrainingError

_log = logging.getLogger("splitwiper")
_lost = 0
"""Captures that failed. Each takes the GPU's generator from under the graphs that were made before."""
_WARM = 2
"""Eager steps for each batch size before its graph is captured: libraries set themselves up in them."""


class Step:
    """Trains on one batch at a time, and adds up the loss."""

    def __init__(
        self,
        net: nn.Module,
        decode: Callable[[Parts], dict[str, Tensor]],
        recipe: Recipe,
        device: torch.device,
        *,
        what: str,
        graphs: bool,
    ) -> None:
        self._net, self._decode, self._recipe, self._device, self._what = net, decode, recipe, device, what
        self._layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        net.to(memory_format=self._layout)  # type: ignore[call-overload]
        self._rate = torch.zeros((), device=device) if device.type == "cuda" else None
        self._optimizer = make_optimizer(net, recipe, rate=self._rate)
        # eager steps of an optimiser that could be captured are meant; torch would warn of them
        self._optimizer._warned_capturable_if_run_uncaptured = True
        self.total = torch.zeros((), device=device)  # the sum of the rows' losses
        self._graphs: dict[int, torch.cuda.CUDAGraph] | None = {} if graphs and device.type == "cuda" else None
        self._seen: dict[int, int] = {}
        self._lost = _lost

    def __call__(self, parts: Parts, rate: float) -> None:
        """Train on a batch with a learning rate."""
        if self._rate is None:
            for group in self._optimizer.param_groups:
                group["lr"] = rate
        else:
            self._rate.fill_(rate)
        size = len(parts[CODE])
        if self._graphs and self._lost != _lost:
            self._graphs, self._lost = {}, _lost
        if self._graphs is not None and size not in self._graphs:
            self._seen[size] = self._seen.get(size, 0) + 1
            if self._seen[size] > _WARM:
                self._capture(parts, size)
        if self._graphs is not None and size in self._graphs:
            self._graphs[size].replay()
        else:
            self._eager(parts)

    def _eager(self, parts: Parts) -> None:
        recipe, codes = self._recipe, parts[CODE]
        self._optimizer.zero_grad(set_to_none=True)
        half = recipe.precision == "bfloat16"
        # no cache of casts: it would outlive the step, and the weights with it
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=half, cache_enabled=False):
            logits = self._logits(self._decode(parts), len(codes))
            loss = functional.cross_entropy(logits.float(), codes)
        loss.backward()
        if recipe.clip:
            nn.utils.clip_grad_norm_(self._net.parameters(), recipe.clip)
        self._optimizer.step()
        self.total += loss.detach() * len(codes)

    def _logits(self, tensors: dict[str, Tensor], rows: int) -> Tensor:
        """The net's outputs. On a GPU maps have channels innermost, unless the net insists on their order."""
        try:
            logits: Tensor = self._net(laid_out(tensors, self._layout))
            return logits
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, IndexError) as problem:
            if self._layout is torch.channels_last and "view" in str(problem):
                self._layout = torch.contiguous_format
                self._net.to(memory_format=self._layout)  # type: ignore[call-overload]
                return self._logits(tensors, rows)
            raise TrainingError(f"{self._what}: a batch of {rows} rows could not be computed ({problem}).") from problem

    def _capture(self, parts: Parts, size: int) -> None:
        """Record the step for batches of one size; nothing is computed."""
        graphs = self._graphs or {}
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(graphs.values())).pool() if graphs else None
        global _lost
        noise, drawn = torch.cuda.get_rng_state(self._device), _cpu_generators()
        try:
            # only this thread is recorded: the one that reads ahead goes on copying
            with torch.cuda.graph(
                graph, pool=pool, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
            ):
                self._eager(parts)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TrainingError) as problem:
            _restore(self._device, noise)
            _lost += 1
            _log.warning("%s: the step cannot be captured in a CUDA graph, and runs eagerly (%s).", self._what, problem)
            self._graphs = None
            return
        if not _same(drawn, _cpu_generators()):  # the graph would replay one draw for ever
            random.setstate(drawn[0])
            np.random.set_state(drawn[1])
            torch.set_rng_state(drawn[2])
            _log.warning("%s: the net draws random numbers on the CPU, so steps run eagerly.", self._what)
            self._graphs = None
            return
        self._graphs, self._lost = {**graphs, size: graph}, _lost


def laid_out(tensors: Mapping[str, Tensor], layout: torch.memory_format) -> dict[str, Tensor]:
    """Tensors in memory as a net likes them: maps in a layout, all others row by row."""
    return {
        name: _strided(tensor, layout) if tensor.ndim == 4 else tensor.contiguous() for name, tensor in tensors.items()
    }


def _strided(maps: Tensor, layout: torch.memory_format) -> Tensor:
    """Maps in a layout, with the strides that belong to it: torch leaves those of dimensions of one as they came."""
    _, channels, height, width = maps.shape
    row = channels * height * width
    strides = (row, 1, width * channels, channels)
    if layout is torch.contiguous_format:
        strides = (row, height * width, width, 1)
    return maps.contiguous(memory_format=layout).as_strided(maps.shape, strides)


def _cpu_generators() -> tuple[Any, Any, Tensor]:
    """Where the CPU's generators stand: Python's, NumPy's and torch's."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _same(one: tuple[Any, Any, Tensor], other: tuple[Any, Any, Tensor]) -> bool:
    arrays = all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    return one[0] == other[0] and arrays and torch.equal(one[2], other[2])


def _restore(device: torch.device, noise: Tensor) -> None:
    """Give the GPU's generator a fresh state: a capture that failed leaves it believing that it is being captured."""
    fresh = torch.Generator(device)
    fresh.set_state(noise)
    number = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.default_generators[number].graphsafe_set_state(fresh.graphsafe_get_state())


def make_optimizer(net: nn.Module, recipe: Recipe, *, rate: Tensor | None = None) -> torch.optim.Optimizer:
    """The optimiser a recipe names, over the parameters that train.

    Args:
        net: what to train.
        recipe: how.
        rate: a learning rate on the GPU that a captured graph reads; the update is one fused kernel then.
    """
    parameters = [p for p in net.parameters() if p.requires_grad]
    fused: dict[str, Any] = {"lr": recipe.lr if rate is None else rate}
    if rate is not None:
        fused["fused"] = True
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            parameters,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.momentum > 0,
            **fused,
        )
    if rate is not None:
        fused["capturable"] = True
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, betas=(recipe.momentum, 0.999), weight_decay=recipe.weight_decay, **fused)
