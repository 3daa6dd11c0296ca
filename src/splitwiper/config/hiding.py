"""What SplitWiper+ hides, and how: masked labels and noise on activations. Only clients know these settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from splitwiper.config.settings import bounded, check_parts, choice, part, part_args, typed
from splitwiper.errors import ConfigError

MODES = ("none", "duplicate", "partition", "subclass", "keyed")
MOST_CODES = 10_000
MECHANISMS = ("none", "laplace", "gaussian")
_KEYED = {"codes", "buckets"}
# Settings that a mode has no use for; one from outside has settings of its own.
_NOT_FOR = {"duplicate": _KEYED, "partition": _KEYED, "subclass": _KEYED, "keyed": {"gamma"}}
READINGS = ("row", "value", "mean")


def _changed(settings: Masking | Noise) -> set[str]:
    """Return the settings that are not at their defaults."""
    return {field.name for field in fields(settings) if getattr(settings, field.name) != field.default}


@dataclass(frozen=True, kw_only=True)
class Masking:
    """How labels are turned into codes. `splitwiper.masking` explains each mode."""

    mode: str = part("splitwiper.modes", MODES)
    """'none' sends labels as they are; 'duplicate' is the paper's expansion; 'partition', 'subclass' and 'keyed' send
    each row once. Or one of your own, as ``package.module:name``."""
    mode_args: Mapping[str, Any] = part_args()
    """The settings of a mode of your own, by keyword."""
    gamma: int | tuple[int, ...] = 1
    """γ, the codes of every label; or [least, most], the ends of the range Γ that each label's number is drawn from.
    Not for 'keyed'."""
    codes: int = 0
    """E, the number of codes, only for 'keyed': at least the number of labels; 0 takes twice as many."""
    buckets: int = 8
    """B, only for 'keyed': secret parts of the input space, each with its own code for a label."""
    cover: float = 0.0
    """Blends of a client's own rows are added until each of its codes has this share of the rows of the largest."""
    pad: int = 0
    """Blends are added until the number of rows sent is a multiple of this; 0 adds none."""
    add: float = 0.5
    """λ1, the probability that a client adds labels to the pool in its turn."""
    finish: float = 0.5
    """λ2, the probability that a client whose labels are all in the pool says so in its turn."""
    most: int = 2
    """µ, the most labels a client adds in one turn."""

    def __post_init__(self) -> None:
        typed(self)
        check_parts(self)
        least, most = self.range  # (0, 0) where there are not one or two ends
        if not 1 <= least <= most <= 1000:
            raise ConfigError(
                f"gamma = {self.gamma!r}: a label has at least one code and at most 1,000; give a whole number, or the "
                "two ends of a range, as in [1, 3]."
            )
        bounded(self, "codes", 0, high=MOST_CODES)
        bounded(self, "buckets", 1, high=256)
        bounded(self, "cover", 0, high=1)
        bounded(self, "pad", 0, high=10**9)
        for name in ("add", "finish"):  # below, agreement takes thousands of rounds: hopeless
            bounded(self, name, 0.01, high=1)
        bounded(self, "most", 1, high=10**6)
        self._refuse_idle()

    def _refuse_idle(self) -> None:
        """Refuse settings that would have no effect: they show that something was meant to be hidden."""
        given = _changed(self) - {"mode", "mode_args"}
        if given and self.mode == "none":
            raise ConfigError(f"masking.mode is missing: without it {', '.join(sorted(given))} would hide nothing.")
        if idle := given & _NOT_FOR.get(self.mode, {"gamma", "codes", "buckets"}):
            raise ConfigError(f"masking.{', '.join(sorted(idle))} is not for mode = {self.mode!r}; leave it out.")

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest number of codes of a label."""
        ends = self.gamma if isinstance(self.gamma, tuple) else (self.gamma,)
        return (ends[0], ends[-1]) if 1 <= len(ends) <= 2 else (0, 0)

    @property
    def is_on(self) -> bool:
        """Whether labels are hidden."""
        return self.mode != "none"


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise on activations. `splitwiper.privacy` says what each reading does and does not protect."""

    mechanism: str = "none"
    """'none', 'laplace' or 'gaussian'."""
    epsilon: float = 0.0
    """ε of one release, of what `reading` names; larger is less noise. It must be stated."""
    delta: float = 1e-6
    """δ: 'gaussian' is calibrated to it, and 'laplace' is also accounted for at it."""
    clip: float = 0.0
    """Bound that noise is scaled to: of each value ('value', 'mean'), or of a row's norm ('row': L1 for 'laplace', L2
    for 'gaussian'). It must be stated: a fixed number, never fitted to data."""
    reading: str = "row"
    """What epsilon is stated for: a whole 'row'; each 'value' of it, so a row of d values spends d times as much; or
    one row's influence on the 'mean' of its label, which protects neither row nor value."""
    nonnegative: bool = False
    """Clip to [0, clip] instead of [-clip, clip]: for activations behind a ReLU, half the noise."""

    def __post_init__(self) -> None:
        typed(self)
        choice(self, "mechanism", MECHANISMS)
        choice(self, "reading", READINGS)
        for name, low, high in (("epsilon", 1e-9, 1e9), ("clip", 1e-9, 1e9)):
            if self.is_on and getattr(self, name) == 0:
                raise ConfigError(f"{name} is missing: mechanism = {self.mechanism!r} needs a number > 0.")
            bounded(self, name, low if self.is_on else 0, high=high)
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta = {self.delta!r} is out of range: give a number > 0 and < 1, such as 1e-6.")
        given = _changed(self)
        if given and not self.is_on:
            raise ConfigError(f"noise.mechanism is missing: without it {', '.join(sorted(given))} would add no noise.")

    @property
    def is_on(self) -> bool:
        """Whether noise is added."""
        return self.mechanism != "none"
