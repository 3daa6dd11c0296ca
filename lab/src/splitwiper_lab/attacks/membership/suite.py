"""Every membership attack on one unlearning, on the same candidates, compared with a model that never saw the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from splitwiper_lab.attacks.membership.label_only import label_only
from splitwiper_lab.attacks.membership.loss import BEFORE, loss
from splitwiper_lab.attacks.membership.measuring import MembershipClaim, Outcome, against, measure
from splitwiper_lab.attacks.membership.pairs import Knowledge, Model, ModelPair, refuse_overlap
from splitwiper_lab.attacks.membership.two_model import two_model


class Judges:
    """All attacks, trained on shadows: two models, labels only, loss before, loss after.

    They can judge one unlearning after another; which candidates were unlearned is used only for scoring. Shadows come
    from `shadow_pairs`.

    Raises:
        DataError: the shadows are unusable (see `shadows.check_shadows`).
    """

    def __init__(self, shadows: Sequence[ModelPair], *, seed: int = 0) -> None:
        self._shadows = shadows
        self._judges: list[Callable[[ModelPair], MembershipClaim]] = [
            two_model(shadows, seed=seed),
            label_only(shadows, seed=seed),
            loss(shadows, when="before"),
            loss(shadows, when="after"),
        ]

    def __call__(self, target: ModelPair, *, reference: Model | None = None) -> list[Outcome]:
        """Attack one unlearning.

        If there is a reference, a model trained without the unlearned rows, every attack that queries the model after
        also runs with it in place of the target's, and the outcomes are compared.

        Raises:
            DataError: some of the shadows' rows are also the target's.
        """
        refuse_overlap(target, self._shadows)
        knowledge = Knowledge.of(target, self._shadows)
        never = None if reference is None else replace(target, after=reference)
        outcomes = []
        for judge in self._judges:
            claim = judge(target)
            outcome = measure(claim, target, knowledge)
            if never is not None and outcome.attack != BEFORE:  # that one ignores the model after
                beside = claim if reference is target.after else judge(never)
                outcome = replace(outcome, comparison=against(outcome, measure(beside, never, knowledge)))
            outcomes.append(outcome)
        return outcomes
