"""Cluster rows without using codes: what activations reveal whatever the codes are.

K-means with the number of labels, on raw activations and on the server's own trained features at several depths,
whitened and not. Each is a finding of its own: none is selected by the truth.
"""

from __future__ import annotations

from collections.abc import Iterator

from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.kmeans import kmeans


def row_clusters(evidence: Evidence, labels: int) -> Iterator[AttackFinding]:
    """Run k-means on rows."""
    if not len(evidence.index) or labels < 1:
        yield AttackFinding("rows, k-means", knows="Q", notes="there are no rows")
        return
    for name in evidence.rows:
        for whiten in (False, True):
            title = f"rows by {name}, k-means{', whitened' if whiten else ''}"
            points = evidence.reduced(name, whiten=whiten)
            found = kmeans(points, labels, seed=evidence.seed, restarts=evidence.restarts)
            yield evidence.of_rows(title, found.labels.cpu().numpy(), knows="Q")
