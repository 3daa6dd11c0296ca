"""Cluster rows using their codes: a mixture with one Gaussian per label, where each code has its own label shares.

This is the strongest attack on codes that several labels share: activations show which rows are similar, and a code
limits the labels its rows can have. Expectation-maximisation fits both together, from two starts; the likelihood,
which needs no truth, selects one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from splitwiper_lab.attacks.cells import merged
from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.kmeans import kmeans, means

AXES = 32
"""Number of main axes used."""
_SHARE = 1e-3
"""The least share of a label in a code, so that no label is ever ruled out."""


def code_mixture(evidence: Evidence, labels: int) -> Iterator[AttackFinding]:
    """Fit the mixture to rows and yield one finding per representation."""
    if not len(evidence.index) or labels < 1:
        yield AttackFinding("mixture with codes", knows="Q", notes="there are no rows")
        return
    for name, whiten in evidence.views:
        points = evidence.reduced(name, whiten=whiten)[:, :AXES]
        blind = kmeans(points, labels, seed=evidence.seed, restarts=evidence.restarts).labels
        starts = (blind, merged(evidence, points, labels))
        runs = [settled(points, evidence.codes, start, labels, len(evidence.numbers)) for start in starts]
        found = max(runs, key=lambda run: run[1])[0]
        yield evidence.of_rows(f"mixture with codes by {name}", found.cpu().numpy(), knows="Q")


def settled(
    points: Tensor, codes: Tensor, start: Tensor, labels: int, count: int, *, rounds: int = 30
) -> tuple[Tensor, float]:
    """Return the label of each row, and the log-likelihood, after rounds of expectation-maximisation.

    Args:
        points: the rows.
        codes: the code of each row.
        start: the initial label of each row.
        labels: the number of labels.
        count: the number of codes.
        rounds: the number of rounds.
    """
    belief = functional.one_hot(start, labels).to(points.dtype)  # rows × labels
    least = 1e-3 * points.var(0).mean().clamp_min(1e-12) * torch.eye(points.shape[1], device=points.device)
    likelihood = float("-inf")
    for _ in range(rounds):
        sizes = belief.sum(0).clamp_min(1e-6)
        centres = belief.T @ points / sizes[:, None]
        # covariance shared by all labels: total scatter minus scatter between labels
        spread = (points.T @ points - (centres * sizes[:, None]).T @ centres) / len(points) + least
        turn = torch.linalg.inv(torch.linalg.cholesky(spread.double())).T.to(points.dtype)  # whitens within labels
        shares = (means(belief, codes, count) + _SHARE).log()
        scores = shares[codes] - torch.cdist(points @ turn, centres @ turn).square() / 2
        total = scores.logsumexp(1, keepdim=True)
        belief = (scores - total).exp()
        likelihood = float(total.double().sum() + len(points) * turn.double().diagonal().log().sum())
    return belief.argmax(1), likelihood
