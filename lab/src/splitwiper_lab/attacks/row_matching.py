"""Link codes whose rows are copies, or neighbours, of each other.

Label expansion by duplication sends every row once per code of its label. Copies are nearly the same however noisy
they are, so a row's nearest neighbour under another code identifies a sibling code. Where rows are not copied, nearest
neighbours still mostly share the label, and the attack works less well. Rows are compared within an upload, along
their main axes, where noise has the least influence.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from splitwiper.formats import percent
from splitwiper_lab.attacks.code_means import one_code
from splitwiper_lab.attacks.evidence import RAW, Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.linkage import merge_distances

_NEAR, _FAR = 3, 12
"""Ranks of neighbours: up to the first they link codes; at the second a neighbour is certainly not a copy."""
_COPY = 0.2
"""A neighbour counts as a copy if its distance is below this fraction of a certain non-copy's."""
_BLOCK = 1 << 26


def row_matching(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run average linkage on how often rows of two codes are nearest neighbours."""
    title = "nearest rows under other codes"
    if nothing := one_code(evidence, title):
        yield nothing
        return
    links, copies = _links(evidence, queries=1000 if evidence.quick else 4000)
    # large codes are neighbours of everything: only links beyond those of chance say that two codes belong together
    chance = links.sum(0, keepdim=True) * links.sum(1, keepdim=True) / links.sum().clamp_min(1)
    lift = links / chance.clamp_min(1e-9)
    likeness = torch.minimum(lift, lift.T)  # mutual: an outlier's nearest row need not have it as its own
    distances = 1 / (1 + likeness)
    notes = f"{percent(copies)} of rows have a copy under another code"
    yield evidence.of_tree(title, merge_distances(distances.cpu().numpy()), labels, notes=notes)


def _links(evidence: Evidence, *, queries: int) -> tuple[Tensor, float]:
    """Count how often nearest neighbours link two codes; also return the share of rows with copies."""
    points, codes, owners = evidence.reduced(RAW), evidence.codes, evidence.owners
    count = len(evidence.numbers)
    links = torch.zeros(count * count, device=points.device, dtype=torch.float64)
    generator = torch.Generator().manual_seed(evidence.seed)
    copied, asked = 0, 0
    for owner in range(len(evidence.view.present)):
        here = torch.nonzero(owners == owner)[:, 0]
        others, own = points[here], codes[here]
        chosen = torch.randperm(len(here), generator=generator)[:queries].to(points.device)
        for part in chosen.split(max(1, _BLOCK // max(1, len(here)))):
            apart = torch.cdist(others[part], others)  # rows of the part × rows of the upload
            apart[own[part][:, None] == own[None]] = torch.inf  # rows of the same code, itself included
            found = apart.topk(min(_FAR, len(here)), largest=False)
            near = found.indices[:, :_NEAR]
            # each pair of codes as one number, so that one count of numbers counts all pairs
            pairs = own[part][:, None] * count + own[near]
            links += torch.bincount(pairs[found.values[:, :_NEAR].isfinite()], minlength=count * count)
            # how far neighbours that are no copies are in this upload, whatever the activations' scale
            usual = found.values[:, -1].median()
            copied += int((found.values[:, 0] < _COPY * usual).sum()) if usual.isfinite() else 0
            asked += len(part)
    return links.view(count, count), copied / max(1, asked)
