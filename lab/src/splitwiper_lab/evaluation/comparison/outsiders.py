"""Run a system from another package, and see for oneself whether it forgot."""

from __future__ import annotations

from typing import Any

from splitwiper_lab.attacks.membership import Model
from splitwiper_lab.baselines import Baseline, LearnedBaseline, Problem
from splitwiper_lab.baselines.outside import answers, checked, evaluate, same_answers
from splitwiper_lab.evaluation.comparison.record import Phase, Record
from splitwiper_lab.evaluation.comparison.settings import System
from splitwiper_lab.evaluation.comparison.stage import Stage, with_one_away


def run_outside(at: Stage, system: System, baseline: Baseline) -> Record:
    """Run a system from another package. It is called exact only if training again without the rows says the same."""
    told, retold = at.told(f"{system.name}: learning"), at.told(f"{system.name}: unlearning")
    first = checked(system.name, baseline.learn(at.problem, on_epoch=told), at.problem)
    learned = _baseline_phase(at, system, first, at.problem)
    second, away = with_one_away(at, lambda present: first.unlearn(at.forgetting, present=present, on_epoch=retold))
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
