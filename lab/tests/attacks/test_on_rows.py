"""Attacks on rows: blind clustering, cells, a few known rows, reconstruction."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attacks.masked import digits
from splitwiper import Federation
from splitwiper.errors import InputError
from splitwiper_lab.attacks import AttackResult, Evidence, Pictures, ServerView, Truth, inputs_of, measure
from splitwiper_lab.attacks.auxiliary import auxiliary, known_rows
from splitwiper_lab.attacks.measuring import true_rows
from splitwiper_lab.attacks.reconstruction import png, psnr, rebuild, reconstruction, ssim
from splitwiper_lab.attacks.row_clusters import code_mixture, merged_cells, row_clusters, settled

Known = tuple[ServerView, Truth]


def by_name(findings: object, known: Known) -> dict[str, AttackResult]:
    view, truth = known
    return {f.attack: measure(f, truth, view) for f in findings}  # type: ignore[attr-defined]


def recovery(result: AttackResult) -> float:
    assert result.sample_recovery is not None
    return result.sample_recovery


def test_rows_cluster_by_label_in_trained_features(unmasked: Known) -> None:
    found = by_name(row_clusters(Evidence(unmasked[0], quick=True), labels=10), unmasked)
    assert recovery(found["rows by output, k-means"]) > 0.95
    assert recovery(found["rows by activations, k-means"]) > 0.4
    assert {r.knows for r in found.values()} == {"Q"}
    assert sum("whitened" in name for name in found) == len(found) // 2  # each its own result


def test_without_a_half_rows_cluster_by_activations_alone(unmasked: Known) -> None:
    view = replace(unmasked[0], half=None)
    found = by_name(row_clusters(Evidence(view, quick=True), labels=10), (view, unmasked[1]))
    assert set(found) == {"rows by activations, k-means", "rows by activations, k-means, whitened"}


def test_cells_undo_codes_that_labels_share(keyed: Known) -> None:
    found = by_name(merged_cells(Evidence(keyed[0], quick=True), labels=10), keyed)
    free = [r for name, r in found.items() if "kept apart" not in name]
    assert max(map(recovery, free)) > 0.85
    assert len(found) == 2 * len(free)


def test_codes_and_rows_together_say_more_than_rows_alone(keyed: Known) -> None:
    evidence = Evidence(keyed[0], quick=True)
    blind = by_name(row_clusters(evidence, labels=10), keyed)
    found = by_name(code_mixture(evidence, labels=10), keyed)
    best = "mixture with codes by output"
    assert recovery(found[best]) > max(0.9, recovery(blind["rows by output, k-means"]))
    assert found[best].knows == "Q" and found[best].perfect is None


def test_what_codes_say_settles_rows_that_lie_between() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 2000)
    points = torch.from_numpy(draw.normal(size=(2000, 2)) + 2.4 * labels[:, None] * [1, 0]).float()
    codes = np.where(draw.random(2000) < 0.98, labels, 1 - labels)
    start = (points[:, 0] > 1.2).long()
    right = (start.numpy() == labels).mean()
    found, _ = settled(points, torch.from_numpy(codes), start, 2, 2)
    assert right < 0.91 and (found.numpy() == labels).mean() > 0.96


def test_a_few_known_rows_read_the_others(keyed: Known) -> None:
    view, truth = keyed
    evidence = Evidence(view, quick=True)
    every = np.concatenate([true_rows(truth, seen) for seen in view.present])
    known = known_rows(every, 10)
    assert np.bincount(known[known >= 0]).tolist() == [10] * 10
    findings = list(auxiliary(evidence, known=known))
    found = by_name(findings, keyed)
    assert {r.knows for r in found.values()} == {"aux"}
    assert recovery(found["a few known rows by output, nearest mean"]) > 0.85
    assert recovery(found["a few known rows by activations, logistic regression"]) > 0.75
    assert recovery(found["a few known rows by body.7, regression and codes"]) > 0.9
    claimed = np.concatenate([findings[0].rows[seen.place] for seen in view.present])  # type: ignore[index]
    assert (claimed[known >= 0] == -1).all()  # what was told is not scored


def test_with_no_known_row_there_is_nothing_to_read(keyed: Known) -> None:
    (finding,) = auxiliary(Evidence(keyed[0]), known=np.full(900, -1))
    assert measure(finding, keyed[1], keyed[0]).strength < 0


def test_inputs_are_rebuilt_from_activations(fed: Federation, unmasked: Known, tmp_path: Path) -> None:
    pictures = Pictures(inputs_of(fed), digits(1200)[0][900:], fed.halves.client, tmp_path)
    found = by_name(reconstruction(Evidence(unmasked[0]), pictures), unmasked)
    assert len(found) == 2
    for result in found.values():
        assert result.scores["psnr"] > result.scores["psnr_of_mean"] + 5
        assert result.scores["ssim"] > result.scores["ssim_of_mean"] + 0.2
        assert result.sample_recovery is None and result.knows == "aux"
    for name in ("public-inputs.png", "a-client-that-talks.png"):
        data = (tmp_path / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"


def test_activations_of_something_else_rebuild_nothing(fed: Federation, unmasked: Known) -> None:
    wrong = {place: np.roll(values, 1, axis=0) for place, values in inputs_of(fed).items()}
    found = by_name(reconstruction(Evidence(unmasked[0]), Pictures(wrong)), unmasked)
    assert found["inputs rebuilt, a client that talks"].scores["explained"] < 0.1


def test_inputs_must_fit_the_uploads(unmasked: Known) -> None:
    short = {unmasked[0].present[0].place: np.zeros((3, 1, 8, 8), np.float32)}
    with pytest.raises(InputError, match="one input per row"):
        list(reconstruction(Evidence(unmasked[0]), Pictures(short)))
    assert all("no inputs" in f.notes for f in reconstruction(Evidence(unmasked[0]), Pictures({})))


def test_rebuilding_follows_larger_pictures_and_tables() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(60, 1, 8, 8, generator=generator)
    halved = {"a": torch.nn.functional.pixel_unshuffle(inputs, 2)}
    assert psnr(rebuild(halved, inputs, halved).clamp(0, 1), inputs) > 30
    rows, turn = torch.rand(60, 5, generator=generator), torch.rand(5, 9, generator=generator)
    assert psnr(rebuild({"a": rows @ turn}, rows, {"a": rows @ turn}), rows) > 15


def test_pictures_compare_and_are_written() -> None:
    picture = torch.rand(2, 3, 9, 9, generator=torch.Generator().manual_seed(1))
    assert ssim(picture, picture) == pytest.approx(1) and psnr(picture, picture) == 99
    assert ssim(picture, 1 - picture) < 0
    data = png(np.arange(18, dtype=np.uint8).reshape(2, 3, 3))
    at = data.index(b"IDAT")
    size = int.from_bytes(data[at - 4 : at], "big")
    assert zlib.decompress(data[at + 4 : at + 4 + size]) == b"\0" + bytes(range(9)) + b"\0" + bytes(range(9, 18))
