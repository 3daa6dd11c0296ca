"""Privacy accounting: epsilon of each value and of each row after all releases.

Every generation of a shard is a fresh release of each surviving row, and so is every copy of a row under another code.
A prediction releases the row it is made for, once for each half; asking again repeats the noise and is free.

Laplace noise is accounted for in three ways (basic composition, Rényi divergences, privacy loss distributions) and the
smallest result counts; Gaussian noise exactly. `Budget` assumes a row that is uploaded in every generation, and
predicted as often as the row that was predicted most.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from splitwiper.config import Noise
from splitwiper.errors import ConfigError
from splitwiper.formats import plural
from splitwiper.privacy.composing import PrivacyLoss, compose

KINDS = ("upload", "prediction")


@dataclass(frozen=True, kw_only=True)
class Release:
    """One or more releases of a row under the same settings."""

    kind: str
    times: int = 1
    copies: int = 1
    """γ: noisy copies of the row in each release."""
    group: int = 1
    """Rows of the largest masked label, for the reading 'mean'."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"kind = {self.kind!r} is not one of {', '.join(KINDS)}.")
        for name in ("times", "copies", "group"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name} = {value!r} is out of range: give a whole number ≥ 1.")


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """An epsilon: pure (δ = 0) if there is one, and at the settings' δ; None without noise."""

    pure: float | None
    at_delta: float | None

    def text(self, delta: float) -> str:
        """Return the epsilon as text.

        >>> Epsilon(pure=0.4, at_delta=0.4).text(1e-6), Epsilon(pure=None, at_delta=2.0).text(1e-6)
        ('epsilon 0.4 (pure)', 'epsilon 2 at delta 1e-06')
        """
        if self.at_delta is None:
            return "no protection"
        if self.pure is None:
            return f"epsilon {_number(self.at_delta)} at delta {delta:g}"
        if _number(self.pure) == _number(self.at_delta):
            return f"epsilon {_number(self.pure)} (pure)"
        return f"epsilon {_number(self.pure)} (pure), {_number(self.at_delta)} at delta {delta:g}"


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What a row and each of its values have spent, as plain numbers, for receipts and status."""

    mechanism: str
    reading: str
    values: int
    uploads: int
    predictions: int
    delta: float
    row: Epsilon
    value: Epsilon

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON accepts them."""
        return dataclasses.asdict(self)

    @property
    def sentence(self) -> str:
        """The spending in one sentence."""
        if self.mechanism == "none":
            return "no noise: activations cross the cut as they are"
        releases = []
        if self.uploads:
            releases.append(plural(self.uploads, "upload"))
        if self.predictions:
            releases.append(f"predictions through {plural(self.predictions, 'half', 'halves')}")
        if not releases:
            return "nothing was sent yet, and nothing spent"
        row, value = self.row.text(self.delta), self.value.text(self.delta)
        return f"each row of {plural(self.values, 'value')}: {row} after {' and '.join(releases)}; each value: {value}"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """All releases of one row."""

    noise: Noise
    values: int
    """Float values in a row, over all columns."""
    releases: tuple[Release, ...] = ()

    def __post_init__(self) -> None:
        if type(self.values) is not int or self.values < 1:
            raise ConfigError(f"values = {self.values!r} is out of range: give a whole number ≥ 1.")

    def after(self, release: Release) -> Budget:
        """Return the budget with one more release."""
        return dataclasses.replace(self, releases=(*self.releases, release))

    def spent(self) -> Spending:
        """Return epsilon of a row and of a value.

        Raises:
            ConfigError: dp-accounting is not installed.
        """
        # what is stated for a row is spent once by all of its values; otherwise each value spends on its own
        row, value = self._epsilon(1 if self.noise.reading == "row" else self.values), self._epsilon(1)
        count = dict.fromkeys(KINDS, 0)
        for release in self.releases:
            count[release.kind] += release.times
        return Spending(
            mechanism=self.noise.mechanism,
            reading=self.noise.reading,
            values=self.values,
            uploads=count["upload"],
            predictions=count["prediction"],
            delta=self.noise.delta,
            row=row,
            value=value,
        )

    def _epsilon(self, values: int) -> Epsilon:
        if not self.noise.is_on:
            return Epsilon(pure=None, at_delta=None)
        losses = []
        for release in self.releases:
            # noise for the mean of a group is smaller by the group's size, so a row of it loses as much more
            factor = release.group if self.noise.reading == "mean" else 1
            losses.append(PrivacyLoss(factor, release.times * release.copies * values))
        pure, at_delta = compose(self.noise, losses)
        return Epsilon(pure=pure, at_delta=at_delta)


def stated(noise: Noise, *, values: int, group: int = 1) -> Spending:
    """Return what one upload spends of each row and of each value: what the settings really mean.

    >>> spending = stated(Noise(mechanism="laplace", epsilon=0.2, clip=1.0, reading="value"), values=4096)
    >>> spending.value.pure, round(spending.row.pure, 1)
    (0.2, 819.2)
    """
    return Budget(noise=noise, values=values, releases=(Release(kind="upload", group=group),)).spent()


def _number(value: float) -> str:
    """Format with four significant digits, and no exponent below a million."""
    return f"{value:,.1f}".removesuffix(".0") if 1000 <= value < 1e6 else f"{value:.4g}"
