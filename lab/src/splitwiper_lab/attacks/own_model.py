"""Group codes by what the server's own trained half makes of them.

The half learned to tell codes apart. Codes of one label cannot be told apart, so their features coincide at every
depth, their rows are confused with each other, and the rows of the output layer grow alike.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from splitwiper_lab.attacks.code_means import one_code
from splitwiper_lab.attacks.evidence import OUTPUT, Evidence
from splitwiper_lab.attacks.finding import Finding
from splitwiper_lab.attacks.kmeans import means
from splitwiper_lab.attacks.merging import merge_distances, merge_points


def feature_means(evidence: Evidence, labels: int | None = None) -> Iterator[Finding]:
    """Ward's method on the codes' mean features, one claim per depth."""
    for depth in evidence.depths:
        title = f"trained features at {depth}, agglomerative"
        if nothing := one_code(evidence, title):
            yield nothing
            return
        tree = merge_points(evidence.code_means(depth).cpu().numpy())
        yield evidence.of_codes(title, tree.cut(labels or tree.jump()), knows="Q" if labels else "")
    if not evidence.depths:
        yield Finding("trained features, agglomerative", notes="the server has no trained half")


def confusion(evidence: Evidence, labels: int | None = None) -> Iterator[Finding]:
    """Average linkage on how often the half confuses two codes."""
    title = "confusion of the own model"
    if not evidence.depths:
        yield Finding(title, notes="the server has no trained half")
        return
    if nothing := one_code(evidence, title):
        yield nothing
        return
    shares = means(evidence.rows[OUTPUT].square(), evidence.codes, len(evidence.numbers)).double()
    mixed = shares[:, _columns(evidence)]  # codes × codes: where the probability of a code's rows goes
    both = (mixed + mixed.T) / 2
    own = both.diagonal().clamp_min(1e-12).sqrt()
    likeness = (both / (own[:, None] * own[None])).clamp(0, 1)
    tree = merge_distances((1 - likeness).cpu().numpy())
    yield evidence.of_codes(title, tree.cut(labels or tree.jump()), knows="Q" if labels else "")


def head_rows(evidence: Evidence, labels: int | None = None) -> Iterator[Finding]:
    """Ward's method on the rows of the half's output layer."""
    title = "rows of the own output layer"
    half = evidence.view.half
    if half is None:
        yield Finding(title, notes="the server has no trained half")
        return
    if nothing := one_code(evidence, title):
        yield nothing
        return
    weights = half.head.weight.detach().float().cpu()[_columns(evidence).cpu()]
    tree = merge_points(weights.numpy())
    yield evidence.of_codes(title, tree.cut(labels or tree.jump()), knows="Q" if labels else "")


def _columns(evidence: Evidence) -> Tensor:
    """The half's output for each code that rows have."""
    numbers = evidence.view.numbers
    place = {numbers[label]: at for at, label in enumerate(evidence.view.labels) if label in numbers}
    return torch.tensor([place[code] for code in evidence.numbers], device=evidence.device)
