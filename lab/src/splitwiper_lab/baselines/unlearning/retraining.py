"""Retraining from the start with every remaining client (Section 2.2): exact, and as expensive as learning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from splitwiper.training.loop import OnEpoch
from splitwiper_lab.baselines.channel import Tap
from splitwiper_lab.baselines.framework import Trained
from splitwiper_lab.baselines.meters import Cost
from splitwiper_lab.baselines.problem import Forgetting
from splitwiper_lab.baselines.unlearning.method import Method


@dataclass(frozen=True, kw_only=True)
class Retraining(Method):
    """M epochs with all clients on the rows that stay. The requester's half is pre-trained again, others' are not."""

    name: ClassVar[str] = "retraining"
    exact: ClassVar[bool] = True

    def needs(self, trained: Trained, forgetting: Forgetting) -> tuple[str, ...]:
        """Return all clients that still have rows."""
        return tuple(trained.problem.without(forgetting).clients)

    def _unlearned(
        self, trained: Trained, forgetting: Forgetting, on_epoch: OnEpoch | None, tap: Tap | None
    ) -> Trained:
        left = trained.problem.without(forgetting)
        again = trained.framework.learn(left, known=trained.starts, on_epoch=on_epoch, tap=tap)
        # a requester that left altogether is no client of the new training, and spent nothing
        return replace(again, spent={name: again.spent.get(name, Cost()) for name in trained.problem.clients})
