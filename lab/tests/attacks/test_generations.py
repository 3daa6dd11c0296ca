"""What a server that kept erased uploads learns of what was forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attacks.masked import federation, plain, rows_of, write
from splitwiper.errors import FormatError, InputError, NotFoundError
from splitwiper_lab.attacks import AttackResult, Evidence, SeenShard, ServerView, Truth, measure, snapshot
from splitwiper_lab.attacks.generations import by_likeness, in_order, vanished_codes, vanished_rows


def found(view: ServerView, truth: Truth) -> dict[str, AttackResult]:
    evidence = Evidence(view, quick=True)
    findings = [*vanished_codes(evidence), *vanished_rows(evidence)]
    return {f.attack: measure(f, truth, view) for f in findings}


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> tuple[ServerView, Truth]:
    """c0 forgets a class, then some samples; c1 leaves."""
    folder = tmp_path_factory.mktemp("forget")
    fed = federation(folder / "run", rows=300)
    truths, kept = [Truth.of(fed)], [folder / "first"]
    assert snapshot(fed.path, kept[0]) == 3
    fed.unlearn("c0", classes=[4])
    snapshot(fed.path, folder / "second")
    truths.append(Truth.of(fed))
    ids = [row for row, label in fed.rows("c0").items() if label in (1, 2)][::4]
    fed.unlearn("c0", samples=ids)
    fed.unlearn("c1", everything=True)
    view, last = plain(fed, (kept[0], folder / "second"))
    return view, last.joined(*truths)


def test_snapshots_keep_what_is_erased(forgotten: tuple[ServerView, Truth]) -> None:
    view, truth = forgotten
    assert [seen.place for seen in view.uploads] == [("c0", 1), ("c0", 2), ("c0", 3), ("c1", 1), ("c2", 1)]
    assert [seen.place for seen in view.present] == [("c0", 3), ("c2", 1)]
    assert all(len(truth.rows[seen.place]) == seen.shard.rows for seen in view.uploads)


def test_what_was_forgotten_is_seen_from_codes(forgotten: tuple[ServerView, Truth]) -> None:
    result = found(*forgotten)["codes that vanished"]
    assert result.scores["codes_precision"] == result.scores["codes_recall"] == 1.0
    gone = sum(int(seen.shard.rows) for seen in forgotten[0].uploads if seen.client == "c1")
    first, last = (next(s.shard.rows for s in forgotten[0].uploads if s.place == ("c0", g)) for g in (1, 3))
    assert result.scores["rows_said_forgotten"] == gone + first - last


def test_forgotten_rows_are_found(forgotten: tuple[ServerView, Truth]) -> None:
    results = found(*forgotten)
    for how in ("in order", "by likeness"):
        scores = results[f"rows that vanished, {how}"].scores
        assert scores["rows_recall"] > 0.9 and scores["rows_precision"] > 0.9, scores


def test_without_ids_codes_are_scored_by_label(forgotten: tuple[ServerView, Truth]) -> None:
    view, truth = forgotten
    blind = Truth(truth.labels, truth.rows, truth.codes)
    assert found(view, blind)["codes that vanished"].scores["codes_recall"] == 1.0
    assert "rows_recall" not in found(view, blind)["rows that vanished, in order"].scores


def test_nothing_vanished_nothing_found(duplicate: tuple[ServerView, Truth]) -> None:
    for result in found(*duplicate).values():
        assert result.strength < 0 and not result.scores and "no upload" in result.notes


def test_codes_that_vanish_together_belong_together(duplicate: tuple[ServerView, Truth], tmp_path: Path) -> None:
    view, truth = duplicate
    old = view.present[0]
    kept = truth.rows[old.place] != 6
    codes = view.codes_of(old)[kept]
    new = SeenShard(old.client, 2, write(tmp_path / "new", view, rows_of(old.shard)[kept], codes))
    assert truth.ids is not None
    after = Truth(
        truth.labels,
        {**truth.rows, new.place: truth.rows[old.place][kept]},
        truth.codes,
        {**truth.ids, new.place: truth.ids[old.place][kept]},
    )
    result = found(replace(view, uploads=(old, new, *view.uploads[1:])), after)["codes that vanished"]
    assert result.perfect == 0.1 and result.inclusive == 0.1  # one label of ten, with its three codes
    assert result.scores["codes_precision"] == result.scores["codes_recall"] == 1.0


def test_order_helps_where_likeness_does_not() -> None:
    draw = np.random.default_rng(0)
    old = draw.normal(size=(200, 6))
    gone = draw.permutation(200)[:20]
    new = np.delete(old, gone, axis=0) + 1.0 * draw.normal(size=(180, 6))
    apart = ((new[:, None] - old[None]) ** 2).sum(2)
    right = [set(np.flatnonzero(~match(apart))) & set(gone) for match in (in_order, by_likeness)]
    assert len(right[0]) > 14 and len(right[0]) > len(right[1])


def test_snapshots_refuse_what_is_there_and_what_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        snapshot(tmp_path, tmp_path)
    with pytest.raises(NotFoundError, match="no run"):
        snapshot(tmp_path, tmp_path / "new")
    fed = federation(tmp_path / "run", clients=1, rows=60)
    with pytest.raises(NotFoundError, match="not a snapshot"):
        ServerView.of(fed.path / "server", fed.halves, [tmp_path])
    snapshot(fed.path, tmp_path / "kept")
    (tmp_path / "kept" / "snapshot.json").write_text("[]")
    with pytest.raises(FormatError, match="malformed"):
        ServerView.of(fed.path / "server", fed.halves, [tmp_path / "kept"])
    with pytest.raises(NotFoundError, match="no server"):
        ServerView.of(tmp_path, fed.halves)
    fed.submit("c0", samples=list(fed.rows("c0"))[:1])
    with pytest.raises(NotFoundError, match="learn or settle"):
        Truth.of(fed)
