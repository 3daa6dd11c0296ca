"""The parts attacks are made of, and how claims are measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import silhouette_score

from splitwiper.errors import FormatError, InputError
from splitwiper.wire import Label
from splitwiper_lab.attacks import AttackFinding, Evidence, ServerView, Truth, measure
from splitwiper_lab.attacks.features import pooled, reduced
from splitwiper_lab.attacks.kmeans import METHODS, _silhouette, kmeans
from splitwiper_lab.attacks.linkage import merge_distances, merge_points

Known = tuple[ServerView, Truth]


def blobs(count: int = 40, centres: int = 8) -> tuple[torch.Tensor, np.ndarray]:
    x, y = make_blobs(count, 5, centers=centres, cluster_std=0.1, random_state=0)
    return torch.from_numpy(x).float(), y


def agree(a: np.ndarray, b: np.ndarray) -> bool:
    return len(set(zip(a.tolist(), b.tolist(), strict=True))) == len(set(a.tolist())) == len(set(b.tolist()))


def test_kmeans_finds_clusters_and_repeats() -> None:
    points, truth = blobs(400)
    one, two = (kmeans(points, 8, seed=1) for _ in range(2))
    assert agree(one.labels.numpy(), truth) and torch.equal(one.centres, two.centres)
    assert one.inertia == pytest.approx(float((points - one.centres[one.labels]).square().sum()), rel=1e-3)
    assert len(kmeans(points[:3], 8).centres) == 3
    assert kmeans(torch.zeros(5, 2), 3).inertia == 0


@pytest.mark.parametrize("method", METHODS)
def test_the_number_of_clusters_is_told(method: str) -> None:
    points, truth = blobs()
    assert METHODS[method](points) == len(set(truth))
    assert METHODS[method](points[:2]) == 2


def test_silhouettes_are_those_of_scikit_learn() -> None:
    points, truth = blobs()
    mixed = np.where(np.arange(40) % 5 == 0, 0, truth)
    ours = _silhouette(torch.cdist(points, points).double().numpy(), mixed)
    assert ours == pytest.approx(silhouette_score(points.numpy(), mixed), abs=1e-3)


def test_merging_stops_before_the_leap_and_keeps_pairs_apart() -> None:
    points, truth = blobs()
    store = merge_points(points.numpy())
    assert store.jump() == 8 and agree(store.cut(8), truth) and store.cut(1).max() == 0
    assert agree(merge_distances(torch.cdist(points, points).numpy()).cut(8), truth)
    cannot = np.zeros((40, 40), bool)
    cannot[0, :] = cannot[:, 0] = True
    apart = merge_points(points.numpy(), cannot=cannot).cut(1)
    assert (apart == apart[0]).sum() == 1 and len(set(apart)) == 2


def test_weights_pull() -> None:
    points = np.array([[0.0], [1.0], [2.1]])
    assert merge_points(points).merges[0] == (0, 1)
    assert merge_points(points, np.array([9.0, 9.0, 0.1])).merges[0] == (1, 2)


def test_rows_become_short() -> None:
    assert pooled(torch.rand(3, 8, 5, 5), 1000).shape == (3, 200)
    assert pooled(torch.rand(3, 64, 32, 32), 1024).shape == (3, 1024)
    assert pooled(torch.rand(3, 128, 100), 1024).shape == (3, 1000)
    assert pooled(torch.rand(3, 2000, 2, 2), 512).shape == (3, 512)
    white = reduced(torch.rand(50, 6) * torch.arange(1, 7), whiten=True)
    assert torch.allclose(white.std(0), torch.ones(6), atol=1e-4)


# --- measures ------------------------------------------------------------------------------------------------


def groups(truth: Truth) -> list[frozenset[int]]:
    assert truth.codes is not None
    return [frozenset(codes) for codes in truth.codes.values()]


def test_measures_of_a_claim(partition: Known) -> None:
    view, truth = partition
    right = groups(truth)
    joined = (right[0] | right[1], *right[2:])
    result = measure(AttackFinding("joined", joined, labels_estimated=9), truth, view)
    assert (result.perfect, result.inclusive, result.labels_error) == (0.8, 1.0, -1)
    assert result.pair_f1 == pytest.approx(60 / 69)  # 30 pairs are true, 39 claimed
    torn = (right[0] - {min(right[0])}, frozenset({min(right[0])}), *right[1:])
    result = measure(AttackFinding("torn", torn), truth, view)
    assert (result.perfect, result.inclusive) == (0.9, 0.9) and result.pair_f1 == pytest.approx(56 / 58)
    assert result.sample_recovery is not None and 0.93 < result.sample_recovery < 1


def test_rows_are_scored_up_to_names_without_cover_rows(partition: Known) -> None:
    view, truth = partition
    claimed = {place: 9 - labels for place, labels in truth.rows.items()}
    assert measure(AttackFinding("renamed", rows=claimed), truth, view).sample_recovery == 1
    covered = {place: np.where(np.arange(len(r)) % 2, r, -1) for place, r in truth.rows.items()}
    wrong = {place: np.where(np.arange(len(r)) % 2, r, 3) for place, r in truth.rows.items()}
    assert measure(AttackFinding("cover", rows=wrong), replace(truth, rows=covered), view).sample_recovery == 1
    unlooked = {place: np.where(np.arange(len(r)) % 2, r, -1) for place, r in truth.rows.items()}
    assert measure(AttackFinding("half", rows=unlooked), truth, view).sample_recovery == 1
    assert measure(AttackFinding("nothing"), truth, view).strength == -1


def test_cover_codes_are_left_out(partition: Known) -> None:
    view, truth = partition
    assert truth.codes is not None
    fewer = {label: codes for label, codes in truth.codes.items() if label != truth.labels[0]}
    claimed = (groups(truth)[0] | groups(truth)[1], *groups(truth)[2:])
    assert measure(AttackFinding("cover", claimed), replace(truth, codes=fewer), view).perfect == 1


def test_a_truth_of_another_state_is_refused(partition: Known, unmasked: Known) -> None:
    view, truth = partition
    short = replace(truth, rows={place: rows[1:] for place, rows in truth.rows.items()})
    with pytest.raises(InputError, match="same state"):
        measure(AttackFinding("any"), short, view)


def test_truths_are_joined_and_kept(tmp_path: Path) -> None:
    a, b, c = (Label("", name) for name in "abc")
    rows = {("x", 1): np.array([0, 2, -1]), ("y", 4): np.array([1, 1])}
    truth = Truth((a, b, c), rows, {a: (0,), b: (1,), c: (2,)}, {("x", 1): np.array([7, 8, 9])})
    wider = truth.joined(Truth((Label("", "A"),), {("z", 1): np.array([0])}, None))
    assert wider.rows["x", 1].tolist() == [1, 3, -1] and wider.codes is None
    with pytest.raises(KeyError):
        truth.save(tmp_path / "half a truth")
    whole = replace(truth, ids={place: np.arange(len(some)) for place, some in rows.items()})
    whole.save(tmp_path / "truth.npz")
    again = Truth.load(tmp_path / "truth.npz")
    assert (again.labels, again.codes) == (whole.labels, whole.codes)
    assert all((again.rows[place] == whole.rows[place]).all() for place in rows)
    (tmp_path / "truth.npz").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match="does not hold the truth"):
        Truth.load(tmp_path / "truth.npz")


def test_many_rows_are_sampled(unmasked: Known) -> None:
    view, truth = unmasked
    evidence = Evidence(view)
    evidence.index = np.arange(0, 900, 3)
    finding = evidence.of_rows("sampled", np.concatenate(list(truth.rows.values()))[::3])
    assert len(evidence.codes) == len(evidence.rows["activations"]) == 300
    assert finding.rows is not None and sum((r >= 0).sum() for r in finding.rows.values()) == 300
    assert measure(finding, truth, view).sample_recovery == 1
