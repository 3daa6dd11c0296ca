"""Group codes by how many rows of them each client sent: no activations needed.

Codes of one label have the same number of rows at every client when rows are duplicated, and nearly the same when
rows are assigned to codes at random. All uploads ever received are used, erased ones included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.code_means import one_code
from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.linkage import merge_points


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
