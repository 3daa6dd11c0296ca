"""What a batch is trained towards: the loss of one client's rows, whoever computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor | None, Tensor, Tensor | None], Tensor]
"""From outputs, labels, which rows are to be forgotten, and what teachers say, to the mean loss."""


@dataclass(frozen=True)
class Objective:
    """A loss, and what it needs to know of rows.

    Attributes:
        loss: computed per client and batch.
        labels: whether it looks at labels.
        marks: whether it looks at which rows are to be forgotten.
    """

    loss: Loss
    labels: bool = True
    marks: bool = False


def _cross_entropy(logits: Tensor, codes: Tensor | None, gone: Tensor, taught: Tensor | None) -> Tensor:
    return functional.cross_entropy(logits, needed(codes))


def needed(tensor: Tensor | None) -> Tensor:
    """What an objective asked for, and therefore has."""
    if tensor is None:
        raise TypeError("an objective looks at what it did not ask for.")
    return tensor


LEARN = Objective(_cross_entropy)
"""To predict labels."""
