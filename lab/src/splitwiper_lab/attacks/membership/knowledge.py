"""The attacker's own knowledge: which labels and tasks it knows, and that it shares no row with the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from splitwiper.errors import DataError
from splitwiper.wire import Label
from splitwiper_lab.attacks.membership.pairs import ModelPair
from splitwiper_lab.attacks.membership.sample import Sample


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
    """Refuse an attacker whose own rows are also the target's: it would already know what it should find out.

    Args:
        target: the pair under attack.
        own: the attacker's rows, or shadows trained on them.

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
