"""Group codes by label: what codes' activations, features, neighbours and counts say about which belong together.

- **Mean activations** (k-means and BIRCH in the paper, and Ward's method). Averaging over many rows removes noise, so
  these attacks work on noisy activations too. If the number of labels is not known, it is estimated from the means.
- **The server's own half** learned to distinguish codes. Codes of one label cannot be distinguished, so their features
  coincide at every depth, their rows are confused with each other, and their rows of the output layer become similar.
- **Neighbours.** Label expansion by duplication sends every row once per code of its label. Copies are nearly the same
  however noisy they are, so a row's nearest neighbour under another code identifies a sibling code. Where rows are not
  copied, nearest neighbours still mostly share the label, and the attack works less well. Rows are compared within an
  upload, along their main axes, where noise has the least influence.
- **Counts** need no activations. Codes of one label have the same number of rows at every client when rows are
  duplicated, and nearly the same when rows are assigned to codes at random. All uploads ever received are used, erased
  ones included.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from sklearn.cluster import Birch
from torch import Tensor

from splitwiper.formats import percent
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.evidence import OUTPUT, RAW, Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.kmeans import METHODS, kmeans, means
from splitwiper_lab.attacks.linkage import merge_distances, merge_points

_AXES = 20
"""Main axes the gap statistic uses: with more axes, the box around a few points is almost empty."""
_NEAR, _FAR = 3, 12
"""Ranks of neighbours: up to the first they link codes; at the second a neighbour is certainly not a copy."""
_COPY = 0.2
"""A neighbour counts as a copy if its distance is below this fraction of a certain non-copy's."""
_BLOCK = 1 << 26


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
    weights = half.output_layer.weight.detach().float().cpu()[_columns(evidence).cpu()]  # codes × features
    yield evidence.of_tree(title, merge_points(weights.numpy()), labels)


def _columns(evidence: Evidence) -> Tensor:
    """Return the index of the half's output for each code in the rows."""
    outputs = {evidence.view.numbers.get(label): output for output, label in enumerate(evidence.view.labels)}
    return torch.tensor([outputs[code] for code in evidence.numbers], device=evidence.device)


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


def counts(evidence: Evidence) -> Array:
    """Count the rows of each code in each upload: codes × uploads."""
    table = np.zeros((len(evidence.numbers), len(evidence.view.uploads)), np.int64)
    for column, seen in enumerate(evidence.view.uploads):
        sizes = Counter(evidence.view.codes_of(seen).tolist())
        # codes that only erased uploads have are left out: the claims are about present rows
        table[:, column] = [sizes[code] for code in evidence.numbers]
    return table


def equal_counts(evidence: Evidence) -> Iterator[AttackFinding]:
    """Group codes with exactly the same counts everywhere, and, separately, codes that the same clients hold."""
    table = counts(evidence)
    for title, values in (("equal row counts", table), ("same clients", table > 0)):
        if nothing := one_code(evidence, title):
            yield nothing
            continue
        clusters = np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)
        uploads = table.shape[1]
        yield evidence.of_codes(title, clusters, notes="" if uploads > 1 else "there is a single upload to compare")


def like_counts(evidence: Evidence, labels: int | None = None) -> Iterator[AttackFinding]:
    """Run Ward's method on square roots of counts: the root's random variation does not depend on the count."""
    title = "like row counts"
    if nothing := one_code(evidence, title):
        yield nothing
        return
    yield evidence.of_tree(title, merge_points(2 * np.sqrt(counts(evidence) + 3 / 8)), labels)  # Anscombe's root
