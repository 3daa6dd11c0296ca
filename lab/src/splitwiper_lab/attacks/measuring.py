"""Score an attack's claims against the truth.

Where a claim is ambiguous, the attacker gets the benefit of the doubt: clusters get the best one-to-one assignment to
labels, and codes that stand for no label are ignored.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
from scipy.optimize import linear_sum_assignment

from splitwiper.errors import InputError
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.finding import AttackFinding, AttackResult
from splitwiper_lab.attacks.truth import Truth
from splitwiper_lab.attacks.view import Place, SeenShard, ServerView


def measure(finding: AttackFinding, truth: Truth, view: ServerView, *, seconds: float = 0.0) -> AttackResult:
    """Score a finding against the truth.

    Raises:
        InputError: the truth does not fit the uploads.
    """
    codes = _codes_scores(finding, truth, view)
    estimated, real = finding.labels_estimated, labels_present(truth, view)
    return AttackResult(
        attack=finding.attack,
        perfect=codes[0],
        inclusive=codes[1],
        pair_f1=codes[2],
        sample_recovery=_recovery(finding, truth, view),
        labels_estimated=estimated,
        labels_error=None if estimated is None else estimated - real,
        knows=finding.knows,
        seconds=seconds,
        scores={**finding.scores, **_forgotten(finding, truth, view)},
        notes=finding.notes,
    )


def true_rows(truth: Truth, seen: SeenShard) -> Array:
    """Return the true labels of an upload's rows.

    Raises:
        InputError: the truth does not include the upload, or has another number of rows for it.
    """
    known = truth.rows.get(seen.place)
    if known is None or len(known) != seen.shard.rows:
        count = "nothing" if known is None else f"{len(known)} rows"
        raise InputError(
            f"the truth says {count} of upload {seen.generation} of client {seen.client!r}, which has "
            f"{seen.shard.rows} rows; take it from the same state of the run."
        )
    return known


def labels_present(truth: Truth, view: ServerView) -> int:
    """Return Q, the number of labels among the rows that the server holds now."""
    found = [np.unique(true_rows(truth, seen)) for seen in view.present]
    return int((np.unique(np.concatenate(found)) >= 0).sum()) if found else 0


def row_codes(seen: SeenShard, view: ServerView) -> Array:
    """Return the code of each row of an upload."""
    numbers: Array = np.array([view.numbers[label] for label in seen.shard.labels], np.int64)
    return np.take(numbers, seen.shard.codes)


# --- codes ---------------------------------------------------------------------------------------------------


def _codes_scores(
    finding: AttackFinding, truth: Truth, view: ServerView
) -> tuple[float | None, float | None, float | None]:
    """Return perfect accuracy, inclusive accuracy, and F1 over pairs."""
    if finding.groups is None or truth.codes is None:
        return None, None, None
    seen = {view.numbers[label] for upload in view.present for label in upload.shard.labels}
    real = [frozenset(codes) & seen for codes in truth.codes.values()]
    real = [codes for codes in real if codes]
    if not real:
        return None, None, None
    # codes that stand for no label (of cover rows) are taken out of groups: they neither spoil one nor make one
    owned = frozenset().union(*real)
    groups = [group & owned for group in finding.groups if group & owned]
    perfect = sum(codes in groups for codes in real) / len(real)
    inclusive = sum(any(codes <= group for group in groups) for codes in real) / len(real)
    pairs, claimed = _pairs(real), _pairs(groups)
    if not pairs:
        return perfect, inclusive, None
    return perfect, inclusive, 2 * len(pairs & claimed) / (len(pairs) + len(claimed))


def _pairs(groups: list[frozenset[int]]) -> set[tuple[int, int]]:
    return {pair for group in groups for pair in combinations(sorted(group), 2)}


# --- rows ----------------------------------------------------------------------------------------------------


def _recovery(finding: AttackFinding, truth: Truth, view: ServerView) -> float | None:
    """Return the share of rows whose cluster stands for their label."""
    claimed, real = [], []
    for seen in view.present:
        clusters = _clusters(finding, seen, view)
        if clusters is None:
            return None
        labels = true_rows(truth, seen)
        looked = (labels >= 0) & (clusters >= 0)
        claimed.append(clusters[looked])
        real.append(labels[looked])
    if not sum(map(len, real)):
        return None
    # an attack cannot know the labels' names, so its clusters get those that suit it best, each a label of its own
    table = contingency(np.concatenate(claimed), np.concatenate(real))
    return float(table[linear_sum_assignment(-table)].sum() / table.sum())


def _clusters(finding: AttackFinding, seen: SeenShard, view: ServerView) -> Array | None:
    """Return the cluster of each row of an upload: as claimed, or the group of its code."""
    if finding.rows is not None:
        return finding.rows.get(seen.place)
    if finding.groups is None:
        return None
    group = {code: at for at, codes in enumerate(finding.groups) for code in codes}
    other = len(finding.groups)  # codes outside all groups are clusters of their own
    return np.array([group.get(code, other + code) for code in row_codes(seen, view).tolist()], np.int64)


def contingency(rows: Array, columns: Array) -> Array:
    """Count how often each pair of values occurs."""
    a = np.unique(rows, return_inverse=True)[1]
    b = np.unique(columns, return_inverse=True)[1]
    out = np.zeros((a.max() + 1, b.max() + 1), np.int64)
    np.add.at(out, (a, b), 1)
    return out


# --- forgotten rows ------------------------------------------------------------------------------------------


def _forgotten(finding: AttackFinding, truth: Truth, view: ServerView) -> dict[str, float]:
    """Return precision and recall of the codes and rows that an attack claims were forgotten."""
    if not finding.vanished:
        return {}
    uploads = {seen.place: seen for seen in view.uploads}
    codes, rows = Counter[str](), Counter[str]()
    for place, vanished in finding.vanished.items():
        real = _really_gone(truth, uploads, place)
        if real is None:
            continue
        had = set(row_codes(uploads[place], view)[real].tolist())
        said = {code for code, number in vanished.items() if number}
        codes.update(both=len(had & said), said=len(said), real=len(had))
        if finding.gone is not None and truth.ids is not None and place in finding.gone:
            gone = finding.gone[place]
            rows.update(both=int((gone & real).sum()), said=int(gone.sum()), real=int(real.sum()))
    out = {"rows_said_forgotten": float(sum(sum(v.values()) for v in finding.vanished.values()))}
    for what, found in (("codes", codes), ("rows", rows)):
        if found["real"] or found["said"]:
            out[f"{what}_precision"] = found["both"] / max(1, found["said"])
            out[f"{what}_recall"] = found["both"] / max(1, found["real"])
    return out


def _really_gone(truth: Truth, uploads: dict[Place, SeenShard], place: Place) -> Array | None:
    """Mark rows of an upload that its successor lacks; compare labels where rows have no ids."""
    after = min((g for c, g in uploads if c == place[0] and g > place[1]), default=None)
    known = truth.ids or {}
    if after is None:
        return np.ones(uploads[place].shard.rows, bool)  # the upload was withdrawn
    later = (place[0], after)
    if place in known and later in known:
        return ~np.isin(known[place], known[later])
    if place not in truth.rows or later not in truth.rows:
        return None
    width = len(truth.labels)
    old, new = truth.rows[place], truth.rows[later]
    before = np.bincount(old[old >= 0], minlength=width)
    now = np.bincount(new[new >= 0], minlength=width)
    # without ids, every row of a label that has fewer rows now may be the one that is gone
    return (old >= 0) & (now < before)[old]
