"""Run the systems of a comparison: learn, forget, and measure each the same way."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from splitwiper.errors import TrainingError
from splitwiper.federation import Federation
from splitwiper.training.loop import OnEpoch
from splitwiper_lab.attacks.membership import Model
from splitwiper_lab.baselines import Baseline, Cost, Framework, LearnedBaseline, Problem, Trained
from splitwiper_lab.baselines.outside import answers, checked, evaluate, same_answers
from splitwiper_lab.baselines.problem import Holding
from splitwiper_lab.baselines.sisa import Sisa, sisa
from splitwiper_lab.baselines.starting import Start
from splitwiper_lab.baselines.unlearning import Method, Retraining
from splitwiper_lab.evaluation.comparison import splitwiper as ours
from splitwiper_lab.evaluation.comparison.record import Phase, Record
from splitwiper_lab.evaluation.comparison.settings import OURS, SISA, Comparison, System
from splitwiper_lab.evaluation.comparison.stage import Stage, with_one_away

Key = tuple[str, str, int]
_AFRESH = "trained on the remaining rows alone"


def compared(at: Stage, comparison: Comparison, *, only: Collection[Key] | None = None) -> Iterator[Record]:
    """Run the systems of a comparison with one seed, in the order of the table.

    Raises:
        TrainingError: some system could not be trained; raised after all others are done.
    """
    failed = []
    for system in comparison.systems:
        ways = []
        for way in system.ways:
            if only is None or (system.name, way, at.work.config.seed) in only:
                ways.append(way)
        try:
            if ways:
                yield from _results(at, system, ways)
        except TrainingError as problem:
            failed.append(f"{system.name}: {problem}")  # other systems may still succeed
    if failed:
        raise TrainingError(" ".join(failed))


def _results(at: Stage, system: System, ways: Collection[str]) -> Iterator[Record]:
    if system.kind == OURS:
        yield _ours(at, system)
    elif system.kind == SISA:
        yield _sisa(at, system)
    elif system.baseline is not None:
        yield _outside(at, system, system.baseline)
    elif system.framework is not None:
        yield from _split(at, system, system.framework, ways)


def _ours(at: Stage, system: System) -> Record:
    with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=at.scratch) as folder:
        first = ours.learn(at.work, system, Path(folder), at.problem, at.starts, at.progress)
        before, kept = at.scores(first.federation.evaluate(at.work.test)), _kept(at, first)
        second = ours.unlearn(first, at.problem, at.forgetting, at.restarts, away=at.away)
        after = at.scores(second.federation.evaluate(at.test(at.left)))
        exact, proof = ours.is_exact(second)
        took_part = tuple(name for name, cost in second.spent.items() if cost != Cost())
        return at.record(
            system,
            OURS,
            Phase(*before, first.spent, _preparing(at.starts), first.server, tuple(first.spent)),
            Phase(*after, second.spent, _preparing(at.restarts), second.server, took_part),
            exact=exact,
            proof=proof,
            away=at.went_on(),
            # an exact result is the retrained model with which attacks are compared
            membership=at.attacked(kept, _answering(at, second.federation), None) if kept and exact else (),
        )


def _preparing(starts: Mapping[str, Start]) -> dict[str, Cost]:
    return {name: start.cost for name, start in starts.items()}


def _kept(at: Stage, first: ours.Ours) -> Model | None:
    """Return the requester's present model, for attacks that query it later; it uses a copy of the run."""
    if at.attacker is None:
        return None
    path = first.federation.path
    shutil.copytree(path, path.parent / "before")  # the run itself is about to forget
    return _answering(at, Federation(path.parent / "before", first.federation.halves))


def _answering(at: Stage, federation: Federation) -> Model:
    client = at.forgetting.client
    return Model(lambda inputs: federation.predict_proba(client, inputs), federation.labels)


