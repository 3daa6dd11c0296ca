"""Accounting: closed forms, composition, words; and the theorem's table."""

import json
import math
import sys
import time

import pytest
from dp_accounting import get_epsilon_gaussian

from splitwiper.errors import ConfigError
from splitwiper.privacy import Budget, Noise, Release, stated
from splitwiper.privacy.calibration import deviation
from splitwiper_lab.theorem import theorem_table


def noise(mechanism: str = "laplace", reading: str = "value", epsilon: float = 0.2) -> Noise:
    return Noise(mechanism=mechanism, reading=reading, epsilon=epsilon, clip=1.0)


def spent(settings: Noise, values: int = 1, times: int = 1, copies: int = 1, group: int = 1) -> tuple[float, float]:
    """Epsilon at delta of a row and of a value."""
    release = Release(kind="upload", times=times, copies=copies, group=group)
    said = Budget(noise=settings, values=values, releases=(release,)).spent()
    assert said.row.at_delta is not None and said.value.at_delta is not None
    return said.row.at_delta, said.value.at_delta


@pytest.mark.parametrize("epsilon", [0.01, 0.2, 3.0])
def test_one_laplace_release_agrees_with_its_closed_form(epsilon: float) -> None:
    row, value = spent(noise(epsilon=epsilon))
    exact = epsilon + 2 * math.log1p(-1e-6)  # δ = 1 - exp((ε' - ε) / 2) for Laplace noise
    assert row == value == pytest.approx(exact, rel=1e-3)
    assert exact - 1e-12 <= row <= epsilon


@pytest.mark.parametrize("reading", ["row", "value", "mean"])
def test_one_gaussian_release_gives_the_epsilon_asked_for(reading: str) -> None:
    assert spent(noise("gaussian", reading, 0.7))[1] == pytest.approx(0.7, rel=1e-4)
    assert stated(noise("gaussian", reading), values=3).row.pure is None


def test_gaussian_rows_agree_with_their_closed_form() -> None:
    expected = get_epsilon_gaussian(deviation(0.5, 1e-6) / math.sqrt(100 * 6), 1e-6)
    assert spent(noise("gaussian", "value", 0.5), values=100, times=2, copies=3)[0] == pytest.approx(expected)


def test_readings_are_never_mistaken_for_each_other() -> None:
    value, row, mean = (stated(noise(reading=r), values=4096, group=50) for r in ("value", "row", "mean"))
    assert (value.value.pure, value.row.pure) == (0.2, pytest.approx(819.2))
    assert (row.value.pure, row.row.pure) == (0.2, 0.2)
    assert (mean.value.pure, mean.row.pure) == (pytest.approx(10.0), pytest.approx(40960.0))


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("reading", ["row", "value", "mean"])
def test_more_of_anything_spends_more(mechanism: str, reading: str) -> None:
    settings = noise(mechanism, reading)
    base = spent(settings, 10, 2, 2, 2)
    assert all(more > less for more, less in zip(spent(settings, 10, 3, 2, 2), base, strict=True))
    assert all(more > less for more, less in zip(spent(settings, 10, 2, 3, 2), base, strict=True))
    assert all(m > x for m, x in zip(spent(noise(mechanism, reading, 0.3), 10, 2, 2, 2), base, strict=True))
    assert (spent(settings, 11, 2, 2, 2)[0] > base[0]) == (reading != "row")
    assert (spent(settings, 10, 2, 2, 3)[1] > base[1]) == (reading == "mean")


def test_at_delta_is_the_tighter_of_all_ways() -> None:
    said = stated(noise(), values=64)
    assert said.row.pure == pytest.approx(12.8)
    assert said.row.at_delta == pytest.approx(7.78, abs=0.02)  # Rényi divergences alone give 8.20


@pytest.mark.parametrize("epsilon", [1e-6, 0.2, 50.0, 1e6])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_the_largest_rows_take_less_than_a_second(mechanism: str, epsilon: float) -> None:
    start = time.process_time()
    for reading in ("value", "mean"):
        row, value = spent(noise(mechanism, reading, epsilon), 16384, times=9, copies=5, group=5000)
        assert math.isfinite(row) and row > value >= 0
    assert time.process_time() - start < 2


def test_entries_of_several_kinds_add_up() -> None:
    budget = Budget(noise=noise(reading="mean"), values=2)
    for group in (10, 20):
        budget = budget.after(Release(kind="upload", copies=3, group=group))
    said = budget.after(Release(kind="prediction", times=4)).spent()
    assert (said.uploads, said.predictions) == (2, 4)
    assert said.value.pure == pytest.approx(0.2 * (3 * 10 + 3 * 20 + 4))


def test_words_and_json() -> None:
    said = Budget(noise=noise(), values=4096, releases=(Release(kind="upload", times=2),)).spent()
    text = said.sentence.replace("\xa0", " ")
    assert text.startswith("each row of 4,096 values: epsilon 1,638.4 (pure), ")
    assert text.endswith(" at delta 1e-06 after 2 uploads; each value: epsilon 0.4 (pure)")
    assert json.loads(json.dumps(said.to_dict()))["value"]["pure"] == 0.4
    assert "nothing spent" in Budget(noise=noise(), values=3).spent().sentence
    bare = stated(Noise(), values=3)
    assert (bare.row.pure, bare.row.at_delta) == (None, None) and "no noise" in bare.sentence


def test_wrong_entries_are_refused() -> None:
    with pytest.raises(ConfigError, match="'download'"):
        Release(kind="download")
    for name in ("times", "copies", "group"):
        with pytest.raises(ConfigError, match=f"{name} = 0"):
            Release(kind="upload", **{name: 0})
    with pytest.raises(ConfigError, match="values = 0"):
        Budget(noise=noise(), values=0)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"pip install 'splitwiper\[plus\]'"):
        stated(noise(), values=3)
    assert stated(Noise(), values=3).row.pure is None


def test_where_the_theorem_holds_and_where_it_does_not() -> None:
    one, labels, wide, row, mean, both = theorem_table(0.2, labels=10, values=64, rows=100)
    assert one.step_holds and one.pairs_hold and one.outside == 0
    assert one.supremum == pytest.approx(0.2) and one.largest == pytest.approx(0.2)  # reached, not passed
    assert not any(check.step_holds for check in (labels, wide, row, mean, both))
    assert labels.supremum == pytest.approx(math.log((1 + 9 * math.exp(0.2)) / (1 + 9 * math.exp(-0.2))))
    assert 0.2 < labels.supremum < 0.4
    assert (wide.supremum, row.supremum, mean.supremum) == pytest.approx((1.0, 12.8, 20.0))
    assert all(c.largest <= c.supremum * (1 + 1e-9) for c in (one, labels, wide, row, mean, both))
    assert both.outside == 1 and both.pairs > 100 * 0.4 and not both.pairs_hold
    assert theorem_table(0.2) == theorem_table(0.2) != theorem_table(0.2, seed=1)


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"labels": 1}, {"values": 0}, {"rows": 151}, {"draws": 0}])
def test_wrong_numbers_for_the_table_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} = "):
        theorem_table(**{"epsilon": 0.2} | wrong)  # type: ignore[arg-type]
