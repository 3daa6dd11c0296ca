"""Find out what was unlearned: compare an erased upload with its replacement.

Codes that are gone, or have fewer rows, show what was forgotten, and codes that vanish together belong together. To
find the missing rows, match the others: rows keep their order from upload to upload, unless it is shuffled, and their
activations stay similar although the client's half was retrained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.features import reduced
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.view import Place, SeenShard

_MOST = 2500
"""The most rows of a code that are compared pairwise."""


def vanished_codes(evidence: Evidence) -> Iterator[AttackFinding]:
    """Find codes with fewer rows in the next upload of a client, or that were withdrawn with the upload."""
    view, title = evidence.view, "codes that vanished"
    steps = _steps(evidence)
    if not steps:
        yield AttackFinding(title, notes="no upload was ever replaced or withdrawn")
        return
    vanished: dict[Place, Counter[int]] = {}
    together: set[frozenset[int]] = set()
    for old, new in steps:
        after = _sizes(view.codes_of(new)) if new else Counter()
        vanished[old.place] = fewer = _sizes(view.codes_of(old)) - after  # keeps codes that lost rows, and no others
        # a withdrawn upload takes all its codes with it, which says nothing about which belong together
        left = frozenset(fewer) - frozenset(after)
        if new and left:
            together.add(left)
    groups = tuple(sorted(together, key=sorted))
    grouped = frozenset().union(*groups)
    # groups are a claim only if some codes vanished together, and none is in two groups: else they contradict
    links = sum(map(len, groups)) == len(grouped) > len(groups)
    rest = tuple(frozenset({code}) for code in evidence.numbers if code not in grouped)  # each code by itself
    notes = f"{len(steps)} uploads replaced or withdrawn"
    yield AttackFinding(title, groups + rest if links else None, vanished=vanished, notes=notes)


def vanished_rows(evidence: Evidence) -> Iterator[AttackFinding]:
    """Find rows of an upload that the next one lacks, once assuming kept order and once by similarity only."""
    pairs = [(old, new) for old, new in _steps(evidence) if new is not None]
    for title, match in (("rows that vanished, in order", in_order), ("rows that vanished, by likeness", by_likeness)):
        if not pairs:
            yield AttackFinding(title, notes="no upload was ever replaced")
            continue
        gone, vanished = {}, {}
        for old, new in pairs:
            mask = _gone(evidence, old, new, match)
            gone[old.place], vanished[old.place] = mask, _sizes(evidence.view.codes_of(old)[mask])
        yield AttackFinding(title, vanished=vanished, gone=gone)


def _steps(evidence: Evidence) -> list[tuple[SeenShard, SeenShard | None]]:
    """Return replaced uploads with their replacements; the replacement of a withdrawn shard is None."""
    held = evidence.view.held
    steps: list[tuple[SeenShard, SeenShard | None]] = []
    following: dict[str, SeenShard] = {}
    for seen in reversed(evidence.view.uploads):
        later = following.get(seen.client)
        if later is not None or (held is not None and seen.client not in held):
            steps.append((seen, later))
        following[seen.client] = seen
    return steps[::-1]


def _sizes(codes: Array) -> Counter[int]:
    """Count the rows of each code."""
    return Counter(np.sort(codes).tolist())  # sorted, so that codes are listed in one order


def _gone(evidence: Evidence, old: SeenShard, new: SeenShard, match: Callable[[Array], Array]) -> Array:
    """Mark rows of the old upload that have no counterpart in the new one, code by code."""
    raw = []
    for seen in (old, new):
        values = evidence.raw_of(seen)
        # the half was retrained in between: only its rows' relative positions can be compared
        raw.append((values - values.mean(0)) / values.std(0, correction=0).clamp_min(1e-6))
    points = reduced(torch.cat(raw)).cpu()  # axes that both uploads share
    before, after = points[: old.shard.rows], points[old.shard.rows :]
    old_codes, new_codes = evidence.view.codes_of(old), evidence.view.codes_of(new)
    gone = np.zeros(old.shard.rows, bool)
    for code in np.unique(old_codes):
        mine, theirs = np.flatnonzero(old_codes == code), np.flatnonzero(new_codes == code)
        if not len(theirs):
            gone[mine] = True
        elif len(theirs) < len(mine) <= _MOST:  # an assignment takes time in the cube of its rows
            apart = torch.cdist(after[theirs], before[mine]).square().double().numpy()  # new × old
            gone[mine] = ~match(apart)
    return gone


def by_likeness(apart: Array) -> Array:
    """Mark old rows (columns) that match a new row (rows), under the assignment with the least total distance.

    >>> by_likeness(np.array([[0.0, 9.0, 9.0], [9.0, 9.0, 1.0]])).tolist()
    [True, False, True]
    """
    matched = np.zeros(apart.shape[1], bool)
    matched[linear_sum_assignment(apart)[1]] = True
    return matched


def in_order(apart: Array) -> Array:
    """Mark old rows as `by_likeness` does, but keep the rows' order: skip the surplus old rows at the least total cost.

    >>> in_order(np.array([[5.0, 9.0, 0.0], [9.0, 9.0, 1.0]])).tolist()
    [True, False, True]
    """
    rows, columns = apart.shape
    spare = columns - rows
    # Dynamic programming. The state after new row i is the number of old rows skipped so far, 0 … spare; new row i
    # then stands for old row i + skipped. Skipping is free and cannot be undone, so the best way to have skipped k
    # rows is the best of all ways to have skipped at most k: a running minimum.
    places = np.arange(rows)[:, None] + np.arange(spare + 1)[None]
    costs = np.take_along_axis(apart, places, axis=1)
    best = np.zeros(spare + 1)
    comes_from = np.empty((rows, spare + 1), np.int64)
    for i in range(rows):
        best = np.minimum.accumulate(best)
        # where the running minimum stays, the state comes from the last place at which it fell
        change = np.r_[True, best[1:] < best[:-1]]
        comes_from[i] = np.maximum.accumulate(np.where(change, np.arange(spare + 1), 0))
        best = best + costs[i]
    matched = np.zeros(columns, bool)
    left_out = int(best.argmin())
    for i in reversed(range(rows)):  # follow the choices back
        matched[i + left_out] = True
        left_out = int(comes_from[i, left_out])
    return matched
