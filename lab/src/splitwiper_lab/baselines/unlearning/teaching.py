"""Unlearning by two teachers: one for rows that stay, and one, which learned nothing, for rows to forget.

Both teachers are split like the student: a client sends the right teacher's activations as well as its own half's, so
a batch sends twice the activations up and, where clients hold the head, twice the features down. No label is needed,
but the server learns which rows are to be forgotten.

- **Distillation** with a preserver and a destroyer (Section 2.2): L = α L_u + (1 − α) L_r. On rows that stay, the
  student should answer as the trained network did; on rows to forget, as a network that learned nothing.
- **Bad teaching** (Chundawat et al. 2023), by an incompetent teacher: the student follows probabilities, at a
  temperature, of the trained network on a part of the rows that stay, and of a network that learned nothing on rows to
  forget. Both kinds share a batch and have equal weight.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from splitwiper.config.settings import bounded
from splitwiper.errors import InputError
from splitwiper.seeding import Stream
from splitwiper.wire import Label
from splitwiper_lab.baselines.framework import Trained
from splitwiper_lab.baselines.network import Network, build
from splitwiper_lab.baselines.party import Objective, Teachers, needed
from splitwiper_lab.baselines.problem import Forgetting
from splitwiper_lab.baselines.schedules import Portion
from splitwiper_lab.baselines.starting import starts
from splitwiper_lab.baselines.unlearning.method import Adjusting, balanced, everything


@dataclass(frozen=True, kw_only=True)
class Teaching(Adjusting):
    """An unlearning method that follows teachers.

    Attributes:
        preserver: the teacher of rows that stay; by default the trained network.
        destroyer: the teacher of rows to forget; by default the network with its first weights.
    """

    preserver: Network | None = None
    destroyer: Network | None = None

    def teachers(self, trained: Trained, student: Network) -> Teachers:
        """Return both teachers, checked and frozen."""
        return Teachers(
            _frozen(self.preserver or trained.network, student),
            _frozen(self.destroyer or untrained(trained), student),
        )


def untrained(trained: Trained) -> Network:
    """Return the network before any training, with its own draw of the output layer."""
    framework, problem = trained.framework, trained.problem
    return build(
        problem,
        starts(problem, "scratch"),
        tails=framework.tails,
        copies=framework.copies,
        purpose="destroyer",
        labels=trained.network.labels,
    )


def _frozen(teacher: Network, student: Network) -> Network:
    """Return a copy of the teacher that does not learn.

    Raises:
        InputError: its outputs are not the student's.
    """
    for name, labels in student.labels.items():
        theirs = teacher.labels.get(name)
        if theirs != labels:
            answers = "no part for it" if theirs is None else f"{len(theirs)} labels ({_names(theirs)})"
            raise InputError(
                f"a teacher must answer as the student does: for client {name!r} the student has {len(labels)} labels "
                f"({_names(labels)}), the teacher {answers}. Train it on the same problem."
            )
        if _crossing(teacher, name) != _crossing(student, name):
            raise InputError(
                f"a teacher must be cut where the student is: for client {name!r} other tensors cross. Cut it there."
            )
        if bool(teacher.tails) != bool(student.tails):
            raise InputError("teacher and student hold their output layers on different sides; use one framework.")
    # a copy: the student may be the same network, and is trained in place
    frozen = copy.deepcopy(teacher)
    for part in (*frozen.stems.values(), *frozen.halves.values(), *frozen.tails.values()):
        part.to(student.device).eval().requires_grad_(False)
        if student.device.type == "cuda":
            part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return frozen


def _crossing(network: Network, client: str) -> dict[str, tuple[object, object]]:
    """Return the shape and the type of every tensor that crosses the cut."""
    return {spec.name: (spec.shape, spec.dtype) for spec in network.halves[client].boundary}


def _names(labels: tuple[Label, ...]) -> str:
    return ", ".join([str(label.name) for label in labels[:5]]) + ("…" if labels[5:] else "")


@dataclass(frozen=True, kw_only=True)
class Distillation(Teaching):
    """The mean squared distance of outputs from the preserver's and the destroyer's.

    Attributes:
        alpha: the weight of forgetting.
    """

    alpha: float = 0.5

    name: ClassVar[str] = "distillation"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "alpha", 0, high=1)

    def objective(self, chosen: Mapping[str, Portion]) -> Objective:
        """Return the objective: follow the destroyer on rows to forget and the preserver on all others."""
        stay, go = balanced(chosen, kept=1 - self.alpha, gone=self.alpha)

        def loss(logits: Tensor, codes: Tensor | None, gone: Tensor, taught: Tensor | None) -> Tensor:
            # rows × labels to one distance per row; the mask chooses its weight, and the client its teacher
            each = (logits - needed(taught)).square().mean(dim=1)
            return torch.where(gone, go * each, stay * each).mean()

        return Objective(loss, labels=False, marks=True)


@dataclass(frozen=True, kw_only=True)
class IncompetentTeacher(Teaching):
    """Kullback-Leibler distance from the right teacher's probabilities, row by row.

    Attributes:
        share: of the rows that stay, the part that is looked at.
        temperature: of all probabilities.
    """

    share: float = 0.3
    temperature: float = 1.0

    name: ClassVar[str] = "incompetent-teacher"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "share", 0, strict=True, high=1)
        bounded(self, "temperature", 0, strict=True)

    def portions(self, trained: Trained, forgetting: Forgetting) -> dict[str, Portion]:
        """Return a part of the rows that stay, and all rows to forget."""
        chosen = {}
        for name, portion in everything(trained, forgetting).items():
            order = Stream(trained.problem.config.seed, "incompetent-teacher", name).permutation(len(portion.kept))
            part = Portion(portion.kept[order[: round(self.share * len(order))]], portion.gone)
            if len(part):
                chosen[name] = part
        return chosen

    def objective(self, chosen: Mapping[str, Portion]) -> Objective:
        """Return the objective: follow the teacher of each row."""

        def loss(logits: Tensor, codes: Tensor | None, gone: Tensor, taught: Tensor | None) -> Tensor:
            # KL(teacher ‖ student), per row; logarithms throughout, as a temperature below 1 makes probabilities tiny
            ours = functional.log_softmax(logits / self.temperature, dim=1)
            theirs = functional.log_softmax(needed(taught) / self.temperature, dim=1)
            return functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")

        return Objective(loss, labels=False, marks=True)
