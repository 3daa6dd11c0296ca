"""The page's input, read from files: experiments with results, the trade-off, the comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splitwiper.formats import NONE, moment
from splitwiper_lab.evaluation.comparison import Record, check_record
from splitwiper_lab.evaluation.reproduction import (
    Covered,
    Experiment,
    coverage,
    experiments,
    read_experiment,
    results_file,
)
from splitwiper_lab.evaluation.reproduction.outcomes import sound
from splitwiper_lab.evaluation.reproduction.sources import parts
from splitwiper_lab.evaluation.tradeoff import Point, in_table_order, settings
from splitwiper_lab.sweeps import CellResult, machines, read_results

Key = tuple[str, str]


@dataclass(frozen=True)
class Measured:
    """An experiment and its results."""

    experiment: Experiment
    results: Sequence[CellResult]

    @property
    def covered(self) -> list[Covered]:
        """The coverage of each condition and system."""
        return coverage(self.experiment, self.results)

    @property
    def done(self) -> int:
        """The number of cells that are measured."""
        return sum(covered.done for covered in self.covered)

    @property
    def wanted(self) -> int:
        """The total number of cells."""
        return sum(covered.wanted for covered in self.covered)

    @property
    def there(self) -> Measured:
        """A copy without conditions and systems that have no results, for drawing."""
        found = {(result.cell.condition, result.cell.system) for result in self.results}
        conditions = []
        for condition in self.experiment.conditions:
            only = tuple(s.name for s in self.experiment.systems if (condition.name, s.name) in found)
            if only:
                conditions.append(replace(condition, only=only))
        names = {name for _, name in found}
        systems = tuple(system for system in self.experiment.systems if system.name in names)
        return replace(self, experiment=replace(self.experiment, conditions=tuple(conditions), systems=systems))

    def seeds(self) -> str:
        """Say how many seeds the measured cells have."""
        return seeds_told([covered.done for covered in self.covered if covered.done])


@dataclass(frozen=True)
class Beside:
    """Results of another command that the page shows too.

    Attributes:
        file: the file's name on the page.
        about: the measurement conditions.
        points: the points of a trade-off.
        records: the records of a comparison.
        made: the provenance of each line.
    """

    file: str
    about: Mapping[str, Any]
    points: tuple[Point, ...] = ()
    records: tuple[Record, ...] = ()
    made: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Collected:
    """Everything that the page shows."""

    scale: str
    measured: tuple[Measured, ...]
    tradeoff: Beside | None = None
    comparison: Beside | None = None

    def of(self, *names: str) -> list[Measured]:
        """Return the experiments with results whose ids start with one of ``names``."""
        return [one for one in self.measured if one.results and one.experiment.id.startswith(names)]


def seeds_told(counts: Sequence[int]) -> str:
    """Write numbers of seeds as text.

    >>> seeds_told([3, 3]), seeds_told([1, 3]), seeds_told([])
    ('3', '1 to 3', '–')
    """
    if not counts:
        return "–"
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def read_all(folder: Path, results: Path, scale: str) -> tuple[Measured, ...]:
    """Read every experiment with its results, in order.

    Raises:
        DataError: a line of a file is damaged; the message names the file and the line.
    """
    out = []
    for name in experiments(folder):
        experiment = read_experiment(folder, name, scale)
        out.append(Measured(experiment, sound(results_file(results, experiment), experiment)))
    return tuple(out)


def read_tradeoff(path: Path) -> Beside | None:
    """Read the trade-off's results under the conditions measured last; None if there are none.

    Raises:
        DataError: a line is damaged.
    """
    latest = _latest(path, lambda result: (Point.from_dict(result.values), machines([result])))
    if not latest:
        return None
    by_setting = {result.cell.system: result for result in latest}
    points = in_table_order([Point.from_dict(result.values) for result in latest], settings(10))
    made = tuple(by_setting[point.setting].made for point in points)
    return Beside(_named(path), latest[-1].about, points=tuple(points), made=made)


def read_comparison(path: Path) -> Beside | None:
    """Read the comparison's results under the conditions measured last; None if there are none.

    Raises:
        DataError: a line is damaged.
    """
    latest = _latest(path, check_record)
    if not latest:
        return None
    records = tuple(Record.from_dict(result.values) for result in latest)
    return Beside(_named(path), latest[-1].about, records=records, made=tuple(result.made for result in latest))


def _latest(path: Path, check: Callable[[CellResult], object]) -> list[CellResult]:
    """Return the results under the conditions measured last, one for each system and seed."""
    found = read_results(path, check=check)
    once: dict[tuple[str, str, int], CellResult] = {}
    for result in found:
        if result.about == found[-1].about:
            once.setdefault(result.cell.key, result)
    return list(once.values())


def _named(path: Path) -> str:
    """Return a file's path without the folders that are specific to this machine."""
    return "/".join(path.parts[path.parts.index("results") :]) if "results" in path.parts else path.name


def made_of(made: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the provenance of results as facts: hardware, torch, commits and dates."""
    if not made:
        return {}
    prints = [one.get("fingerprint", {}) for one in made]
    dates = sorted(str(one.get("date", ""))[:10] for one in made)
    span = moment(dates[0]) if dates[0] == dates[-1] else f"{moment(dates[0])} to {moment(dates[-1])}"
    commits = sorted({str(one.get("commit", "")) for one in made} - {""})
    return {
        "Hardware": "; ".join(sorted({_hardware(one) for one in prints})),
        "torch": ", ".join(sorted({str(one.get("torch", "–")) for one in prints})),
        "Commit": ", ".join(commits) or NONE,
        "Measured": span,
    }


def made_told(made: Sequence[Mapping[str, Any]]) -> str:
    """Return the provenance of results as a sentence."""
    facts = made_of(made)
    if not facts:
        return ""
    commits = "" if facts["Commit"] == NONE else f", commit {facts['Commit']}"
    told = f"Measured on {facts['Hardware']} with torch {facts['torch']}{commits}, {facts['Measured']}."
    return " ".join(part for part in (told, how_told(made)) if part)


def how_told(made: Sequence[Mapping[str, Any]]) -> str:
    """Say what else readers of results should know: that data was incomplete, or that cells ran concurrently."""
    some = parts(made)
    told = f"On a part of the data: {'; '.join(some)}. " if some else ""
    shared = sum("beside" in one for one in made)
    if not shared:
        return told.rstrip()
    which = "All" if shared == len(made) else f"{shared} of {len(made)}"
    most = max(int(one.get("beside", 0)) for one in made)
    return (
        f"{told}{which} cells ran alongside up to {most} others on the same machine, which makes their times longer. "
        "Times are of those seeds that ran alongside the fewest."
    )


def _hardware(fingerprint: Mapping[str, Any]) -> str:
    device = str(fingerprint.get("device", "cpu"))
    return device.removeprefix("cuda ") if device != "cpu" else f"CPU, {fingerprint.get('machine', '–')}"
