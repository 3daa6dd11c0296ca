"""One seed of a comparison: what all systems learn from, what they forget, and how each of them is recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from splitwiper.errors import AbsentClientError, ConfigError, nearest
from splitwiper.federation import Evaluation
from splitwiper.federation.evaluate import apart
from splitwiper.progress import Progress
from splitwiper.seeding import Stream
from splitwiper.training.loop import OnEpoch
from splitwiper_lab.attacks.membership import Model
from splitwiper_lab.baselines import Forgetting, Problem
from splitwiper_lab.baselines.starting import Start, starts
from splitwiper_lab.datasets.published import Part
from splitwiper_lab.evaluation.comparison.membership import Attacker, check_attackable, withheld
from splitwiper_lab.evaluation.comparison.record import Phase, Record
from splitwiper_lab.evaluation.comparison.settings import Comparison, System
from splitwiper_lab.workloads import Workload

Left = TypeVar("Left")


@dataclass(frozen=True, eq=False)
class Stage:
    """One seed of a comparison: the data that all systems learn from, and the rows that they forget."""

    work: Workload
    problem: Problem
    forgetting: Forgetting
    left: Problem
    away: str
    starts: Mapping[str, Start]
    """Client halves before split training, and their costs."""
    restarts: Mapping[str, Start]
    """The same without the forgotten rows; only the requester's has a cost."""
    attacker: Attacker | None
    progress: Progress | None
    scratch: Path | None = None

    @property
    def epochs(self) -> dict[str, int]:
        """The paper's M and N."""
        config = self.work.config
        return {"server": config.server.epochs, "client": config.client.epochs}

    def scores(self, found: Evaluation) -> tuple[float | None, float | None]:
        """Return the accuracy on the labels that stay, and on the one to forget; None if there are no test rows."""
        kept, gone = apart(found, self.work.forgotten)
        # an accuracy over no rows is not a number
        return kept.accuracy if kept.rows else None, gone.accuracy if gone.rows else None

    def test(self, problem: Problem) -> dict[str, Any]:
        """Return the test rows of the clients in ``problem``."""
        return {name: rows for name, rows in self.work.test.items() if name in problem.clients}

    def attacked(self, before: Model, after: Model, retrained: Model | None) -> tuple[dict[str, Any], ...]:
        """Run membership inference, if enabled; if ``retrained`` is None, ``after`` is itself a retrained model."""
        if self.attacker is None:
            return ()
        if self.progress:
            self.progress("membership inference", 0, 1)
        return tuple(self.attacker.attack(before, after, retrained or after))

    def on_epoch(self, step: str) -> OnEpoch | None:
        """Return a callback that reports progress under the name of a step."""
        if self.progress is None:
            return None
        progress = self.progress
        return lambda epoch, epochs, loss: progress(step, epoch, epochs, loss=loss)

    def went_on(self, why: str = "") -> dict[str, Any] | None:
        """Return what a record says of a system that forgot while a client was away; None if none was."""
        return {"client": self.away, "went_on": True, "said": why} if self.away else None

    def record(self, system: System, unlearning: str, learned: Phase, unlearned: Phase, **more: Any) -> Record:
        """Create a line of the results."""
        return Record(
            system.name,
            system.kind,
            unlearning,
            self.work.config.seed,
            self.forgetting.client,
            self.epochs,
            learned,
            unlearned,
            **more,
        )


def stage(
    work: Workload, comparison: Comparison, progress: Progress | None = None, *, scratch: Path | None = None
) -> Stage:
    """Prepare one seed: rows, the rows to forget, pre-trained halves, and an attacker with its own rows."""
    away = _away(work, comparison.absent)
    own: dict[str, Part] = {}
    if comparison.membership.shadow:
        check_attackable(work, comparison)
        work, own = withheld(work, comparison.membership.shadow)
    problem = Problem.of_workload(work)
    forgetting = _forgetting(problem, work, comparison)
    left = problem.without(forgetting)
    if progress:
        progress("pre-training client halves", 0, 1)
    first = starts(problem, "pretrained")
    if progress and own:
        progress("training shadow models", 0, 1)
    return Stage(
        work,
        problem,
        forgetting,
        left,
        away,
        first,
        starts(left, "pretrained", known=first),  # all but the requester keep theirs
        Attacker(work, problem, forgetting, own, comparison) if own else None,
        progress,
        scratch,
    )


def _forgetting(problem: Problem, work: Workload, comparison: Comparison) -> Forgetting:
    if comparison.level == "client":
        return problem.choose(work.owner, everything=True)
    chosen = problem.choose(work.owner, classes=[work.forget])
    if comparison.level == "class":
        return chosen
    places = np.flatnonzero(chosen.gone)
    # the same rows for every system: which ones depends on the seed alone
    order = Stream(work.config.seed, "compare/samples", work.owner).permutation(len(places))
    gone = np.zeros(len(chosen.gone), bool)
    gone[places[order[: max(1, round(comparison.delta * len(places)))]]] = True
    return Forgetting(work.owner, "sample", gone)


def _away(work: Workload, absent: str) -> str:
    others = sorted(work.train.keys() - {work.owner})
    if absent and absent not in others:
        hint = nearest(absent, others) or f" Others are {', '.join(others)}."
        raise ConfigError(f"compare.absent = {absent!r} is not a client, or is the owner itself.{hint}")
    return absent or (others[-1] if others else "")  # every comparison tries it


def with_one_away(at: Stage, unlearn: Callable[[Collection[str]], Left]) -> tuple[Left, dict[str, Any] | None]:
    """Forget while a client is away, if the system can; otherwise with all clients."""
    try:
        left = unlearn([name for name in at.problem.clients if name != at.away])
    except AbsentClientError as problem:
        left = unlearn(list(at.problem.clients))
        return left, {"client": at.away, "went_on": False, "said": str(problem)}
    return left, at.went_on()
