"""Group codes by the mean activation of their rows: the paper's attacks (k-means and BIRCH), and Ward's method.

Averaging over many rows removes noise, so these attacks work on noisy activations too. If the number of labels is not
known, it is estimated from the means.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import torch
from sklearn.cluster import Birch

from splitwiper_lab.attacks.choosing_k import METHODS, clustered
from splitwiper_lab.attacks.evidence import RAW, Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.linkage import merge_points

_AXES = 20
"""Main axes the gap statistic uses: with more axes, the box around a few points is almost empty."""


def one_code(evidence: Evidence, attack: str) -> AttackFinding | None:
    """Return the finding of an attack on codes if there are fewer than two codes to group, else None."""
    if len(evidence.numbers) > 1:
        return None
    return AttackFinding(attack, notes="the server sees fewer than two codes: there is nothing to group")


def kmeans_means(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run k-means on the codes' mean activations (Section 6.4 of the paper)."""
    title = "code means, k-means"
    if nothing := one_code(evidence, title):
        yield nothing
        return
    points = evidence.code_means(RAW)
    how = {"seed": evidence.seed, "restarts": evidence.restarts}
    if labels is not None:
        found = clustered(points, labels, **how)
        yield evidence.of_codes(title, found.labels.cpu().numpy(), knows="Q")
        return
    for name, method in METHODS.items():
        number = method(points[:, :_AXES] if name == "gap" else points, **how)
        found = clustered(points, number, **how)
        yield evidence.of_codes(f"{title}, {name}", found.labels.cpu().numpy())


def birch_means(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run BIRCH on the codes' mean activations (an appendix of the paper)."""
    title = "code means, BIRCH"
    if nothing := one_code(evidence, title):
        yield nothing
        return
    points = evidence.code_means(RAW)
    apart = torch.pdist(points).median().clamp_min(1e-12)
    scaled = (points / apart).cpu().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer sub-clusters than requested is a valid answer
        found = Birch(threshold=1e-3 if labels else 0.3, n_clusters=labels).fit_predict(scaled)
    yield evidence.of_codes(title, np.asarray(found), knows="Q" if labels else "")


def merged_means(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run Ward's method on the codes' mean activations; without Q, stop before the largest jump in height."""
    title = "code means, agglomerative"
    if nothing := one_code(evidence, title):
        yield nothing
        return
    store = merge_points(evidence.code_means(RAW).cpu().numpy())
    yield evidence.of_codes(title, store.cut(labels or store.jump()), knows="Q" if labels else "")
