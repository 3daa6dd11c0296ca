"""Split every code into cells, then merge cells across codes: the attack on codes that labels share.

Where a code mixes labels, its mean says nothing, but k-means inside the code finds the labels in it. Ward's method
then brings cells of different codes together. Cells of one code may be kept apart: where codes are keyed, they stand
for different labels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import Finding
from splitwiper_lab.attacks.kmeans import kmeans, means
from splitwiper_lab.attacks.merging import merge_points

CELLS = (3, 6)
"""Cells in a code; the quick attack tries the first number alone."""


def merged_cells(evidence: Evidence, labels: int) -> Iterator[Finding]:
    """Ward's method on the cells of codes, with and without keeping a code's cells apart."""
    if not len(evidence.index) or labels < 1:
        yield Finding("cells of codes, merged", knows="Q", notes="there are no rows")
        return
    for name, whiten in evidence.views:
        for number in CELLS[:1] if evidence.quick else CELLS:
            points = evidence.reduced(name, whiten=whiten)
            cells, codes = _cells(evidence, points, number)
            centres = means(points, cells, len(codes)).cpu().numpy()
            sizes = torch.bincount(cells, minlength=len(codes)).cpu().numpy()
            for apart in (False, True):
                tree = merge_points(centres, sizes, cannot=codes[:, None] == codes[None] if apart else None)
                title = f"{number} cells a code by {name}, merged{', kept apart' if apart else ''}"
                yield evidence.of_rows(title, tree.cut(labels)[cells.cpu().numpy()], knows="Q")


def merged(evidence: Evidence, points: Tensor, labels: int) -> Tensor:
    """The label of each row by cells, merged freely."""
    cells, codes = _cells(evidence, points, CELLS[0])
    sizes = torch.bincount(cells, minlength=len(codes)).cpu().numpy()
    tree = merge_points(means(points, cells, len(codes)).cpu().numpy(), sizes)
    return torch.from_numpy(tree.cut(labels)).to(cells.device)[cells]


def _cells(
    evidence: Evidence, points: Tensor, number: int
) -> tuple[Tensor, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The cell of each row, and the code of each cell."""
    cells = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    owner: list[int] = []
    for code in range(len(evidence.numbers)):
        here = torch.nonzero(evidence.codes == code)[:, 0]
        found = kmeans(points[here], number, seed=evidence.seed, restarts=2, iterations=30)
        cells[here] = found.labels + len(owner)
        owner += [code] * len(found.centres)
    return cells, np.array(owner)
