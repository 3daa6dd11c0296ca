"""Split every code into cells, then merge cells across codes: the attack on codes that several labels share.

Where a code mixes labels, its mean says nothing, but k-means inside the code separates the labels. Ward's method then
merges cells of different codes. Cells of one code can be kept apart: with keyed codes, they stand for different
labels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.kmeans import kmeans, means
from splitwiper_lab.attacks.linkage import merge_points

CELLS = (3, 6)
"""Cells per code; the quick attack tries only the first number."""


def merged_cells(evidence: Evidence, labels: int) -> Iterator[AttackFinding]:
    """Apply Ward's method to the cells of codes, with and without keeping the cells of a code apart."""
    if not len(evidence.index) or labels < 1:
        yield AttackFinding("cells of codes, merged", knows="Q", notes="there are no rows")
        return
    for name, whiten in evidence.views:
        for number in CELLS[:1] if evidence.quick else CELLS:
            points = evidence.reduced(name, whiten=whiten)
            cells, codes = _cells(evidence, points, number)
            centres = means(points, cells, len(codes)).cpu().numpy()
            sizes = torch.bincount(cells, minlength=len(codes)).cpu().numpy()
            for apart in (False, True):
                store = merge_points(centres, sizes, cannot=codes[:, None] == codes[None] if apart else None)
                title = f"{number} cells a code by {name}, merged{', kept apart' if apart else ''}"
                yield evidence.of_rows(title, store.cut(labels)[cells.cpu().numpy()], knows="Q")


def merged(evidence: Evidence, points: Tensor, labels: int) -> Tensor:
    """Return the label of each row by Ward's method on cells, without constraints."""
    cells, codes = _cells(evidence, points, CELLS[0])
    sizes = torch.bincount(cells, minlength=len(codes)).cpu().numpy()
    store = merge_points(means(points, cells, len(codes)).cpu().numpy(), sizes)
    return torch.from_numpy(store.cut(labels)).to(cells.device)[cells]


def _cells(
    evidence: Evidence, points: Tensor, number: int
) -> tuple[Tensor, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the cell of each row, and the code of each cell."""
    cells = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    owner: list[int] = []
    for code in range(len(evidence.numbers)):
        here = torch.nonzero(evidence.codes == code)[:, 0]
        found = kmeans(points[here], number, seed=evidence.seed, restarts=2, iterations=30)
        cells[here] = found.labels + len(owner)
        owner += [code] * len(found.centres)
    return cells, np.array(owner)
