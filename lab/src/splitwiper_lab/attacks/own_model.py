"""Group codes by how the server's own trained half represents them.

The half learned to distinguish codes. Codes of one label cannot be distinguished, so their features coincide at every
depth, their rows are confused with each other, and their rows of the output layer become similar.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from splitwiper_lab.attacks.code_means import one_code
from splitwiper_lab.attacks.evidence import OUTPUT, Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.kmeans import means
from splitwiper_lab.attacks.linkage import merge_distances, merge_points


def feature_means(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run Ward's method on the codes' mean features, one finding per depth."""
    for depth in evidence.depths:
        title = f"trained features at {depth}, agglomerative"
        if nothing := one_code(evidence, title):
            yield nothing
            return
        yield evidence.of_tree(title, merge_points(evidence.code_means(depth).cpu().numpy()), labels)
    if not evidence.depths:
        yield AttackFinding("trained features, agglomerative", notes="the server has no trained half")


def confusion(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run average linkage on how often the half confuses two codes."""
    title = "confusion of the own model"
    if not evidence.depths:
        yield AttackFinding(title, notes="the server has no trained half")
        return
    if nothing := one_code(evidence, title):
        yield nothing
        return
    # the half's output is kept as square roots, see `Evidence.rows`; codes × outputs
    shares = means(evidence.rows[OUTPUT].square(), evidence.codes, len(evidence.numbers)).double()
    mixed = shares[:, _columns(evidence)]  # codes × codes: mean probability of each code's output
    both = (mixed + mixed.T) / 2
    # relative to how sure the half is of either code: a rare or hard code is confused with all others
    own = both.diagonal().clamp_min(1e-12).sqrt()
    likeness = (both / (own[:, None] * own[None])).clamp(0, 1)
    yield evidence.of_tree(title, merge_distances((1 - likeness).cpu().numpy()), labels)


def head_rows(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run Ward's method on the rows of the half's output layer."""
    title = "rows of the own output layer"
    half = evidence.view.half
    if half is None:
        yield AttackFinding(title, notes="the server has no trained half")
        return
    if nothing := one_code(evidence, title):
        yield nothing
        return
    weights = half.head.weight.detach().float().cpu()[_columns(evidence).cpu()]  # codes × features
    yield evidence.of_tree(title, merge_points(weights.numpy()), labels)


def _columns(evidence: Evidence) -> Tensor:
    """Return the index of the half's output for each code in the rows."""
    outputs = {evidence.view.numbers.get(label): output for output, label in enumerate(evidence.view.labels)}
    return torch.tensor([outputs[code] for code in evidence.numbers], device=evidence.device)
