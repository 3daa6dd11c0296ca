"""Score an attack's claims against the truth.

Where a claim is ambiguous, the attacker gets the benefit of the doubt: clusters get the best one-to-one assignment to
labels, and codes that stand for no label are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, combinations

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
    perfect, inclusive, pair_f1 = _codes_scores(finding, truth, view)
    estimated, real = finding.labels_estimated, labels_present(truth, view)
    return AttackResult(
        attack=finding.attack,
        perfect=perfect,
        inclusive=inclusive,
        pair_f1=pair_f1,
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
    present: set[int] = set()
    for seen in view.present:
        present.update(true_rows(truth, seen).tolist())
    return len(present - {-1})  # -1 marks cover rows, which have no label


# --- codes ---------------------------------------------------------------------------------------------------


def _codes_scores(
    finding: AttackFinding, truth: Truth, view: ServerView
) -> tuple[float | None, float | None, float | None]:
    """Return perfect accuracy, inclusive accuracy, and F1 over pairs."""
    if finding.groups is None or truth.codes is None:
        return None, None, None
    labels = chain.from_iterable(upload.shard.labels for upload in view.present)
    real = _within(truth.codes.values(), frozenset(map(view.numbers.__getitem__, labels)))
    if not real:
        return None, None, None
    # codes that stand for no label (of cover rows) are taken out of groups: they neither spoil one nor make one
    groups = _within(finding.groups, frozenset().union(*real))
    perfect = inclusive = 0
    for codes in real:
        perfect += codes in groups
        inclusive += any(map(codes.issubset, groups))
    shares = perfect / len(real), inclusive / len(real)
    pairs, claimed = _pairs(real), _pairs(groups)
    if not pairs:
        return *shares, None
    return *shares, 2 * len(pairs & claimed) / (len(pairs) + len(claimed))


def _within(groups: Iterable[Iterable[int]], codes: frozenset[int]) -> list[frozenset[int]]:
    """Return the part of each group that is among some codes, without empty groups."""
    return list(filter(None, map(codes.intersection, groups)))


def _pairs(groups: Iterable[frozenset[int]]) -> set[tuple[int, int]]:
    pairs: set[tuple[int, int]] = set()
    for group in groups:
        pairs.update(combinations(sorted(group), 2))
    return pairs


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
    codes = view.codes_of(seen)
    clusters = len(finding.groups) + codes  # codes outside all groups are clusters of their own
    for number, group in enumerate(finding.groups):
        clusters[np.isin(codes, list(group))] = number
    return clusters


def contingency(rows: Array, columns: Array) -> Array:
    """Count how often each pair of values occurs."""
    a = np.unique(rows, return_inverse=True)[1]
    b = np.unique(columns, return_inverse=True)[1]
    table = np.zeros((a.max() + 1, b.max() + 1), np.int64)
    np.add.at(table, (a, b), 1)  # unlike ``table[a, b] += 1``, this counts repeated pairs
    return table


# --- forgotten rows ------------------------------------------------------------------------------------------


def _forgotten(finding: AttackFinding, truth: Truth, view: ServerView) -> dict[str, float]:
    """Return precision and recall of the codes and rows that an attack claims were forgotten."""
    if not finding.vanished:
        return {}
    uploads = {seen.place: seen for seen in view.uploads}
    codes, rows = Counter[str](), Counter[str]()
    number_claimed = 0
    for place, vanished in finding.vanished.items():
        number_claimed += sum(vanished.values())
        real = _really_gone(truth, uploads, place)
        if real is None:
            continue
        lost = set(view.codes_of(uploads[place])[real].tolist())
        claimed = {code for code, number in vanished.items() if number}
        codes.update(both=len(lost & claimed), claimed=len(claimed), real=len(lost))
        if finding.gone is not None and truth.ids is not None and place in finding.gone:
            gone = finding.gone[place]
            rows.update(both=int((gone & real).sum()), claimed=int(gone.sum()), real=int(real.sum()))
    scores = {"rows_said_forgotten": float(number_claimed)}
    for kind, counted in (("codes", codes), ("rows", rows)):
        if counted["real"] or counted["claimed"]:
            scores[f"{kind}_precision"] = counted["both"] / max(1, counted["claimed"])
            scores[f"{kind}_recall"] = counted["both"] / max(1, counted["real"])
    return scores


def _really_gone(truth: Truth, uploads: dict[Place, SeenShard], place: Place) -> Array | None:
    """Mark rows of an upload that its successor lacks; compare labels where rows have no ids."""
    later = min((other for other in uploads if other[0] == place[0] and other > place), default=None)
    known = truth.ids or {}
    if later is None:
        return np.ones(uploads[place].shard.rows, bool)  # the upload was withdrawn
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
