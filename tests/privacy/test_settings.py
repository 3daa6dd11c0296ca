"""Settings of noise: what is refused, how much noise they ask for, and how the paper's epsilon is read."""

import tomllib
from typing import Any

import pytest
from dp_accounting import get_epsilon_gaussian

from splitwiper.config import from_dict, to_toml
from splitwiper.errors import ConfigError
from splitwiper.privacy import Noise, check_noise, paper, scale
from splitwiper.privacy.calibration import deviation


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mechanism": "laplce"}, "Did you mean 'laplace'"),
        ({"mechanism": "laplace", "clip": 1.0}, "epsilon is missing"),
        ({"mechanism": "laplace", "epsilon": 1.0}, "clip is missing"),
        ({"mechanism": "laplace", "epsilon": -1.0, "clip": 1.0}, "epsilon = -1.0 is out of range"),
        ({"mechanism": "laplace", "epsilon": float("nan"), "clip": 1.0}, "epsilon = nan"),
        ({"mechanism": "laplace", "epsilon": float("inf"), "clip": 1.0}, "epsilon = inf"),
        ({"epsilon": float("nan")}, "epsilon = nan"),
        ({"mechanism": "laplace", "epsilon": 1.0, "clip": -2.0}, "clip = -2.0"),
        ({"delta": 0.0}, "delta = 0.0"),
        ({"delta": 1.0}, "give a number > 0 and < 1"),
        ({"delta": float("nan")}, "delta = nan"),
        ({"reading": "rows"}, "Did you mean 'row'"),
        ({"epsilon": "1"}, "epsilon must be float"),
        ({"nonnegative": 1}, "nonnegative must be bool"),
    ],
)
def test_wrong_settings_say_what_is_wrong(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Noise(**values)
    assert message in str(caught.value)


def test_settings_survive_toml() -> None:
    noise = Noise(mechanism="gaussian", epsilon=0.5, delta=1e-5, clip=3.0, reading="mean", nonnegative=True)
    assert from_dict(Noise, tomllib.loads(to_toml(noise))) == noise


@pytest.mark.parametrize(
    ("reading", "nonnegative", "group", "expected"),
    [
        ("row", False, 1, 6.0),
        ("row", True, 1, 6.0),
        ("value", False, 1, 6.0),
        ("value", True, 1, 3.0),
        ("value", True, 10, 3.0),
        ("mean", False, 10, 0.6),
    ],
)
def test_laplace_scale_is_sensitivity_over_epsilon(
    reading: str, nonnegative: bool, group: int, expected: float
) -> None:
    noise = Noise(mechanism="laplace", epsilon=0.5, clip=1.5, reading=reading, nonnegative=nonnegative)
    assert scale(noise, group=group) == pytest.approx(expected)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_gaussian_deviation_is_enough_and_hardly_more(epsilon: float) -> None:
    given = get_epsilon_gaussian(deviation(epsilon, 1e-6), 1e-6)
    assert given <= epsilon < given * 1.001


def test_nonnegative_rows_move_less_in_l2() -> None:
    signed, positive = (
        Noise(mechanism="gaussian", epsilon=1.0, clip=1.0, reading="row", nonnegative=n) for n in (False, True)
    )
    assert scale(signed) / scale(positive) == pytest.approx(2**0.5)


def test_the_papers_readings() -> None:
    assert scale(paper("A", epsilon=0.1)) == scale(paper("A", epsilon=0.1, nonnegative=False)) == 10.0
    assert scale(paper("B", epsilon=0.1), group=1000) == pytest.approx(0.01)
    with pytest.raises(ConfigError, match="'C'"):
        paper("C", epsilon=0.1)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check_noise(Noise())
    with pytest.raises(ConfigError, match=r"cryptography: pip install 'splitwiper\[plus\]'"):
        check_noise("laplace")
