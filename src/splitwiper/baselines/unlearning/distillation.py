"""Distillation with a preserver and a destroyer (Section 2.2): L = α L_u + (1 − α) L_r.

On rows that stay the student is to answer as the trained network did; on rows to be forgotten as one that learned
nothing. Both teachers are split like the student: besides what its own half computes a client sends what the right
teacher's does, so a batch takes twice the bytes up. No label is needed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from splitwiper.baselines.framework import Trained
from splitwiper.baselines.network import Network, build
from splitwiper.baselines.objectives import Objective, needed
from splitwiper.baselines.parties import Teachers
from splitwiper.baselines.problem import Forgetting
from splitwiper.baselines.schedules import Portion
from splitwiper.baselines.starting import starts
from splitwiper.baselines.training import Work
from splitwiper.baselines.unlearning.method import Adjusting, portions
from splitwiper.config.settings import bounded
from splitwiper.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Distillation(Adjusting):
    """The squared distance of outputs from the preserver's and the destroyer's.

    Attributes:
        alpha: the weight of forgetting.
        preserver: whom to follow on rows that stay; the trained network unless given.
        destroyer: whom to follow on the others; the network with its first weights unless given.
    """

    alpha: float = 0.5
    preserver: Network | None = None
    destroyer: Network | None = None

    name: ClassVar[str] = "distillation"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "alpha", 0, high=1)

    def needs(self, trained: Trained, forgetting: Forgetting) -> tuple[str, ...]:
        """Everybody: all rows are looked at."""
        return tuple(self._portions(trained, forgetting))

    def _portions(self, trained: Trained, forgetting: Forgetting) -> dict[str, Portion]:
        return portions(trained, forgetting)

    def work(self, trained: Trained, forgetting: Forgetting, network: Network) -> Work:
        """Follow two teachers."""
        teachers = Teachers(
            _teacher(self.preserver or trained.network, network),
            _teacher(self.destroyer or untrained(trained), network),
        )
        return Work(
            trained.framework,
            trained.problem,
            network,
            self._portions(trained, forgetting),
            purpose=self.name,
            recipe=self.recipe(trained),
            objective=Objective(self._loss, labels=False, marks=True),
            teachers=teachers,
        )

    def _loss(self, logits: Tensor, codes: Tensor | None, gone: Tensor, taught: Tensor | None) -> Tensor:
        each = (logits - needed(taught)).square().mean(dim=1)
        away, stay = gone.sum().clamp(min=1), (~gone).sum().clamp(min=1)
        return self.alpha * each[gone].sum() / away + (1 - self.alpha) * each[~gone].sum() / stay


def untrained(trained: Trained) -> Network:
    """The network as it was before anybody trained a part of it, with an output layer of its own draw."""
    framework, problem = trained.framework, trained.problem
    made = starts(problem, "scratch")
    return build(problem, made, tails=framework.tails, copies=framework.copies, purpose="destroyer")


def _teacher(teacher: Network, student: Network) -> Network:
    """A frozen copy.

    Raises:
        InputError: its outputs are not the student's.
    """
    for name, labels in student.labels.items():
        theirs = teacher.labels.get(name)
        if theirs != labels:
            said = "no part for it" if theirs is None else f"{len(theirs)} labels ({_names(theirs)})"
            raise InputError(
                f"a teacher must answer as the student does: for client {name!r} the student has {len(labels)} labels "
                f"({_names(labels)}), the teacher {said}. Train it on the same problem."
            )
        ours = {spec.name: (spec.shape, spec.dtype) for spec in student.halves[name].boundary}
        if {spec.name: (spec.shape, spec.dtype) for spec in teacher.halves[name].boundary} != ours:
            raise InputError(
                f"a teacher must be cut where the student is: for client {name!r} other tensors cross. Cut it there."
            )
        if bool(teacher.tails) != bool(student.tails):
            raise InputError("teacher and student hold their output layers on different sides; use one framework.")
    frozen = copy.deepcopy(teacher)
    for part in (*frozen.stems.values(), *frozen.halves.values(), *frozen.tails.values()):
        part.to(student.device).eval().requires_grad_(False)
        if student.device.type == "cuda":
            part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return frozen


def _names(labels: tuple[object, ...]) -> str:
    return ", ".join(str(getattr(label, "name", label)) for label in labels[:5]) + ("…" if labels[5:] else "")
