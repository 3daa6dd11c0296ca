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

from splitwiper_lab.attacks.choosing_k import METHODS
from splitwiper_lab.attacks.evidence import RAW, Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.kmeans import kmeans
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
    points, seed, restarts = evidence.code_means(RAW), evidence.seed, evidence.restarts
    numbers = {title: labels} if labels is not None else {}
    if labels is None:
        for name, method in METHODS.items():
            axes = points[:, :_AXES] if name == "gap" else points
            numbers[f"{title}, {name}"] = method(axes, seed=seed, restarts=restarts)
    for attack, number in numbers.items():
        # there are few points, so many restarts are cheap
        clusters = kmeans(points, number, seed=seed, restarts=16 * restarts).labels
        yield evidence.of_codes(attack, clusters.cpu().numpy(), knows="" if labels is None else "Q")


def birch_means(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run BIRCH on the codes' mean activations (an appendix of the paper)."""
    title = "code means, BIRCH"
    if nothing := one_code(evidence, title):
        yield nothing
        return
    points = evidence.code_means(RAW)
    # BIRCH's threshold is a distance, so the usual distance is made 1, whatever the activations' scale
    usual = torch.pdist(points).median().clamp_min(1e-12)
    scaled = (points / usual).cpu().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer sub-clusters than requested is a valid answer
        clusters = Birch(threshold=1e-3 if labels else 0.3, n_clusters=labels).fit_predict(scaled)
    yield evidence.of_codes(title, np.asarray(clusters), knows="Q" if labels else "")


def merged_means(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run Ward's method on the codes' mean activations; without Q, stop before the largest jump in height."""
    title = "code means, agglomerative"
    if nothing := one_code(evidence, title):
        yield nothing
        return
    yield evidence.of_tree(title, merge_points(evidence.code_means(RAW).cpu().numpy()), labels)