def _split(at: Stage, system: System, framework: Framework, ways: Collection[str]) -> Iterator[Record]:
    pretrained = framework.start == "pretrained"
    trained = framework.learn(
        at.problem, known=at.starts if pretrained else None, on_epoch=at.on_epoch(f"{system.name}: learning")
    )
    if pretrained:
        trained = dataclasses.replace(trained, preparing=_preparing(at.starts))
    learned = _phase(at, trained)
    retrained: Trained | None = None
    if at.attacker is not None:
        # what attacks compare every other way with
        retrained = Retraining().unlearn(trained, at.forgetting, on_epoch=at.on_epoch(f"{system.name}: retraining"))
    for way, method in system.named.items():
        if way not in ways:
            continue
        on_epoch = at.on_epoch(f"{system.name}: {way}")
        left, away = with_one_away(at, partial(_forgotten, at, trained, method, on_epoch))
        yield at.record(
            system,
            way,
            learned,
            _phase(at, left),
            exact=left.exact,
            proof=_AFRESH if left.exact else "",  # exact by construction: nothing of the old model is used
            away=away,
            membership=at.attacked(_of(at, trained), _of(at, left), _of(at, retrained)) if retrained else (),
        )


def _of(at: Stage, trained: Trained) -> Model:
    """Return the requester's model in the form that membership inference queries."""
    network, client = trained.network, at.forgetting.client
    return Model(lambda inputs: network.posteriors(client, inputs), network.labels[client])


def _forgotten(
    at: Stage, trained: Trained, method: Method, on_epoch: OnEpoch | None, present: Collection[str]
) -> Trained:
    return method.unlearn(trained, at.forgetting, present=present, on_epoch=on_epoch)


def _phase(at: Stage, trained: Trained) -> Phase:
    return Phase(
        *at.scores(trained.network.evaluate(at.test(trained.problem))),
        trained.spent,
        trained.preparing,
        trained.server,
        trained.took_part,
    )


def _sisa(at: Stage, system: System) -> Record:
    first = sisa(at.problem, **system.sharding, on_epoch=at.on_epoch(f"{system.name}: learning"))
    second = first.unlearn(at.forgetting, on_epoch=at.on_epoch(f"{system.name}: unlearning"))
    return at.record(
        system,
        SISA,
        _central(at, first, {name: Cost(bytes_up=_bytes(held)) for name, held in at.problem.clients.items()}),
        _central(at, second, dict.fromkeys(at.problem.clients, Cost())),
        exact=True,
        proof=_AFRESH,
        away=at.went_on("all rows are in one place"),
        membership=at.attacked(_asked(first), _asked(second), None) if at.attacker else (),
    )


def _asked(model: Sisa) -> Model:
    return Model(lambda inputs: model.posteriors(inputs)[0], model.labels)


def _central(at: Stage, model: Sisa, spent: Mapping[str, Cost]) -> Phase:
    found = model.evaluate(at.test(model.problem), tasks=at.work.tasks)
    # a cost of its own type has more fields than records keep
    cost = Cost(**{field.name: getattr(model.cost, field.name) for field in dataclasses.fields(Cost)})
    return Phase(*at.scores(found), spent, {}, cost, ())


def _bytes(held: Holding) -> int:
    """Return the bytes that a client sends to pool its rows: the rows themselves, and four bytes for each label."""
    return len(held) * (sum(column.width for column in held.columns) + 4)


def _outside(at: Stage, system: System, baseline: Baseline) -> Record:
    """Run a system from another package. It is called exact only if training again without the rows says the same."""
    learning, unlearning = at.on_epoch(f"{system.name}: learning"), at.on_epoch(f"{system.name}: unlearning")
    first = checked(system.name, baseline.learn(at.problem, on_epoch=learning), at.problem)
    learned = _baseline_phase(at, system, first, at.problem)
    second, away = with_one_away(at, lambda present: first.unlearn(at.forgetting, present=present, on_epoch=unlearning))
    second = checked(system.name, second, at.left)
    never = checked(system.name, baseline.learn(at.left), at.left)  # its word alone is not enough
    exact = same_answers(system.name, second, never, at.test(at.left), at.work.tasks)
    attacked: tuple[dict[str, Any], ...] = ()
    if at.attacker is not None:  # without one, the requester may have left, and has no model to ask
        model = partial(_baseline_model, at, system)
        attacked = at.attacked(model(first), model(second), model(never))
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
