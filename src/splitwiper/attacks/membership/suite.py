"""Every membership attack on one unlearning, on the same candidates, compared with a model that never saw the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from splitwiper.attacks.membership.comparing import against
from splitwiper.attacks.membership.knowledge import Knowledge, refuse_overlap
from splitwiper.attacks.membership.label_only import label_only
from splitwiper.attacks.membership.loss import BEFORE, loss
from splitwiper.attacks.membership.measuring import Claim, Outcome, measure
from splitwiper.attacks.membership.pairs import Model, Pair
from splitwiper.attacks.membership.shadows import check_shadows
from splitwiper.attacks.membership.two_model import two_model


def membership(
    target: Pair, shadows: Sequence[Pair], *, reference: Model | None = None, seed: int = 0
) -> list[Outcome]:
    """Run every attack: two models, labels only, loss before, loss after.

    Attacks learn from shadows alone; which candidates were unlearned only scores them.

    Args:
        target: the pair under attack.
        shadows: what the attacker trained, by `shadow_pairs`.
        reference: a model trained without the unlearned rows. Every attack that looks at the model after is run on
            it too, in place of the target's, and its outcome compared.
        seed: of everything random.

    Raises:
        DataError: shadows do not do (see `check_shadows`), or their rows are also the target's.
    """
    check_shadows(shadows)
    refuse_overlap(target, shadows)
    knowledge = Knowledge.of(target, shadows)
    judges: list[Callable[[Pair], Claim]] = [
        two_model(shadows, seed=seed),
        label_only(shadows, seed=seed),
        loss(shadows, when="before"),
        loss(shadows, when="after"),
    ]
    never = None if reference is None else replace(target, after=reference)
    outcomes = []
    for judge in judges:
        outcome = measure(judge(target), target, knowledge)
        if never is not None and outcome.attack != BEFORE:  # which says nothing of the model after
            outcome = replace(outcome, comparison=against(outcome, measure(judge(never), never, knowledge)))
        outcomes.append(outcome)
    return outcomes
