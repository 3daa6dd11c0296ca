"""Repeat the server's training epoch by epoch: how accuracy grows, and how many answers still change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ne

from splitwiper.errors import InputError, NotFoundError
from splitwiper.federation.evaluate import Evaluation, score
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.splitting import ServerHalf
from splitwiper.wire import Label

Answers = Mapping[str, tuple[tuple[Label, ...], tuple[Label, ...]]]
"""True and predicted labels, by client."""


@dataclass(frozen=True)
class Traced:
    """The state of the model after one epoch.

    Attributes:
        evaluation: the scores of all clients on their test sets.
        changed: the share of answers that differ from the epoch before; 1 after the first.
    """

    evaluation: Evaluation
    changed: float

    @classmethod
    def of(cls, now: Answers, before: Answers | None) -> Traced:
        """Make an epoch's record from its answers and those of the epoch before."""
        scores, rows, changed = {}, 0, 0
        for name, (truth, predicted) in now.items():
            scores[name] = score(truth, predicted)
            rows += len(predicted)
            if before:
                changed += sum(map(ne, predicted, before[name][1]))
        return cls(Evaluation(scores), changed / max(1, rows) if before else 1.0)


def retrace(server: Server, answers: Callable[[], Answers]) -> tuple[Traced, ...]:
    """Train on the present manifest again, and get answers after each epoch.

    ``answers`` returns the answers of the half that the server currently uses.

    Raises:
        NotFoundError: there is no model.
        InputError: the result is not the model in use.
    """
    model, epochs = server.store.model(), list[Traced]()
    if model is None:
        raise NotFoundError("there is no model whose training could be retraced: learn first.")
    before: Answers | None = None

    def watch(_epoch: int, half: ServerHalf) -> None:
        nonlocal before
        with server.answering(half):
            now = answers()
        epochs.append(Traced.of(now, before))
        before = now

    trained, _ = server.compute(server.store.shards(), watch=watch)
    if state_digest(trained.state) != model.digest:
        raise InputError(
            "the training cannot be retraced here: it gives another model. Retrace it on the machine, and with the "
            "versions, that the model was trained with."
        )
    return tuple(epochs)
