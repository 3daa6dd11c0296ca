"""The loss, the optimiser and the learning rate's schedule of a training: built in, or from outside the package.

`docs/how-to/extend.md` shows how to write one. What exactness requires of all three: what they return is a function of
only their arguments and settings. A loss or a schedule keeps nothing from one call to the next; what an optimiser
keeps is in ``state``, as tensors, since training is resumed from, checked against and committed to exactly that.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitwiper import extensions
from splitwiper.config import Recipe
from splitwiper.config.settings import part_path
from splitwiper.errors import ConfigError, TrainingError


class Loss(Protocol):
    """What training minimises: a class whose objects are called like this, or a function that takes its settings too.

    Nothing in it may be fitted to the labels or rows of more than the batch at hand.
    """

    def __call__(self, logits: Tensor, codes: Tensor, /) -> Tensor:
        """Return the mean loss of a batch's rows.

        Args:
            logits: one row of outputs per row of the batch, in float32; a column per label or code that is present.
            codes: the column that is right for each row, as int64.
        """
        ...


class Schedule(Protocol):
    """How the learning rate goes: a class whose objects are called like this, or a function that takes settings too."""

    def __call__(self, progress: float, /) -> float:
        """Return the factor of the learning rate when a fraction ``progress`` of all steps is done: 0 or more."""
        ...


def make_loss(recipe: Recipe, device: torch.device) -> Loss:
    """Return the loss that a recipe names."""
    path = part_path(recipe, "loss")
    if not path:
        return functional.cross_entropy
    loss = extensions.make(path, recipe.loss_args)
    if isinstance(loss, nn.Module):
        loss.to(device)  # for constants such as class weights
    return partial(_checked_loss, loss, path)


def _checked_loss(loss: Loss, path: str, logits: Tensor, codes: Tensor) -> Tensor:
    """Compute a loss from outside. Its faults are not the rows': nobody's shard is set aside because of them."""
    try:
        mean = loss(logits, codes)
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:
        raise TrainingError(f"the loss {path} failed ({type(problem).__name__}: {problem}).") from problem
    if not (isinstance(mean, Tensor) and mean.shape == () and mean.is_floating_point() and mean.requires_grad):
        raise TrainingError(
            f"the loss {path} must return the mean over the rows: one number, computed from the logits."
        )
    return mean


def make_schedule(recipe: Recipe) -> Schedule:
    """Return the schedule that a recipe names."""
    path = part_path(recipe, "schedule")
    if path:
        return partial(_checked_factor, extensions.make(path, recipe.schedule_args), path)
    return {"cosine": cosine, "onecycle": one_cycle, "constant": constant}[recipe.schedule]


def _checked_factor(schedule: Schedule, path: str, progress: float) -> float:
    factor = schedule(progress)
    if not isinstance(factor, int | float) or not 0 <= factor < math.inf:
        raise ConfigError(f"the schedule {path} returned {factor!r} at {progress:.3f}; it must be a number ≥ 0.")
    return float(factor)


def constant(progress: float) -> float:
    """Keep the learning rate."""
    return 1.0


def cosine(progress: float) -> float:
    """Lower the learning rate to zero, along half a cosine.

    >>> cosine(0.0), cosine(0.5), cosine(1.0)
    (1.0, 0.5, 0.0)
    """
    return 0.5 * (1 + math.cos(math.pi * progress))


def one_cycle(progress: float) -> float:
    """Raise the learning rate over the first 30 %, and lower it to zero over the rest."""
    if progress < 0.3:
        return 0.04 + 0.96 * progress / 0.3
    return 0.5 * (1 + math.cos(math.pi * (progress - 0.3) / 0.7))


def make_optimizer(net: nn.Module, recipe: Recipe, *, rate: Tensor | None = None) -> torch.optim.Optimizer:
    """Return the optimiser that a recipe names, over the trainable parameters.

    ``rate`` is a learning rate on the GPU that a captured graph reads; the update is then one fused kernel. An
    optimiser from outside gets none, since nothing is known of what it does in Python.
    """
    parameters = [p for p in net.parameters() if p.requires_grad]
    if path := part_path(recipe, "optimizer"):
        kind = extensions.load(path)
        if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)) or rate is not None:
            raise ConfigError(f"optimizer = {path!r} cannot be used here: it must be a torch.optim.Optimizer, eager.")
        made: torch.optim.Optimizer = extensions.make(path, recipe.optimizer_args, params=parameters, lr=recipe.lr)
        return made
    options: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if rate is not None:
        options |= {"lr": rate, "fused": True}
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=recipe.momentum, nesterov=recipe.momentum > 0, **options)
    if rate is not None:
        options["capturable"] = True  # Adam's count of steps must then be a tensor on the GPU, too
    adam = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    return adam(parameters, betas=(recipe.momentum, 0.999), **options)


def kept_tensors(recipe: Recipe) -> tuple[str, ...] | None:
    """Return the names of the tensors that an optimiser keeps for each parameter; None if nothing is known of it."""
    if part_path(recipe, "optimizer"):
        return None
    if recipe.optimizer == "sgd":
        return ("momentum_buffer",) if recipe.momentum else ()
    return ("step", "exp_avg", "exp_avg_sq")
