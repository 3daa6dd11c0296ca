"""What both sides of split training share: modules that train together, and their optimiser.

The sides share no tensor and no graph; they exchange only messages. On a GPU, maps are in channels-last layout unless a
module requires the other, and layers compute in half precision if the recipe says so; what crosses the cut has the
cut's own type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitwiper.config import Recipe
from splitwiper.config.training import LOSSES
from splitwiper.errors import ConfigError, TrainingError
from splitwiper.training.parts import make_optimizer
from splitwiper.training.stepping import laid_out
from splitwiper_lab.baselines.meters import Meter
from splitwiper_lab.baselines.network import Network

FEATURES, TAUGHT, SHARE = "features", "taught/", "@share"
"""Message keys: the output of the server's part where clients hold the head, the prefix of teachers' tensors, and a
client's weight in the objective."""
_T = TypeVar("_T")
Loss = Callable[[Tensor, Tensor | None, Tensor, Tensor | None], Tensor]
"""Maps outputs, labels, the mask of rows to forget, and teachers' outputs to the mean loss."""


@dataclass(frozen=True)
class Objective:
    """A loss, and what it needs to know about rows.

    Attributes:
        loss: the loss of a client's rows in a batch.
        labels: whether the loss uses labels.
        marks: whether the loss uses the mask of rows to forget.
    """

    loss: Loss
    labels: bool = True
    marks: bool = False


@dataclass(frozen=True)
class Teachers:
    """Networks that are not trained: the preserver teaches rows that stay, the destroyer rows to forget."""

    preserver: Network
    destroyer: Network


class TrainingSide:
    """The modules of one side, with their optimiser and meter."""

    def __init__(self, parts: Sequence[nn.Module], recipe: Recipe, device: torch.device, meter: Meter) -> None:
        if recipe.loss not in LOSSES:
            raise ConfigError(f"baselines train only with {LOSSES[0]}, not with loss = {recipe.loss!r}.")
        self._recipe, self._device, self.meter = recipe, device, meter
        self._parts = nn.ModuleList(parts).train()
        self._layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        self._parts.to(memory_format=self._layout)  # type: ignore[call-overload]
        self._rate = torch.zeros((), device=device) if device.type == "cuda" else None
        self._optimizer: torch.optim.Optimizer | None = None
        trainable = map(attrgetter("requires_grad"), self._parts.parameters())
        if any(trainable):  # a part may have no trainable parameters
            self._optimizer = make_optimizer(self._parts, recipe, rate=self._rate)
            self._optimizer._warned_capturable_if_run_uncaptured = True  # eager steps are intended

    def set_rate(self, rate: float) -> None:
        """Set the learning rate for the following steps."""
        if self._rate is not None:
            self._rate.fill_(rate)  # the optimiser reads the rate from the GPU: no wait for it
        elif self._optimizer is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = rate

    def start_afresh(self) -> None:
        """Reset momentum and all other state of the optimiser."""
        if self._optimizer is not None:
            self._optimizer.state.clear()

    def _precision(self) -> torch.autocast:
        half = self._recipe.precision == "bfloat16"
        return torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=half, cache_enabled=False)

    def _computed(self, run: Callable[[dict[str, Tensor]], _T], tensors: Mapping[str, Tensor], whose: str) -> _T:
        """Run a module on tensors; if it fails with this memory layout, retry with the other.

        Raises:
            TrainingError: the module cannot process this batch.
        """
        rows = len(next(iter(tensors.values())))
        try:
            return run(laid_out(tensors, self._layout))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, IndexError) as problem:
            # a module that views its input needs rows one after another in memory; all later batches get that layout
            if self._layout is torch.channels_last and "view" in str(problem):
                self._layout = torch.contiguous_format
                self._parts.to(memory_format=self._layout)  # type: ignore[call-overload]
                return self._computed(run, tensors, whose)
            raise TrainingError(
                f"{whose} could not compute a batch of {rows} rows ({problem}).{_advice(str(problem))}"
            ) from problem

    def _update(self) -> None:
        if self._recipe.clip:
            nn.utils.clip_grad_norm_(self._parts.parameters(), self._recipe.clip)
        if self._optimizer is not None:
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)


def _advice(said: str) -> str:
    if "more than 1 value per channel" not in said:
        return ""
    return " Batch norm needs two rows at a time: take a larger batch, the other schedule, or leave the client out."


def selected(tensors: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Return the same rows of several tensors."""
    return {name: tensor[rows] for name, tensor in tensors.items()}


def plain(tensor: Tensor) -> Tensor:
    """Return a tensor as it crosses the cut: without history, floats in full precision."""
    return wide(tensor.detach())


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor in full precision."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def gradient_of(tensor: Tensor) -> Tensor:
    """Return the gradient that a backward pass left at a tensor; zeros if it did not reach the tensor."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _cross_entropy(logits: Tensor, codes: Tensor | None, gone: Tensor, taught: Tensor | None) -> Tensor:
    return functional.cross_entropy(logits, needed(codes))


def needed(tensor: Tensor | None) -> Tensor:
    """Return a tensor that the objective has requested, and is therefore present."""
    if tensor is None:
        raise TypeError("an objective looks at what it did not ask for.")
    return tensor


LEARN = Objective(_cross_entropy)
"""Learn to predict labels."""
