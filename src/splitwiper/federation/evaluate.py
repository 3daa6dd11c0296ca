"""Scores: each client's whole network on its own test set, T(Concat(F_k, F_s), D_k), per label and overall."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from splitwiper.data.labels import alike, told_apart
from splitwiper.errors import DataError
from splitwiper.wire import Label


@dataclass(frozen=True)
class Score:
    """The number of rows, and how many of them were predicted correctly."""

    right: int = 0
    rows: int = 0

    @property
    def accuracy(self) -> float:
        """The fraction predicted correctly; NaN without rows."""
        return self.right / self.rows if self.rows else float("nan")

    def __add__(self, other: Score) -> Score:
        return Score(self.right + other.right, self.rows + other.rows)


def total(scores: Iterable[Score]) -> Score:
    """Return the sum of all scores."""
    return sum(scores, Score())


@dataclass(frozen=True)
class ClientScore:
    """The score of one client on its own test set."""

    per_label: Mapping[Label, Score]

    @property
    def overall(self) -> Score:
        """The score over all its rows."""
        return total(self.per_label.values())


@dataclass(frozen=True)
class Evaluation:
    """The scores of all clients on their own test sets."""

    clients: Mapping[str, ClientScore]

    @property
    def per_label(self) -> dict[Label, Score]:
        """The score of every label over all clients."""
        scores: dict[Label, Score] = {}
        for client in self.clients.values():
            for label, score in client.per_label.items():
                scores[label] = scores.get(label, Score()) + score
        return scores

    @property
    def overall(self) -> Score:
        """The score over all rows of all clients."""
        return total(client.overall for client in self.clients.values())

    @property
    def accuracy(self) -> float:
        """The fraction of all rows predicted correctly."""
        return self.overall.accuracy


def apart(evaluation: Evaluation, forget: Label) -> tuple[Score, Score]:
    """Return the score of all labels but one, and of that one."""
    scores = evaluation.per_label
    forgotten = scores.pop(forget, Score())
    return total(scores.values()), forgotten


def check_truth(truth: Sequence[Label], known: Iterable[Label], client: str) -> None:
    """Refuse true labels that the model knows as another type: every answer would be wrong."""
    learned = set(known)
    for label, other in alike(set(truth) - learned, learned):
        raise DataError(
            f"client {client!r}: the label {label.name!r} was learned as {other.name!r}, and "
            f"{told_apart(label, other)} Give {other.name!r}."
        )


def score(truth: Sequence[Label], predicted: Sequence[Label]) -> ClientScore:
    """Count correct answers by label."""
    scores: dict[Label, Score] = {}
    for label, answer in zip(truth, predicted, strict=True):
        scores[label] = scores.get(label, Score()) + Score(int(label == answer), 1)
    return ClientScore(scores)
