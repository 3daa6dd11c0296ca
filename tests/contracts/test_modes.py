"""The contract of hiding modes, over all implementations."""

from pathlib import Path

import numpy as np
import pytest
import torch

from contracts import MODES, OUTSIDE
from federation.runs import assert_same, halves, settings, three, without
from splitwiper import Federation, Label
from splitwiper.masking.modes import ModeInputs, expand, mode_for
from splitwiper.masking.plan import planned
from splitwiper.masking.sealing import GroupKey

LABELS = tuple(Label("", name) for name in ("bird", "cat", "dog"))
KEY = GroupKey.of("a secret of sixteen or more", federation="f")
OTHER = GroupKey.of("another secret entirely", federation="f")

modes = pytest.mark.parametrize("name", MODES)


def held(rows: np.ndarray) -> ModeInputs:
    """A client that has some of sixty rows."""
    draw = np.random.default_rng(0)
    x, macs = draw.normal(size=(60, 6)).astype(np.float32), draw.integers(0, 256, (60, 32), dtype=np.uint8)
    x[-10:] *= 1e6
    index = (np.arange(60) % 3).astype(np.int64)
    return ModeInputs(LABELS, index[rows], macs[rows], b"k" * 32, lambda: iter([{"x": x[rows]}]), lambda: x[rows])


@modes
def test_all_clients_of_a_group_compute_the_same_codes_and_nobody_else(name: str) -> None:
    one = expand(LABELS, KEY, MODES[name])
    assert expand(LABELS[::-1], KEY, MODES[name]) == one
    assert {code for codes in one.codes.values() for code in codes} <= set(range(one.outputs))
    assert len({one.id, expand(LABELS, OTHER, MODES[name]).id, expand(LABELS, KEY, MODES[name], version=2).id}) == 3


@modes
def test_every_row_is_sent_under_codes_of_its_label(name: str) -> None:
    codebook, inputs = expand(LABELS, KEY, MODES[name]), held(np.arange(60))
    plan = planned(inputs, codebook, mode_for(MODES[name], KEY), MODES[name])
    assert set(plan.source.tolist()) == set(range(60))
    for source, code in zip(plan.source, plan.codes, strict=True):
        assert code in codebook.of(LABELS[inputs.index[source]])


@modes
def test_forgotten_rows_leave_nothing_in_the_plan_of_the_others(name: str) -> None:
    """Also not in a mode that saw them: what it fits, it fits again."""
    codebook, mode, stay = expand(LABELS, KEY, MODES[name]), mode_for(MODES[name], KEY), np.arange(50)
    planned(held(np.arange(60)), codebook, mode, MODES[name])
    after = planned(held(stay), codebook, mode, MODES[name])
    never = planned(held(stay), codebook, mode_for(MODES[name], KEY), MODES[name])
    for part in ("source", "other", "share", "codes"):
        assert np.array_equal(getattr(after, part), getattr(never, part))


@modes
def test_chances_of_codes_become_chances_of_labels(name: str) -> None:
    codebook, mode = expand(LABELS, KEY, MODES[name]), mode_for(MODES[name], KEY)
    x = np.random.default_rng(1).normal(size=(9, 6)).astype(np.float32)
    chances = torch.softmax(torch.randn(9, codebook.outputs, generator=torch.Generator().manual_seed(0)), dim=1)
    told = mode.unmask(chances.double(), {"x": x}, codebook)
    assert told.shape == (9, 3) and bool((told >= 0).all())
    np.testing.assert_allclose(told.sum(dim=1).numpy(), 1, rtol=1e-5)
    assert torch.equal(told, mode_for(MODES[name], KEY).unmask(chances.double(), {"x": x}, codebook))


@modes
def test_learn_unlearn_verify(tmp_path: Path, name: str) -> None:
    data = three()
    x, y = data["north"]
    data["north"] = np.where((y == "bird")[:, None], 1e6 * x, x), y
    fed = Federation(tmp_path / "run", halves(), settings(masking=MODES[name], slices=2, clip=1.0))
    fed.learn(data)
    receipt = fed.unlearn("north", classes=["bird"])
    never = fed.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], y != "bird")})
    assert_same(fed, never)
    assert fed.verify(receipt).exact and fed.verify().exact
    assert "bird" not in fed.predict("north", x)


def test_the_server_learns_neither_mode_nor_labels(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), settings(masking=MODES[OUTSIDE]))
    fed.learn(three())
    receipt = fed.unlearn("north", classes=["bird"])
    held = [path.read_bytes() for path in (tmp_path / "run" / "server").rglob("*") if path.is_file()]
    held.append(str(receipt.to_dict()).encode())
    for word in (b"striped", b"Striped", b"ward_parts", b"bird", b"stripes"):
        assert not any(word in raw for raw in held), word
