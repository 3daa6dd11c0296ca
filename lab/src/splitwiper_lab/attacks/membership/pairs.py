"""What the attacker can query, a model before and after an unlearning, and what it knows besides.

Models are black boxes that return posteriors. Outputs are identified by label, since the models of a pair may have
different outputs: a forgotten class has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Literal

import numpy as np

from splitwiper.errors import DataError
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership.sample import Inputs, Sample

Answers = Callable[[Inputs], Array]
"""A model as the attacker sees it: inputs in, posteriors out (rows × outputs, each row sums to 1)."""
_SUMS = 1e-2
"""How far from 1 a row of posteriors may sum: wide enough for half precision."""


@dataclass(frozen=True, eq=False)
class Model:
    """A black box, and the labels of its outputs.

    Raises:
        DataError: there are no outputs, or two of them stand for one label.
    """

    answers: Answers
    labels: Sequence[Label]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise DataError(f"{len(self.labels)} outputs stand for {len(set(self.labels))} labels; name each once.")

    @cached_property
    def places(self) -> dict[Label, int]:
        """The output index of each label."""
        return dict(zip(self.labels, range(len(self.labels)), strict=True))

    def posteriors(self, rows: Sample) -> Array:
        """Query the model and check its answer.

        Raises:
            DataError: the answer is not posteriors: not rows × outputs, not finite, or rows that do not sum to 1.
        """
        chances = np.asarray(self.answers(rows.inputs), np.float64)
        if chances.shape != (len(rows), len(self.labels)):
            raise DataError(
                f"a model answered with shape {list(chances.shape)}; {len(rows)} rows and {len(self.labels)} labels "
                f"make {[len(rows), len(self.labels)]}."
            )
        # attacks compare numbers of models that they did not make: one bad answer would spoil every score in silence
        if not np.isfinite(chances).all():
            raise DataError(f"a model's answers are not finite in {(~np.isfinite(chances)).any(1).sum()} rows.")
        wrong = (chances < -_SUMS).any(1) | (np.abs(chances.sum(1) - 1) > _SUMS)
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"a model's answers are not posteriors in {wrong.sum()} rows (row {row} sums to "
                f"{chances[row].sum():.3g}); apply softmax."
            )
        return chances.clip(0, 1)

    def outputs_of(self, labels: Sequence[Label]) -> Array:
        """Return the output index of each label; -1 for a label without an output."""
        return np.array([self.places.get(label, -1) for label in labels], np.int64)

    def own(self, posteriors: Array, labels: Sequence[Label]) -> Array:
        """Return the probability of each row's label; 0 if the model has no output for it."""
        places = self.outputs_of(labels)
        return np.where(places < 0, 0.0, posteriors[np.arange(len(places)), places])


def _form(sample: Sample) -> dict[str, object]:
    """Return the type and shape of one row of each input."""
    return {name: (values.dtype, values.shape[1:]) for name, values in sample.columns.items()}


@dataclass(frozen=True, eq=False)
class ModelPair:
    """A model before and after it unlearned some rows.

    Outsiders should have the same labels as unlearned rows, in similar shares; otherwise an attack that distinguishes
    labels appears to distinguish members. Outcomes note where they do not.

    Attributes:
        before: the model that was trained on the unlearned rows.
        after: the model that should know nothing about them.
        unlearned: the unlearned rows.
        outsiders: rows that neither model was trained on.
        retained: rows that both models were trained on. No attack uses them: they only serve to refuse outsiders and
            shadow rows that the target was trained on.

    Raises:
        DataError: there are no unlearned rows or no outsiders, or an outsider was in training.
    """

    before: Model
    after: Model
    unlearned: Sample
    outsiders: Sample
    retained: Sample | None = None

    def __post_init__(self) -> None:
        for kind, rows in (("unlearned rows", self.unlearned), ("outsiders", self.outsiders)):
            if not len(rows):
                raise DataError(f"there are no {kind}: both kinds are needed to tell them apart.")
        mine, others = _form(self.unlearned), _form(self.outsiders)
        if mine != others:
            raise DataError(f"unlearned rows and outsiders have different inputs: {mine} and {others}.")
        inside = len(self.trained & set(self.outsiders.digests))
        if inside:
            raise DataError(f"{inside} outsiders are also among the target's training rows; leave them out.")

    @cached_property
    def trained(self) -> frozenset[bytes]:
        """Digests of the rows that the model before was trained on, as far as they are known."""
        return frozenset(self.unlearned.digests) | frozenset(self.retained.digests if self.retained else ())

    @property
    def rows(self) -> frozenset[bytes]:
        """Digests of all rows of the pair."""
        return self.trained | set(self.outsiders.digests)

    @property
    def models(self) -> tuple[tuple[Model, frozenset[bytes]], ...]:
        """Both models, each with digests of the rows it is known to be trained on."""
        return (self.before, self.trained), (self.after, self.trained - set(self.unlearned.digests))

    @cached_property
    def candidates(self) -> Sample:
        """The unlearned rows, followed by the outsiders."""
        first, second = self.unlearned, self.outsiders
        both = {name: np.concatenate([first.columns[name], second.columns[name]]) for name in first.columns}
        inputs = both if isinstance(first.inputs, Mapping) else both[""]
        return Sample(inputs, (*first.labels, *second.labels))

    @cached_property
    def truth(self) -> Array:
        """A mask of the candidates that were unlearned."""
        return np.arange(len(self.unlearned) + len(self.outsiders)) < len(self.unlearned)


@dataclass(frozen=True)
class Knowledge:
    """What the attacker knows, derived from its shadows.

    Attributes:
        labels: "full" if the shadows know every label of the target, else "partial".
        tasks: "same" if the shadows have exactly the target's tasks, else "mixed".
    """

    labels: Literal["full", "partial"]
    tasks: Literal["same", "mixed"]

    @classmethod
    def of(cls, target: ModelPair, shadows: Sequence[ModelPair]) -> Knowledge:
        """Return the knowledge of an attacker with these shadows."""
        real, known = {*target.before.labels, *target.unlearned.labels}, set[Label]()
        for shadow in shadows:
            known.update(shadow.before.labels)
        task = attrgetter("task")
        same = set(map(task, real)) == set(map(task, known))
        return cls("full" if real <= known else "partial", "same" if same else "mixed")


def refuse_overlap(target: ModelPair, own: Sample | Sequence[ModelPair]) -> None:
    """Refuse an attacker whose own rows, or shadows', are also the target's: it would know what it should find out.

    Raises:
        DataError: rows overlap; the message gives their number.
    """
    mine: set[bytes] = set()
    if isinstance(own, Sample):
        mine.update(own.digests)
    else:
        for shadow in own:
            mine |= shadow.rows
    trained, outside = len(mine & target.trained), len(mine & set(target.outsiders.digests))
    if trained or outside:
        raise DataError(
            f"{trained + outside} shadow rows are also the target's ({trained} it was trained on, {outside} "
            "outsiders); the attacker's rows must be its own, so leave them out."
        )
