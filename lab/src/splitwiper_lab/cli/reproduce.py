"""``splitwiper reproduce``: reproduce a table or figure of the paper."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.errors import ConfigError, InputError
from splitwiper_lab.cli.seed_warning import silence_seed_warning

if TYPE_CHECKING:
    from rich.table import Table

    from splitwiper_lab.evaluation.reproduction import Experiment
    from splitwiper_lab.sweeps import Cell, CellResult

Experiments = Annotated[
    Path | None,
    typer.Option("--experiments", metavar="DIR", help="The folder of experiments.", show_default=False),
]
Scale = Annotated[str, typer.Option("--scale", help="smoke: seconds; cpu: minutes on two cores; full: a GPU.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="For results.")]
RESULTS = Path("results/reproduce")


def reproduce(
    name: Annotated[str, typer.Argument(metavar="ID", help="Which result; --list shows them all.")] = "",
    scale: Scale = "smoke",
    listed: Annotated[bool, typer.Option("--list", help="List all results, and how much of each is there.")] = False,
    out: Out = RESULTS,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TEXT", help="Only cells with this in their names. May be repeated."),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Fewer than the experiment has.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0, help="Begin nothing new after this time; run it again to continue."),
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Where data sets lie.", show_default=False)] = None,
    experiments: Experiments = None,
    commit: Annotated[str, typer.Option("--commit", help="Written into the results; git is asked else.")] = "",
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", min=1, help="Cells to measure at once, each in its process. Times are more reliable with one."
        ),
    ] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, or a list, and nothing else.")
    ] = False,
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
    there = sound(path, experiment)
    todo = _wanted(experiment, there, only or (), seeds)
    here = rows_here(experiment, todo, data)
    check_same(there, here, path)
    try:
        with Bars(quiet=as_json) as bars, when_interrupted("What was measured is kept: run it again to go on."):
            _measure(experiment, todo, here, path, bars, minutes, data, commit or _commit(folder), jobs)
    finally:
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
    return commit + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout.strip()


def _wanted(experiment: Experiment, there: Sequence[CellResult], only: Sequence[str], seeds: int | None) -> list[Cell]:
    """Return the selected cells that have no result yet.

    Raises:
        InputError: no cell's name matches ``only``.
    """
    from splitwiper_lab.evaluation.reproduction import select
    from splitwiper_lab.sweeps import missing

    if not select(experiment, only=only):
        names = list(dict.fromkeys(cell.title for cell in select(experiment)))
        raise InputError(f"--only {' '.join(only)} is in no cell's name. Some are: {'. '.join(names[:3])}.")
    return missing(select(experiment, only=only, seeds=seeds), there)


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
    end = time.monotonic() + 60 * minutes if minutes is not None else None

    def made(cell: Cell) -> dict[str, Any]:
        known = {**machine, "commit": commit}
        if jobs > 1:  # times are then longer than those of a cell that ran alone
            known["beside"] = jobs - 1
        if rows := rows_of(experiment, cell, here):
            known["data"] = rows
        return known

    with scratch() as room, silence_seed_warning():
        bench = Bench(room, data, bars if jobs == 1 else None)  # other processes cannot draw on this terminal
        for _ in sweep(
            path,
            todo,
            ExperimentMeasure(experiment, bench),
            made=made,
            about=about(experiment),
            jobs=jobs,
            go_on=lambda: end is None or time.monotonic() < end,
            progress=bars,
        ):
            pass


def _check_writable(folder: Path) -> None:
    """Check that results can be written, before measuring any.

    Raises:
        InputError: they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
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
    from splitwiper_lab.evaluation.reproduction import coverage, judged, outdated
    from splitwiper_lab.evaluation.reproduction.outcomes import sound
    from splitwiper_lab.evaluation.reproduction.sources import parts

    results = sound(path, experiment)
    verdicts, covered = judged(experiment, results), coverage(experiment, results)
    if as_json:
        output.emit(
            {"id": experiment.id, "scale": experiment.scale, **_told(experiment, results), "verdicts": verdicts}
        )
        return
    screen = output.output()
    output.line(screen, f"{experiment.title} ({experiment.paper})", style="bold")
    screen.print()
    for table in _tables(experiment, results):
        screen.print(table)
        screen.print()
    for verdict in verdicts:
        output.line(screen, f"{verdict.word.capitalize()}: {verdict.says}. {verdict.told()}".rstrip())
    done, wanted = sum(c.done for c in covered), sum(c.wanted for c in covered)
    output.line(screen, f"{done} of {wanted} cells are there, at scale {experiment.scale}: {path}")
    for part in parts(result.made for result in results):
        output.line(screen, f"A part of the data was measured on: {part}.")
    if old := outdated(path, experiment):
        output.line(screen, f"{output.plural(old, 'line')} of that file are of other settings, and left out.")


def _told(experiment: Experiment, results: Sequence[CellResult]) -> dict[str, Any]:
    """Return quantities and coverage, for JSON."""
    from splitwiper_lab.evaluation.reproduction import coverage
    from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds

    found = over_seeds(experiment, results)
    cells = []
    for covered in coverage(experiment, results):
        values = found.get((covered.condition, covered.system), {})
        cells.append({**vars(covered), "values": values})
    return {"title": experiment.title, "cells": cells}


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


def _tables(experiment: Experiment, results: Sequence[CellResult]) -> list[Table]:
    """Return a table for each condition."""
    from splitwiper_lab.evaluation.reproduction import coverage
    from splitwiper_lab.evaluation.reproduction.formatting import on_terminal
    from splitwiper_lab.evaluation.reproduction.outcomes import over_seeds

    found, columns = over_seeds(experiment, results), SHOWN[experiment.kind]
    rows: dict[str, list[tuple[str, ...]]] = {}
    for covered in coverage(experiment, results):
        values = found.get((covered.condition, covered.system))
        cells = ["–"] * len(columns)
        if values:
            for place, names in enumerate(columns.values()):  # before forgetting → after it
                cells[place] = " → ".join(on_terminal(values, name) for name in names)
        row = (covered.system, *cells, f"{covered.done}/{covered.wanted}")
        rows.setdefault(covered.condition, []).append(row)
    headings = ("", *(f">{name}" for name in columns), ">seeds")
    return [output.table(headings, listed, title=condition) for condition, listed in rows.items()]


def _list(folder: Path, scale: str, out: Path, *, as_json: bool) -> None:
    from splitwiper_lab.evaluation.reproduction import (
        coverage,
        experiments,
        read_experiment,
        read_experiment_results,
        results_file,
    )

    found = []
    for name in experiments(folder):
        experiment = read_experiment(folder, name, scale)
        covered = coverage(experiment, read_experiment_results(results_file(out, experiment), experiment))
        done, wanted = sum(c.done for c in covered), sum(c.wanted for c in covered)
        found.append({"id": name, "title": experiment.title, "paper": experiment.paper, "done": done, "cells": wanted})
    if as_json:
        output.emit(found)
        return
    screen = output.output()
    rows = [(str(one["id"]), str(one["title"]), f"{one['done']}/{one['cells']}") for one in found]
    screen.print(output.table(("id", "what it reproduces", f">done, {scale}"), rows))
