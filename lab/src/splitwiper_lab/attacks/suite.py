"""Run every attack on one server's view; time, score and sort the results, strongest first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch

from splitwiper.progress import Progress
from splitwiper_lab.attacks.auxiliary import auxiliary, known_rows
from splitwiper_lab.attacks.code_groups import (
    birch_means,
    confusion,
    equal_counts,
    feature_means,
    head_rows,
    kmeans_means,
    like_counts,
    merged_means,
    row_matching,
)
from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import AttackFinding, AttackResult
from splitwiper_lab.attacks.generations import vanished_codes, vanished_rows
from splitwiper_lab.attacks.measuring import labels_present, measure, true_rows
from splitwiper_lab.attacks.outside import Attack, outside_attacks
from splitwiper_lab.attacks.reconstruction import Pictures, reconstruction
from splitwiper_lab.attacks.row_clusters import code_mixture, merged_cells, row_clusters
from splitwiper_lab.attacks.truth import Truth
from splitwiper_lab.attacks.view import ServerView

GUESS = "every row alike"
"""The result of guessing: all rows in one cluster."""
AS_SEEN = "codes taken for labels"
"""The result without masking: every code a label of its own."""
_FEW = 20_000

ON_CODES = (kmeans_means, birch_means, merged_means, feature_means, confusion, head_rows, row_matching, like_counts)
"""Attacks that group codes, with the number of labels and without."""


def suite(
    view: ServerView,
    *,
    truth: Truth,
    device: str = "cpu",
    quick: bool = False,
    seed: int = 0,
    aux: int = 10,
    pictures: Pictures | None = None,
    more: Sequence[Attack] = (),
    progress: Progress | None = None,
) -> list[AttackResult]:
    """Run every attack. The truth scores them; an attack gets only the part of it that its result's ``knows`` states.

    Args:
        view: what the server has.
        truth: the true labels.
        device: the device to compute on.
        quick: do less of everything.
        seed: the seed of all randomness.
        aux: rows per label that are known to the attack with a few known rows; 0 leaves that attack out.
        pictures: inputs to reconstruct; None leaves that attack out.
        more: attacks from outside, see `splitwiper_lab.attacks.outside`.
        progress: called with (activity, attacks done, total number of attacks).
    """
    evidence = Evidence(view, device=device, quick=quick, seed=seed)
    if len(evidence.index):
        _ = evidence.rows  # shared by all attacks, so not part of any attack's time
    attacks = _attacks(evidence, truth, aux, pictures)
    attacks += outside_attacks(more, labels_present(truth, view))
    results = []
    with _threads(evidence):
        for number, attack in enumerate(attacks):
            start = time.perf_counter()
            for finding in attack(evidence):
                results.append(measure(finding, truth, view, seconds=time.perf_counter() - start))
                start = time.perf_counter()
            if progress:
                progress("attacking", number + 1, len(attacks))
    return sorted(results, key=lambda result: (-result.strength, ("", "Q", "aux").index(result.knows)))


@contextmanager
def _threads(evidence: Evidence) -> Iterator[None]:
    """Use one thread if there are few rows: synchronising many small steps costs more than a second thread gains."""
    before = torch.get_num_threads()
    if len(evidence.index) <= _FEW:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _attacks(evidence: Evidence, truth: Truth, aux: int, pictures: Pictures | None) -> list[Attack]:
    """Return the attacks in order, with side information bound as arguments: it enters only here."""
    labels = labels_present(truth, evidence.view)
    attacks: list[Attack] = [baselines, equal_counts, vanished_codes, vanished_rows]
    for attack in ON_CODES:
        attacks.append(attack)
        if labels:
            attacks.append(partial(attack, labels=labels))
    for clustering in (row_clusters, merged_cells, code_mixture):
        attacks.append(partial(clustering, labels=labels))
    if aux and len(evidence.index):
        every = np.concatenate([true_rows(truth, seen) for seen in evidence.view.present])[evidence.index]
        attacks.append(partial(auxiliary, known=known_rows(every, aux, seed=evidence.seed)))
    if pictures is not None:
        attacks.append(partial(reconstruction, pictures=pictures))
    return attacks


def baselines(evidence: Evidence) -> Iterator[AttackFinding]:
    """Yield what an attack must beat: guessing, and taking every code for a label."""
    every = frozenset(evidence.numbers)
    yield AttackFinding(GUESS, (every,) if every else None, notes="no attack: what knowing nothing gives")
    alone = tuple(frozenset({code}) for code in evidence.numbers)
    notes = "no attack: what the server sees without any work"
    yield AttackFinding(AS_SEEN, alone or None, labels_estimated=len(alone), notes=notes)
