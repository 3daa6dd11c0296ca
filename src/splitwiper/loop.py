"""The training loop, the same for client halves and the server half."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from splitwiper.cache import Cache, to_device
from splitwiper.config import Recipe
from splitwiper.errors import TrainingError
from splitwiper.numerics import pick_device, reproducible
from splitwiper.seeding import Stream, isolated_rng

OnEpoch = Callable[[int, int, float], None]
"""Called after each epoch with (epochs done, epochs in all, mean loss)."""


def fit(
    net: nn.Module,
    rows: Cache,
    recipe: Recipe,
    *,
    epochs: int,
    stream: Stream,
    what: str,
    on_epoch: OnEpoch | None = None,
) -> tuple[float, ...]:
    """Train ``net`` (tensors by name in, logits out) and return the mean loss of each epoch.

    Row order and dropout come from ``stream`` alone; the result is a pure function of the arguments, and of the
    numerics that `splitwiper.numerics.fingerprint` lists.

    Raises:
        TrainingError: the loss stopped being finite, or a layer could not take a batch.
    """
    device = pick_device(recipe.device)
    count = math.ceil(len(rows) / recipe.batch)
    losses: list[float] = []
    with reproducible(device, recipe.threads):
        net.to(device).train()
        optimizer = make_optimizer(net, recipe)
        for epoch in range(epochs):
            order, noise = (
                Stream(stream.seed, f"{stream.purpose}/{use}/{epoch}", stream.name, stream.content)
                for use in ("order", "noise")
            )
            # batches of equal size, give or take one: no straggler of a single row for batch norm to stumble over
            batches = np.array_split(order.permutation(len(rows)), count)
            total = torch.zeros((), device=device)
            with isolated_rng(noise):  # epoch by epoch, so that what on_epoch draws shifts nothing
                for number, index in enumerate(batches):
                    rate = recipe.lr * schedule(recipe.schedule, (epoch * count + number) / (epochs * count))
                    total += _step(net, rows, index, optimizer, rate, recipe, device, what) * len(index)
            mean = float(total) / len(rows)
            if not math.isfinite(mean):
                raise TrainingError(
                    f"{what}: the loss is {mean} after epoch {epoch + 1}. Lower lr ({recipe.lr:g}), set clip "
                    "(say 1.0), or scale the inputs (standardise = true), in a new run; in one that learned before, "
                    "forget the rows that were added last."
                )
            losses.append(mean)
            if on_epoch:
                on_epoch(epoch + 1, epochs, mean)
        net.eval()
    return tuple(losses)


def _step(
    net: nn.Module,
    rows: Cache,
    index: np.ndarray[tuple[int], np.dtype[np.int64]],
    optimizer: torch.optim.Optimizer,
    rate: float,
    recipe: Recipe,
    device: torch.device,
    what: str,
) -> Tensor:
    """One batch; its mean loss."""
    inputs, codes = rows.batch(index)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    try:
        logits = net(to_device(inputs, device))
    except (RuntimeError, ValueError, IndexError) as problem:
        raise TrainingError(f"{what}: a batch of {len(index)} rows could not be computed ({problem}).") from problem
    loss = functional.cross_entropy(logits, codes.to(device))
    loss.backward()
    if recipe.clip:
        nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
    optimizer.step()
    return loss.detach()


def schedule(name: str, progress: float) -> float:
    """The learning rate's factor when a fraction ``progress`` of all steps is done.

    >>> schedule("constant", 0.5), schedule("cosine", 0.0), round(schedule("onecycle", 0.3), 3)
    (1.0, 1.0, 1.0)
    """
    if name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    if name == "onecycle":  # up over the first 30 %, down to zero over the rest
        return (
            0.04 + 0.96 * progress / 0.3 if progress < 0.3 else 0.5 * (1 + math.cos(math.pi * (progress - 0.3) / 0.7))
        )
    return 1.0


def make_optimizer(net: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser a recipe names, over the parameters that train."""
    parameters = [p for p in net.parameters() if p.requires_grad]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.momentum > 0,
        )
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, lr=recipe.lr, betas=(recipe.momentum, 0.999), weight_decay=recipe.weight_decay)
