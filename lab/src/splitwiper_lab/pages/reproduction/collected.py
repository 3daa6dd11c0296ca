"""The page's input, read from files: experiments with results, the trade-off, the comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from splitwiper.formats import NONE, moment
from splitwiper_lab.evaluation.comparison import Record, SeedSpread, check_record, records_of_results
from splitwiper_lab.evaluation.reproduction import (
    Covered,
    Experiment,
    coverage,
    experiments,
    read_experiment,
    results_file,
    totals,
)
from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds, sound
from splitwiper_lab.evaluation.reproduction.sources import parts
from splitwiper_lab.evaluation.tradeoff import Point, in_table_order, settings
from splitwiper_lab.sweeps import CellResult, machines, read_results


@dataclass(frozen=True)
class Measured:
    """An experiment and its results."""

    experiment: Experiment
    results: Sequence[CellResult]

    @cached_property
    def spreads(self) -> dict[tuple[str, str], dict[str, SeedSpread]]:
        """Every quantity over seeds, by condition and system."""
        return over_seeds(self.experiment, self.results)

    @cached_property
    def covered(self) -> list[Covered]:
        """The coverage of each condition and system."""
        return coverage(self.experiment, self.results)

    @property
    def done(self) -> int:
        """The number of cells that are measured."""
        return totals(self.covered)[0]

    @property
    def wanted(self) -> int:
        """The total number of cells."""
        return totals(self.covered)[1]

    @property
    def made(self) -> list[Mapping[str, Any]]:
        """The provenance of each result."""
        return list(map(attrgetter("made"), self.results))

    @property
    def command(self) -> str:
        """The command that reproduces the experiment."""
        data = "" if self.experiment.scale == "smoke" else " --data DIR"
        return f"splitwiper reproduce {self.experiment.id} --scale {self.experiment.scale}{data}"

    @property
    def there(self) -> Measured:
        """A copy without conditions and systems that have no results, for drawing."""
        conditions, names = [], set[str]()
        for condition in self.experiment.conditions:
            only = tuple(name for name in self.experiment.names if (condition.name, name) in self.spreads)
            names.update(only)
            if only:
                conditions.append(replace(condition, only=only))
        systems = tuple(system for system in self.experiment.systems if system.name in names)
        return replace(self, experiment=replace(self.experiment, conditions=tuple(conditions), systems=systems))

    def seeds(self) -> str:
        """Say how many seeds the measured cells have."""
        return seed_counts(map(attrgetter("done"), self.covered))


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
        found = []
        for measured in self.measured:
            if measured.results and measured.experiment.id.startswith(names):
                found.append(measured)
        return found


def seed_counts(counts: Iterable[int]) -> str:
    """Write numbers of seeds as text, as a range if they differ. Zeros are left out.

    >>> seed_counts([3, 3]), seed_counts([1, 3, 0]), seed_counts([])
    ('3', '1 to 3', '–')
    """
    present = sorted(filter(None, counts))
    if not present:
        return NONE
    low, high = present[0], present[-1]
    return str(low) if low == high else f"{low} to {high}"


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
    points = in_table_order([Point.from_dict(result.values) for result in latest], settings(10))
    return _beside(path, latest, points=tuple(points))


def read_comparison(path: Path) -> Beside | None:
    """Read the comparison's results under the conditions measured last; None if there are none.

    Raises:
        DataError: a line is damaged.
    """
    latest = _latest(path, check_record)
    return _beside(path, latest, records=tuple(records_of_results(latest)))


def _beside(path: Path, latest: Sequence[CellResult], **values: Any) -> Beside | None:
    if not latest:
        return None
    # folders above results are specific to this machine
    name = "/".join(path.parts[path.parts.index("results") :]) if "results" in path.parts else path.name
    return Beside(name, latest[-1].about, made=tuple(map(attrgetter("made"), latest)), **values)


def _latest(path: Path, check: Callable[[CellResult], object]) -> list[CellResult]:
    """Return the results under the conditions measured last, one for each system and seed."""
    every = read_results(path, check=check)
    once: dict[tuple[str, str, int], CellResult] = {}
    for result in every:
        if result.about == every[-1].about:  # appended in time, so the last line has the latest conditions
            once.setdefault(result.cell.key, result)  # settings changed since may have given a system two results
    return list(once.values())


def provenance(made: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the provenance of results as facts: hardware, torch, commits and dates."""
    machines, versions, commits, dates = set(), set(), set(), set()
    for line in made:
        fingerprint = line.get("fingerprint", {})
        machines.add(_hardware(fingerprint))
        versions.add(str(fingerprint.get("torch", NONE)))
        commits.add(str(line.get("commit", "")))
        dates.add(str(line.get("date", ""))[:10])  # the day: ten characters of the ISO form
    first, last = moment(min(dates)), moment(max(dates))
    return {
        "Hardware": "; ".join(sorted(machines)),
        "torch": ", ".join(sorted(versions)),
        "Commit": ", ".join(sorted(commits - {""})) or NONE,  # measured outside a repository, or without saying
        "Measured": first if first == last else f"{first} to {last}",
    }


def made_as_text(made: Sequence[Mapping[str, Any]]) -> str:
    """Return the provenance of results as sentences."""
    facts = provenance(made)
    commits = "" if facts["Commit"] == NONE else f", commit {facts['Commit']}"
    text = f"Measured on {facts['Hardware']} with torch {facts['torch']}{commits}, {facts['Measured']}."
    return f"{text} {how_measured(made)}".rstrip()


def how_measured(made: Sequence[Mapping[str, Any]]) -> str:
    """Say what else readers of results should know: that data was incomplete, or that cells ran concurrently."""
    incomplete = parts(made)
    text = f"On a part of the data: {'; '.join(incomplete)}. " if incomplete else ""
    beside = [int(line["beside"]) for line in made if "beside" in line]  # cells that ran alone do not say it
    if not beside:
        return text.rstrip()
    which = "All" if len(beside) == len(made) else f"{len(beside)} of {len(made)}"
    return (
        f"{text}{which} cells ran alongside up to {max(beside)} others on the same machine, which makes their times "
        "longer. Times are of those seeds that ran alongside the fewest."
    )


def _hardware(fingerprint: Mapping[str, Any]) -> str:
    device = str(fingerprint.get("device", "cpu"))
    return device.removeprefix("cuda ") if device != "cpu" else f"CPU, {fingerprint.get('machine', NONE)}"
