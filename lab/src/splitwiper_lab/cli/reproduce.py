"""``splitwiper reproduce``: reproduce a table or figure of the paper."""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.errors import ConfigError, InputError
from splitwiper_lab.cli.measuring import Data, silence_seed_warning

if TYPE_CHECKING:
    from rich.table import Table

    from splitwiper_lab.evaluation.comparison import SeedSpread
    from splitwiper_lab.evaluation.reproduction import Covered, Experiment
    from splitwiper_lab.sweeps import Cell, CellResult

Experiments = Annotated[
    Path | None, typer.Option("--experiments", metavar="DIR", help="The folder of experiments.", show_default=False)
]
Name = Annotated[str, typer.Argument(metavar="ID", help="Which result; --list shows them all.")]
Scale = Annotated[str, typer.Option("--scale", help="smoke: seconds; cpu: minutes on two cores; full: a GPU.")]
Listed = Annotated[bool, typer.Option("--list", help="List all results, and how much of each is there.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for results.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="TEXT", help="Only cells with this in their names. May be repeated."),
]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, help="Number of seeds, at most the experiment's.")]
Minutes = Annotated[
    float | None,
    typer.Option("--minutes", min=0, help="Start no new cell after this many minutes; run it again to continue."),
]
Commit = Annotated[str, typer.Option("--commit", help="Commit to record in the results (default: ask git).")]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", min=1, help="Cells to measure at once, each in its process. Times are more reliable with one."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, or a list, and nothing else.")]
RESULTS = Path("results/reproduce")


def reproduce(
    name: Name = "",
    scale: Scale = "smoke",
    listed: Listed = False,
    out: Out = RESULTS,
    only: Only = None,
    seeds: Seeds = None,
    minutes: Minutes = None,
    data: Data = None,
    experiments: Experiments = None,
    commit: Commit = "",
    jobs: Jobs = 1,
    as_json: Json = False,
) -> None:
    """Measure a table or figure of the paper again.

    Results are JSON lines in --out, one for each cell: a system under a condition
    with a seed. What is there already is not measured again, so that a long one can
    be done in pieces. 'splitwiper results' makes a page of all results.

    Example:
      splitwiper reproduce --list
      splitwiper reproduce effectiveness-vgg
      splitwiper reproduce effectiveness-vgg --scale full --minutes 9 --data DIR
    """
    from splitwiper_lab.evaluation.reproduction import read_experiment, results_file
    from splitwiper_lab.evaluation.reproduction.outcomes import sound
    from splitwiper_lab.evaluation.reproduction.sources import check_same, rows_here

    folder = experiments_folder(experiments)
    if listed:
        _list(folder, scale, out, as_json=as_json)
        return
    if not name:
        raise InputError("name a result, or ask for all of them with --list.")
    experiment = read_experiment(folder, name, scale)
    path = results_file(out, experiment)
    known = sound(path, experiment)
    todo = _wanted(experiment, known, only or (), seeds)
    here = rows_here(experiment, todo, data)
    check_same(known, here, path)
    try:
        with Bars(quiet=as_json) as bars, when_interrupted("What was measured is kept: run it again to go on."):
            _measure(experiment, todo, here, path, bars, minutes, data, commit or _commit(folder), jobs)
    finally:
        # also if measuring fails or is interrupted: what was measured before is kept, and shown
        if as_json or path.exists():
            _show(experiment, path, as_json=as_json)


def experiments_folder(given: Path | None) -> Path:
    """Return the folder of experiments: the given one, or the one that comes with the laboratory."""
    return given or Path(__file__).parents[1] / "experiments"


