"""Run the systems of a comparison: learn, forget, and measure each the same way."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from splitwiper.errors import TrainingError
from splitwiper.federation import Federation
from splitwiper.training.loop import OnEpoch
from splitwiper_lab.attacks.membership import Model
from splitwiper_lab.baselines import Cost, Problem, Trained
from splitwiper_lab.baselines.sisa import Sisa, sisa
from splitwiper_lab.baselines.unlearning import Method, Retraining
from splitwiper_lab.evaluation.comparison import splitwiper as ours
from splitwiper_lab.evaluation.comparison.outsiders import run_outside
from splitwiper_lab.evaluation.comparison.record import Phase, Record
from splitwiper_lab.evaluation.comparison.settings import OURS, SISA, Comparison, System
from splitwiper_lab.evaluation.comparison.stage import Stage, with_one_away

Key = tuple[str, str, int]
_AFRESH = "trained on the remaining rows alone"


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
        yield run_outside(at, system, system.baseline)
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
        raise TypeError(f"{system.name} is not a split-learning framework.")
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
        left, away = with_one_away(at, partial(_forgotten, at, trained, method, told))
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
