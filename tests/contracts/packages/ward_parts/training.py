"""A loss, a schedule and an optimiser."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def focal(logits: Tensor, codes: Tensor, gamma: float = 2.0) -> Tensor:
    """Cross-entropy in which rows that are right already count less."""
    chances = functional.softmax(logits, dim=1)[torch.arange(len(codes)), codes]
    return ((1 - chances) ** gamma * functional.cross_entropy(logits, codes, reduction="none")).mean()


class Stairs:
    """Multiplies the learning rate by ``factor`` after each part of the training."""

    def __init__(self, parts: int = 3, factor: float = 0.5) -> None:
        self._parts, self._factor = parts, factor

    def __call__(self, progress: float) -> float:
        return float(self._factor ** int(progress * self._parts))


class SignDescent(torch.optim.Optimizer):
    """Moves by the sign of a running mean of the gradient (Lion, without its second mean)."""

    def __init__(self, params: Any, lr: float, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                kept = self.state[p]
                if not kept:
                    kept["mean"], kept["steps"] = torch.zeros_like(p), torch.zeros(())
                kept["mean"].lerp_(p.grad, 1 - group["beta"])
                kept["steps"] += 1
                p.sub_(kept["mean"].sign(), alpha=group["lr"])
