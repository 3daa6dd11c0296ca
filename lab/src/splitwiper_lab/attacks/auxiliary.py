"""Attacks that know the labels of a few rows, for example from a colluding client, and infer the others from them.

Three methods: nearest mean, logistic regression, and logistic regression refined with the codes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.evidence import RAW, Evidence
from splitwiper_lab.attacks.features import reduced
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.kmeans import assigned, means
from splitwiper_lab.attacks.row_clusters import AXES, settled


def auxiliary(evidence: Evidence, known: Array) -> Iterator[AttackFinding]:
    """Attack by nearest mean and logistic regression, from rows whose labels are known; -1 for all others."""
    numbers = torch.from_numpy(known).to(evidence.device)
    here = numbers >= 0
    if not bool(here.any()):
        yield AttackFinding("a few known rows", knows="aux", notes="no row is known")
        return
    classes, labels = torch.unique(numbers[here], return_inverse=True)
    notes = f"{int(here.sum())} rows known"
    for name in (RAW, *evidence.depths[-2:]):
        points = evidence.reduced(name) if name == RAW else reduced(evidence.rows[name], 128)
        for how, read in _WAYS.items():
            claimed = classes[read(evidence, points, here, labels, len(classes))].cpu().numpy()
            claimed[known >= 0] = -1  # rows known beforehand do not count as recovered
            yield evidence.of_rows(f"a few known rows by {name}, {how}", claimed, knows="aux", notes=notes)


def _nearest(evidence: Evidence, points: Tensor, here: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the class of every row, by the nearest mean of known rows."""
    return assigned(points, means(points[here], labels, classes))[0]


def _regressed(evidence: Evidence, points: Tensor, here: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the class of every row, by multinomial logistic regression with a small L2 penalty."""
    points = points / points.std(0).mean().clamp_min(1e-12)  # so that one penalty fits every representation
    known = points[here]
    # the caller may have switched gradients off; tensors made there cannot have any, so they are copied
    with torch.inference_mode(False), torch.enable_grad():
        known = known.clone()
        weights = torch.zeros(points.shape[1] + 1, classes, device=points.device, requires_grad=True)
        optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = functional.cross_entropy(known @ weights[:-1] + weights[-1], labels)
            value = value + 1e-3 * weights[:-1].square().sum()
            value.backward()
            return value

        optimizer.step(loss)
    weights = weights.detach()
    return (points @ weights[:-1] + weights[-1]).argmax(1)


def _with_codes(evidence: Evidence, points: Tensor, here: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the class of every row, by a mixture with codes that starts from the regression."""
    start = _regressed(evidence, points, here, labels, classes)
    start[here] = labels  # known labels need no guessing
    return settled(points[:, :AXES], evidence.codes, start, classes, len(evidence.numbers))[0]


_WAYS = {"nearest mean": _nearest, "logistic regression": _regressed, "regression and codes": _with_codes}


def known_rows(labels: Array, per_class: int, *, seed: int = 0) -> Array:
    """Draw a few rows per class at random; return their labels, and -1 for all other rows."""
    order = np.random.default_rng(seed).permutation(len(labels))
    known = np.full(len(labels), -1, np.int64)
    for label in np.unique(labels[labels >= 0]):
        known[order[labels[order] == label][:per_class]] = label
    return known
