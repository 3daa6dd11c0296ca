"""Run the systems of a comparison: learn, forget, and measure each the same way."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from splitwiper.errors import AbsentClientError, ConfigError, TrainingError, nearest
from splitwiper.federation import Evaluation, Federation
from splitwiper.federation.evaluate import apart
from splitwiper.progress import Progress
from splitwiper.seeding import Stream
from splitwiper.training.loop import OnEpoch
from splitwiper_lab.attacks.membership import Model
from splitwiper_lab.baselines import Baseline, Cost, Forgetting, LearnedBaseline, Problem, Trained
from splitwiper_lab.baselines.outside import answers, checked, evaluate, same_answers
from splitwiper_lab.baselines.sisa import Sisa, sisa
from splitwiper_lab.baselines.starting import Start, starts
from splitwiper_lab.baselines.unlearning import Method, Retraining
from splitwiper_lab.datasets.published import Part
from splitwiper_lab.evaluation.comparison import splitwiper as ours
from splitwiper_lab.evaluation.comparison.membership import Attacker, check_attackable, withheld
from splitwiper_lab.evaluation.comparison.record import Phase, Record
from splitwiper_lab.evaluation.comparison.settings import OURS, SISA, Comparison, System
from splitwiper_lab.workloads import Workload

Key = tuple[str, str, int]
_AFRESH = "trained on the remaining rows alone"


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

    def told(self, what: str) -> OnEpoch | None:
        """Return a callback that reports progress under a name."""
        if self.progress is None:
            return None
        tell = self.progress
        return lambda epoch, epochs, loss: tell(what, epoch, epochs, loss=loss)

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
    """Prepare one seed: rows, the rows to forget, pre-trained halves, and an attacker with its own rows.

    Args:
        work: data, network and settings.
        comparison: the settings of the comparison.
        progress: called with the progress of long steps.
        scratch: the folder in which SplitWiper's run folder is created and removed; by default the system's temporary
            folder.
    """
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
        starts(left, "pretrained", known=first),
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
    order = Stream(work.config.seed, "compare/samples", work.owner).permutation(len(places))
    gone = np.zeros(len(chosen.gone), bool)
    gone[places[order[: max(1, round(comparison.delta * len(places)))]]] = True
    return Forgetting(work.owner, "sample", gone)


def _away(work: Workload, absent: str) -> str:
    others = [name for name in sorted(work.train) if name != work.owner]
    if absent and absent not in others:
        hint = nearest(absent, others) or f" Others are {', '.join(others)}."
        raise ConfigError(f"compare.absent = {absent!r} is no client, or the owner itself.{hint}")
    return absent or (others[-1] if others else "")


def compared(at: Stage, comparison: Comparison, *, only: Collection[Key] | None = None) -> Iterator[Record]:
    """Run the systems of a comparison with one seed, in the order of the table.

    Args:
        at: the prepared seed.
        comparison: the systems.
        only: keys of the results to compute; None computes all.

    Raises:
        TrainingError: some system could not be trained; raised after all others are done.
    """
    failed = []
    for system in comparison.systems:
        ways = list(system.ways)
        if only is not None:
            ways = [way for way in ways if (system.name, way, at.work.config.seed) in only]
        try:
            if ways:
                yield from _results(at, system, ways)
        except TrainingError as problem:
            failed.append(f"{system.name}: {problem}")
    if failed:
        raise TrainingError(" ".join(failed))


def _results(at: Stage, system: System, todo: Sequence[str]) -> Iterator[Record]:
    if system.kind == OURS:
        yield _ours(at, system)
    elif system.kind == SISA:
        yield _sisa(at, system)
    elif system.baseline is not None:
        yield _outside(at, system, system.baseline)
    else:
        yield from _split(at, system, {way: system.named[way] for way in todo})


def _ours(at: Stage, system: System) -> Record:
    with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=at.scratch) as folder:
        first = ours.learn(at.work, system, Path(folder), at.problem, at.starts, at.progress)
        before, kept = at.scores(first.federation.evaluate(at.work.test)), _kept(at, first)
        second = ours.unlearn(first, at.problem, at.forgetting, at.restarts, away=at.away)
        after = at.scores(second.federation.evaluate(at.test(at.left)))
        exact, proof = ours.is_exact(second)
        costs, again = {name: s.cost for name, s in at.starts.items()}, {n: s.cost for n, s in at.restarts.items()}
        return at.record(
            system,
            OURS,
            Phase(*before, first.spent, costs, first.server, tuple(first.spent)),
            Phase(
                *after,
                second.spent,
                again,
                second.server,
                tuple(name for name, cost in second.spent.items() if cost != Cost()),
            ),
            exact=exact,
            proof=proof,
            away={"client": at.away, "went_on": True, "said": ""} if at.away else None,
            membership=at.attacked(kept, _answering(at, second.federation), None) if kept and exact else (),
        )


def _kept(at: Stage, first: ours.Ours) -> Model | None:
    """Return the requester's present model, for attacks that query it later; it uses a copy of the run."""
    if at.attacker is None:
        return None
    path = first.federation.path
    shutil.copytree(path, path.parent / "before")
    return _answering(at, Federation(path.parent / "before", first.federation.halves))


def _answering(at: Stage, federation: Federation) -> Model:
    client = at.forgetting.client
    return Model(lambda inputs: federation.predict_proba(client, inputs), federation.labels)


