"""Cluster rows into labels: without their codes, in cells of each code, and by a mixture that uses both.

Each representation, and each way to whiten or constrain it, is a finding of its own: none is selected by the truth.

- K-means with the number of labels shows what activations reveal, whatever the codes are.
- Where a code mixes labels, its mean says nothing, but k-means inside the code, into cells, separates the labels. Then
  Ward's method merges cells of different codes. Cells of one code can be kept apart: with keyed codes, they stand for
  different labels.
- The mixture has one Gaussian per label, and each code has its own label shares. It is the strongest attack on codes
  that several labels share: activations show which rows are similar, and a code limits the labels its rows can have.
  Expectation-maximisation fits both together, from two starts; the likelihood, which needs no truth, selects one.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.kmeans import kmeans, means
from splitwiper_lab.attacks.linkage import Tree, merge_points

CELLS = (3, 6)
"""Cells per code; the quick attack tries only the first number."""
AXES = 32
"""Number of main axes that the mixture uses."""
_ROUNDS = 30
_SHARE = 1e-3
"""The least share of a label in a code, so that no label is ever ruled out."""


def row_clusters(evidence: Evidence, labels: int) -> Iterator[AttackFinding]:
    """Run k-means on rows."""
    if not len(evidence.index) or labels < 1:
        yield AttackFinding("rows, k-means", knows="Q", notes="there are no rows")
        return
    for name in evidence.rows:
        for whiten in (False, True):
            title = f"rows by {name}, k-means{', whitened' if whiten else ''}"
            points = evidence.reduced(name, whiten=whiten)
            clusters = kmeans(points, labels, seed=evidence.seed, restarts=evidence.restarts)
            yield evidence.of_rows(title, clusters.labels.cpu().numpy(), knows="Q")


def merged_cells(evidence: Evidence, labels: int) -> Iterator[AttackFinding]:
    """Apply Ward's method to the cells of codes, with and without keeping the cells of a code apart."""
    if not len(evidence.index) or labels < 1:
        yield AttackFinding("cells of codes, merged", knows="Q", notes="there are no rows")
        return
    for name, whiten in evidence.views:
        for number in CELLS[:1] if evidence.quick else CELLS:
            points = evidence.reduced(name, whiten=whiten)
            cells, codes = _cells(evidence, points, number)
            for apart in (False, True):
                same_code = codes[:, None] == codes[None]  # cells × cells
                tree = _merged(points, cells, len(codes), cannot=same_code if apart else None)
                title = f"{number} cells a code by {name}, merged{', kept apart' if apart else ''}"
                yield evidence.of_rows(title, tree.cut(labels)[cells.cpu().numpy()], knows="Q")


def _cells(evidence: Evidence, points: Tensor, number: int) -> tuple[Tensor, Array]:
    """Return the cell of each row, and the code of each cell."""
    cells = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    codes: list[int] = []
    for code in range(len(evidence.numbers)):
        here = torch.nonzero(evidence.codes == code)[:, 0]
        clusters = kmeans(points[here], number, seed=evidence.seed, restarts=2, iterations=30)
        cells[here] = clusters.labels + len(codes)  # numbered on from the cells of earlier codes
        codes += [code] * len(clusters.centres)
    return cells, np.array(codes)


def _merged(points: Tensor, cells: Tensor, count: int, *, cannot: Array | None = None) -> Tree:
    """Merge ``count`` cells by Ward's method, each with the weight of its rows."""
    sizes = torch.bincount(cells, minlength=count)  # a cell is empty where a code's rows are identical
    centres = means(points, cells, count)
    return merge_points(centres.cpu().numpy(), sizes.cpu().numpy(), cannot=cannot)


def code_mixture(evidence: Evidence, labels: int) -> Iterator[AttackFinding]:
    """Fit the mixture to rows and yield one finding per representation."""
    if not len(evidence.index) or labels < 1:
        yield AttackFinding("mixture with codes", knows="Q", notes="there are no rows")
        return
    for name, whiten in evidence.views:
        points = evidence.reduced(name, whiten=whiten)[:, :AXES]
        blind = kmeans(points, labels, seed=evidence.seed, restarts=evidence.restarts).labels
        cells, cell_codes = _cells(evidence, points, CELLS[0])
        tree = _merged(points, cells, len(cell_codes))
        merged = torch.from_numpy(tree.cut(labels)).to(cells.device)[cells]
        count = len(evidence.numbers)
        runs = [settled(points, evidence.codes, start, labels, count) for start in (blind, merged)]
        assigned, _ = max(runs, key=itemgetter(1))
        yield evidence.of_rows(f"mixture with codes by {name}", assigned.cpu().numpy(), knows="Q")


def settled(points: Tensor, codes: Tensor, start: Tensor, labels: int, count: int) -> tuple[Tensor, float]:
    """Return the label of each row, and the log-likelihood, after rounds of expectation-maximisation.

    There are as many labels and codes (``count``) as given; ``start`` has the initial label of each row.
    """
    belief = functional.one_hot(start, labels).to(points.dtype)  # rows × labels
    # keeps the covariance invertible where rows lie in fewer dimensions than they have axes
    least = 1e-3 * points.var(0).mean().clamp_min(1e-12) * torch.eye(points.shape[1], device=points.device)
    likelihood = float("-inf")
    for _ in range(_ROUNDS):
        sizes = belief.sum(0).clamp_min(1e-6)
        centres = belief.T @ points / sizes[:, None]
        # covariance shared by all labels: total scatter minus scatter between labels
        spread = (points.T @ points - (centres * sizes[:, None]).T @ centres) / len(points) + least
        turn = torch.linalg.inv(torch.linalg.cholesky(spread.double())).T.to(points.dtype)  # whitens within labels
        shares = (means(belief, codes, count) + _SHARE).log()  # codes × labels
        scores = shares[codes] - torch.cdist(points @ turn, centres @ turn).square() / 2
        total = scores.logsumexp(1, keepdim=True)
        belief = (scores - total).exp()
        # the Gaussian's normalisation: the logarithm of the determinant of ``turn``, once for each row
        likelihood = float(total.double().sum() + len(points) * turn.double().diagonal().log().sum())
    return belief.argmax(1), likelihood