def _commit(folder: Path) -> str:
    """Return the commit of the source tree, with a + if files were changed; empty if git is unavailable."""
    try:
        commit = _git(folder, "rev-parse", "--short", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", ":/src", ":/lab/src")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit + ("+" if changed else "")  # results of changed code must not pass for those of the commit


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout.strip()


def _wanted(experiment: Experiment, known: Sequence[CellResult], only: Sequence[str], seeds: int | None) -> list[Cell]:
    """Return the selected cells that have no result yet.

    Raises:
        InputError: no cell's name matches ``only``.
    """
    from splitwiper_lab.evaluation.reproduction import select
    from splitwiper_lab.sweeps import missing

    if not select(experiment, only=only):
        # one for each title: seeds are not part of it
        names = list(dict.fromkeys(cell.title for cell in select(experiment)))
        raise InputError(f"--only {' '.join(only)} is in no cell's name. Some are: {'. '.join(names[:3])}.")
    return missing(select(experiment, only=only, seeds=seeds), known)


def _measure(
    experiment: Experiment,
    todo: Sequence[Cell],
    here: Mapping[str, list[int]],
    path: Path,
    bars: Bars,
    minutes: float | None,
    data: Path | None,
    commit: str,
    jobs: int,
) -> None:
    from splitwiper_lab.evaluation.reproduction import Bench, ExperimentMeasure, about
    from splitwiper_lab.evaluation.reproduction.sources import rows_of
    from splitwiper_lab.evaluation.reproduction.work import scratch
    from splitwiper_lab.sweeps import sweep

    machine = _machine(experiment)
    _check_writable(path.parent)
    end = time.monotonic() + 60 * minutes if minutes is not None else math.inf

    def made(cell: Cell) -> dict[str, Any]:
        provenance = {**machine, "commit": commit}
        if jobs > 1:  # times are then longer than those of a cell that ran alone
            provenance["beside"] = jobs - 1
        if rows := rows_of(experiment, cell, here):
            provenance["data"] = rows
        return provenance

    with scratch() as room, silence_seed_warning():
        bench = Bench(room, data, bars if jobs == 1 else None)  # other processes cannot draw on this terminal
        measured = sweep(
            path,
            todo,
            ExperimentMeasure(experiment, bench),
            made=made,
            about=about(experiment),
            jobs=jobs,
            go_on=lambda: time.monotonic() < end,
            progress=bars,
        )
        deque(measured, maxlen=0)  # each is in the file, which is read again to be shown


def _check_writable(folder: Path) -> None:
    """Check that results can be written, before measuring any.

    Raises:
        InputError: they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # a folder that exists may still refuse files
            pass
    except OSError as problem:
        raise InputError(
            f"results cannot be written to {folder} ({problem.strerror}): give another --out."
        ) from problem


def _machine(experiment: Experiment) -> dict[str, Any]:
    """Describe the machine that measures.

    Raises:
        ConfigError: the experiment needs a GPU, and there is none.
    """
    from splitwiper_lab.sweeps import machine

    (device,) = {str(condition.work.get("device", "cpu")) for condition in experiment.conditions}
    try:
        return machine(device)
    except ConfigError as problem:
        raise ConfigError(
            f"{experiment.id} takes a GPU at scale {experiment.scale}, and torch sees none here: run it where there "
            "is one, or take --scale cpu."
        ) from problem


def _show(experiment: Experiment, path: Path, *, as_json: bool) -> None:
    from splitwiper_lab.evaluation.reproduction import coverage, judged, outdated, totals
    from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds, sound
    from splitwiper_lab.evaluation.reproduction.sources import parts

    results = sound(path, experiment)
    verdicts, covered, spreads = (
        judged(experiment, results),
        coverage(experiment, results),
        over_seeds(experiment, results),
    )
    if as_json:
        cells = []
        for one in covered:
            cells.append({**vars(one), "values": spreads.get((one.condition, one.system), {})})
        named = {"id": experiment.id, "scale": experiment.scale, "title": experiment.title}
        output.emit({**named, "cells": cells, "verdicts": verdicts})
        return
    screen = output.output()
    output.line(screen, f"{experiment.title} ({experiment.paper})", style="bold")
    screen.print()
    for table in _tables(experiment, covered, spreads):
        screen.print(table)
        screen.print()
    for verdict in verdicts:
        output.line(screen, f"{verdict.word.capitalize()}: {verdict.says}. {verdict.sentence()}".rstrip())
    done, wanted = totals(covered)
    output.line(screen, f"{done} of {wanted} cells are there, at scale {experiment.scale}: {path}")
    for part in parts(map(attrgetter("made"), results)):
        output.line(screen, f"A part of the data was measured on: {part}.")
    if old := outdated(path, experiment):
        output.line(screen, f"{output.plural(old, 'line')} of that file are of other settings, and left out.")


SHOWN: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "compare": {
        "retained": ("learned.retained", "unlearned.retained"),
        "forgotten": ("learned.forgotten", "unlearned.forgotten"),
        "requester": ("learned.requester.time", "unlearned.requester.time"),
        "others": ("learned.others.time", "unlearned.others.time"),
    },
    "cluster": {
        "elbow": ("elbow.perfect", "elbow.inclusive"),
        "knowing Q": ("kmeans Q.perfect", "kmeans Q.inclusive"),
        "BIRCH": ("birch.perfect", "birch.inclusive"),
        "BIRCH, knowing Q": ("birch Q.perfect", "birch Q.inclusive"),
    },
    "converge": {"accuracy": ("accuracy",), "still changes": ("changed",)},
    "consensus": {"time": ("seconds",), "messages": ("messages",)},
}
"""Columns on a terminal, and the quantities in each."""


def _tables(
    experiment: Experiment, covered: Sequence[Covered], spreads: Mapping[tuple[str, str], Mapping[str, SeedSpread]]
) -> list[Table]:
    """Return a table for each condition."""
    from splitwiper_lab.evaluation.reproduction.formatting import on_terminal

    columns = SHOWN[experiment.kind]
    rows: dict[str, list[tuple[str, ...]]] = {}
    for one in covered:
        values = spreads.get((one.condition, one.system))
        cells = ["–"] * len(columns)
        if values:
            for place, names in enumerate(columns.values()):  # before forgetting → after it
                cells[place] = " → ".join(on_terminal(values, name) for name in names)
        rows.setdefault(one.condition, []).append((one.system, *cells, f"{one.done}/{one.wanted}"))
    headings = ("", *(f">{name}" for name in columns), ">seeds")
    return [output.table(headings, listed, title=condition) for condition, listed in rows.items()]


def _list(folder: Path, scale: str, out: Path, *, as_json: bool) -> None:
    from splitwiper_lab.evaluation import reproduction

    listed = []
    rows = []
    for name in reproduction.experiments(folder):
        experiment = reproduction.read_experiment(folder, name, scale)
        path = reproduction.results_file(out, experiment)
        results = reproduction.read_experiment_results(path, experiment)
        done, wanted = reproduction.totals(reproduction.coverage(experiment, results))
        listed.append({"id": name, "title": experiment.title, "paper": experiment.paper, "done": done, "cells": wanted})
        rows.append((name, experiment.title, f"{done}/{wanted}"))
    if as_json:
        output.emit(listed)
    else:
        output.output().print(output.table(("id", "what it reproduces", f">done, {scale}"), rows))