def _split(at: Stage, system: System, methods: Mapping[str, Method]) -> Iterator[Record]:
    framework = system.framework
    if framework is None:
        raise TypeError(f"{system.name} is no split-learning framework.")
    pretrained = framework.start == "pretrained"
    trained = framework.learn(
        at.problem, known=at.starts if pretrained else None, on_epoch=at.told(f"{system.name}: learning")
    )
    if pretrained:
        trained = dataclasses.replace(trained, preparing={name: s.cost for name, s in at.starts.items()})
    learned = _phase(at, trained)
    retrained: Trained | None = None
    if at.attacker is not None:
        retrained = Retraining().unlearn(trained, at.forgetting, on_epoch=at.told(f"{system.name}: retraining"))
    for way, method in methods.items():
        told = at.told(f"{system.name}: {way}")
        left, away = _with_one_away(at, partial(_forgotten, at, trained, method, told))
        yield at.record(
            system,
            way,
            learned,
            _phase(at, left),
            exact=left.exact,
            proof=_AFRESH if left.exact else "",
            away=away,
            membership=at.attacked(_of(at, trained), _of(at, left), _of(at, retrained)) if retrained else (),
        )


def _of(at: Stage, trained: Trained) -> Model:
    """Return the requester's model in the form that membership inference queries."""
    network, client = trained.network, at.forgetting.client
    return Model(lambda inputs: network.posteriors(client, inputs), network.labels[client])


def _forgotten(at: Stage, trained: Trained, method: Method, told: OnEpoch | None, present: Collection[str]) -> Trained:
    return method.unlearn(trained, at.forgetting, present=present, on_epoch=told)


Left = TypeVar("Left")


def _with_one_away(at: Stage, unlearn: Callable[[Collection[str]], Left]) -> tuple[Left, dict[str, Any] | None]:
    """Forget while a client is away, if the system can; otherwise with all clients."""
    try:
        left = unlearn([name for name in at.problem.clients if name != at.away])
    except AbsentClientError as problem:
        left = unlearn(list(at.problem.clients))
        return left, {"client": at.away, "went_on": False, "said": str(problem)}
    return left, {"client": at.away, "went_on": True, "said": ""} if at.away else None


def _outside(at: Stage, system: System, baseline: Baseline) -> Record:
    """Run a system from another package. It is called exact only if training again without the rows says the same."""
    told, retold = at.told(f"{system.name}: learning"), at.told(f"{system.name}: unlearning")
    first = checked(system.name, baseline.learn(at.problem, on_epoch=told), at.problem)
    learned = _baseline_phase(at, system, first, at.problem)
    second, away = _with_one_away(at, lambda present: first.unlearn(at.forgetting, present=present, on_epoch=retold))
    second = checked(system.name, second, at.left)
    never = checked(system.name, baseline.learn(at.left), at.left)
    exact = same_answers(system.name, second, never, at.test(at.left), at.work.tasks)
    attacked: tuple[dict[str, Any], ...] = ()
    if at.attacker is not None:
        models = [_baseline_model(at, system, one) for one in (first, second, never)]
        attacked = at.attacked(*models)
    return at.record(
        system,
        system.kind,
        learned,
        _baseline_phase(at, system, second, at.left),
        exact=exact,
        proof="recomputed, the same answers bit for bit" if exact else "",
        away=away,
        membership=attacked,
    )


def _baseline_phase(at: Stage, system: System, learned: LearnedBaseline, problem: Problem) -> Phase:
    found = evaluate(system.name, learned, at.test(problem), at.work.tasks)
    costs = learned.costs
    return Phase(*at.scores(found), costs.spent, {}, costs.server, costs.took_part)


def _baseline_model(at: Stage, system: System, learned: LearnedBaseline) -> Model:
    client = at.forgetting.client
    return Model(lambda inputs: answers(system.name, learned, client, inputs), learned.labels(client))


def _phase(at: Stage, trained: Trained) -> Phase:
    return Phase(
        *at.scores(trained.network.evaluate(at.test(trained.problem))),
        trained.spent,
        trained.preparing,
        trained.server,
        trained.took_part,
    )


def _sisa(at: Stage, system: System) -> Record:
    first = sisa(at.problem, **system.sharding, on_epoch=at.told(f"{system.name}: learning"))
    second = first.unlearn(at.forgetting, on_epoch=at.told(f"{system.name}: unlearning"))
    return at.record(
        system,
        SISA,
        _central(at, first, {name: Cost(bytes_up=_bytes(at.problem, name)) for name in at.problem.clients}),
        _central(at, second, {name: Cost() for name in at.problem.clients}),
        exact=True,
        proof=_AFRESH,
        away={"client": at.away, "went_on": True, "said": "all rows are in one place"} if at.away else None,
        membership=at.attacked(_asked(first), _asked(second), None) if at.attacker else (),
    )


def _asked(model: Sisa) -> Model:
    return Model(lambda inputs: model.posteriors(inputs)[0], model.labels)


def _central(at: Stage, model: Sisa, spent: Mapping[str, Cost]) -> Phase:
    found = model.evaluate(at.test(model.problem), tasks=at.work.tasks)
    cost = Cost(**{f.name: getattr(model.cost, f.name) for f in dataclasses.fields(Cost)})
    return Phase(*at.scores(found), spent, {}, cost, ())


def _bytes(problem: Problem, name: str) -> int:
    """Return the bytes that a client sends to pool its rows: the rows themselves, and four bytes for each label."""
    held = problem.clients[name]
    return len(held) * (sum(column.width for column in held.columns) + 4)
