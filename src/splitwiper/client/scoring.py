"""From scores to predictions: the most likely label of a client's own task, and probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from splitwiper.errors import InputError, NotFoundError
from splitwiper.wire import Label, Scores

Probabilities = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Predicted:
    """Predictions for some rows.

    Attributes:
        names: the most likely label of each row.
        labels: the labels of the columns of ``probabilities``.
        probabilities: rows × labels.
    """

    names: list[str | int]
    labels: tuple[Label, ...]
    probabilities: Probabilities


def best(scores: Scores, task: str) -> list[str | int]:
    """Return the most likely label of a task for each row."""
    mine = [column for column, label in enumerate(scores.labels) if label.task == task]
    if not mine:
        raise NotFoundError(f"no label of task {task!r} is left: nobody holds rows of it.")
    best_of_mine = scores.logits[:, mine].argmax(dim=1).tolist()
    return [scores.labels[mine[number]].name for number in best_of_mine]


def probabilities(scores: Scores, labels: Sequence[Label]) -> Probabilities:
    """Return the probability of each label for each row; 0 for a label that the scores do not have."""
    if scores.labels_only:
        raise InputError(
            "the server answers with the most likely label alone, so there are no probabilities. Compute them here, "
            "from a copy of the server half (local=True), or ask its operator for 'probabilities = true'."
        )
    known = {label: number for number, label in enumerate(scores.labels)}
    chances = torch.softmax(scores.logits.float(), dim=1).numpy()
    out = np.zeros((len(scores.logits), len(labels)), np.float32)
    for column, label in enumerate(labels):
        if label in known:
            out[:, column] = chances[:, known[label]]
    return out
