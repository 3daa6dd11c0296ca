"""Teachers, one for rows that stay and one for rows to forget: what distillation and bad teaching share.

Both teachers are split like the student: a client sends the right teacher's activations as well as its own half's, so
a batch sends twice the activations up and, where clients hold the head, twice the features down. No label is needed,
but the server learns which rows are to be forgotten.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from splitwiper.errors import InputError
from splitwiper.wire import Label
from splitwiper_lab.baselines.framework import Trained
from splitwiper_lab.baselines.network import Network, build
from splitwiper_lab.baselines.party import Teachers
from splitwiper_lab.baselines.starting import starts
from splitwiper_lab.baselines.unlearning.method import Adjusting


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
            said = "no part for it" if theirs is None else f"{len(theirs)} labels ({_names(theirs)})"
            raise InputError(
                f"a teacher must answer as the student does: for client {name!r} the student has {len(labels)} labels "
                f"({_names(labels)}), the teacher {said}. Train it on the same problem."
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
