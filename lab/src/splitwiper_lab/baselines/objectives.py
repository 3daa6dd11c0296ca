"""Training objectives of a batch: the loss of one client's rows, whichever party computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

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


def _cross_entropy(logits: Tensor, codes: Tensor | None, gone: Tensor, taught: Tensor | None) -> Tensor:
    return functional.cross_entropy(logits, needed(codes))


def needed(tensor: Tensor | None) -> Tensor:
    """Return a tensor that the objective has requested, and is therefore present."""
    if tensor is None:
        raise TypeError("an objective looks at what it did not ask for.")
    return tensor


LEARN = Objective(_cross_entropy)
"""Learn to predict labels."""
