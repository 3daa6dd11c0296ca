"""The unit of a sweep: one system under one condition with one seed, and the line of a file that keeps its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitwiper.seeding import digest

FORMAT = 1
"""The version of a line. Lines without one are older; `from_line` reads them too."""


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        condition: the name of the condition.
        system: the name of the system, with its way to forget where it has several.
        seed: the seed.
        settings: a digest of everything the cell depends on: a result with another digest is of another configuration.
    """

    condition: str
    system: str
    seed: int
    settings: str

    @property
    def key(self) -> tuple[str, str, int]:
        """The cell's identity in a table."""
        return self.condition, self.system, self.seed

    @property
    def title(self) -> str:
        """The condition and system, for people."""
        return f"{self.condition}; {self.system}"


@dataclass(frozen=True)
class CellResult:
    """The result of a measured cell: one line of a file.

    Attributes:
        cell: the cell.
        values: the measured values, in the form of whatever measured them.
        made: provenance: fingerprint, version, date, commit.
        about: the sweep that the cell belongs to, in words for people.
    """

    cell: Cell
    values: Mapping[str, Any]
    made: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_line(self) -> dict[str, Any]:
        """Return the values of a line."""
        return {
            "format": FORMAT,
            "about": self.about,
            "condition": self.cell.condition,
            "system": self.cell.system,
            "seed": self.cell.seed,
            "settings": self.cell.settings,
            "values": self.values,
            "made": self.made,
        }


def from_line(line: Mapping[str, Any]) -> CellResult:
    """Create a result from the values of a line, of this format or an older one.

    Raises:
        KeyError: something is missing.
        TypeError: something has another type.
        ValueError: the line is of a newer version.
    """
    version = line.get("format", 0)  # lines from before there were versions do not say any
    if version not in (0, FORMAT):
        raise ValueError(f"it is of format {version!r}, and this version reads up to {FORMAT}")
    if version == 0:
        line = _from_older(line)
    cell = Cell(
        _checked(line, "condition", str),
        _checked(line, "system", str),
        _checked(line, "seed", int),
        _checked(line, "settings", str),
    )
    values, made, about = (_checked(line, name, dict) for name in ("values", "made", "about"))
    return CellResult(cell, values, made, about)


def _checked(line: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(line[name], kind):
        raise TypeError(f"{name} is {line[name]!r}")
    return line[name]


def about_digest(about: Mapping[str, Any], *more: str) -> str:
    """Return the digest of a sweep's conditions, for `Cell.settings`."""
    # in a fixed order: digests of recorded results must not change
    return digest(json.dumps(about, sort_keys=True, ensure_ascii=False), *more)[:16]


def _from_older(line: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a line from before there were versions, when each command had a form of its own."""
    if "record" in line:  # of `compare`
        about, record = line["about"], line["record"]
        cell = comparison_cell(about, record["system"], record["unlearning"], record["seed"], line["system"])
        return _converted(cell, record, line)
    if "point" in line:  # of `tradeoff`
        cell = tradeoff_cell(line["about"], line["point"]["setting"])
        return _converted(cell, line["point"], line)
    about = {name: line[name] for name in ("experiment", "scale") if name in line}
    return {**line, "about": about}  # of `reproduce`, which had the other names already


def _converted(cell: Cell, values: Any, line: Mapping[str, Any]) -> dict[str, Any]:
    made = {name: line[name] for name in ("fingerprint", "version", "date", "commit")}
    return CellResult(cell, values, made, line["about"]).to_line()


def comparison_cell(about: Mapping[str, Any], system: str, unlearning: str, seed: int, settings: str) -> Cell:
    """Return the cell of a comparison: one way of one system to forget."""
    return Cell(about["title"], f"{system}: {unlearning}", seed, about_digest(about, settings))


def tradeoff_cell(about: Mapping[str, Any], setting: str) -> Cell:
    """Return the cell of a trade-off: one way of hiding labels."""
    return Cell(f"{about['source']}, {about['model']}", setting, about["seed"], about_digest(about))
