"""``splitwiper data``: list data sets, fetch them, check them, and show how they are divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from splitwiper.cli import output
from splitwiper.cli.exit_codes import exit_code, guarded, when_interrupted
from splitwiper.cli.options import Json
from splitwiper.cli.progress import Bars
from splitwiper_lab.cli.data_plot import Folder, plot

if TYPE_CHECKING:
    from splitwiper_lab.datasets.sources import Found

STYLES = {"present": "green", "bundled": "green", "part": "yellow", "incomplete": "bold yellow"}
STYLES |= {"damaged": "bold red", "unreadable": "bold red"}

data = typer.Typer(
    name="data",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Data sets: list, fetch and check them, see how they are divided over clients.",
)


def list_(folder: Folder = None, as_json: Json = False) -> None:
    """List the known data sets, and whether they are here.

    Every set that is here is read, so that damage is noticed.

    Example:
      splitwiper data list
      splitwiper data list --data ~/data --json
    """
    from splitwiper_lab.datasets.sources import NAMES, data_folder, inspect

    root = data_folder(folder)
    with Bars(quiet=as_json) as bars:
        found = []
        for number, name in enumerate(NAMES):
            bars("reading data sets", number, len(NAMES))
            found.append(inspect(name, folder=root))
    if as_json:
        output.emit({"folder": root, "sets": list(map(_as_object, found))})
        return
    out = output.output()
    _print(found)
    out.print()
    output.line(out, f"Looked for in {root}")
    _notes(found)
    missing = False
    for one in found:
        if one.state == "missing":
            missing = True
        elif one.problem is not None:
            output.line(out, Text(f"{one.name}: ", "bold"), str(one.problem))
    if missing:
        output.line(out, "'splitwiper data fetch NAME' downloads what is missing.")


def fetch(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Data sets, for example cifar10.", show_default=False)
    ],
    folder: Folder = None,
    mirror: Annotated[
        str | None,
        typer.Option("--mirror", metavar="URL", help="Download from here; the checksums must be the published ones."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Download even what is here undamaged.")] = False,
    as_json: Json = False,
) -> None:
    """Download data sets from their publishers.

    Files are compared with the published checksums before anything is unpacked,
    and put in place whole or not at all. Undamaged files stay as they are,
    and so does a part of a set, unless --again is given.

    Example:
      splitwiper data fetch cifar10 mnist
      splitwiper data fetch cifar100 --data ~/data
    """
    from splitwiper_lab.datasets.fetch import fetch as get
    from splitwiper_lab.datasets.sources import PUBLISHED, data_folder, inspect, known

    root = data_folder(folder)
    found, fetched = [], []
    with Bars(quiet=as_json) as bars, when_interrupted("Nothing half-fetched is kept: run the same command again."):
        for name in dict.fromkeys(map(known, names)):
            bars(f"checking {name}", 0, 0)
            one = inspect(name, folder=root, hashes=True)
            if name in PUBLISHED and (again or one.state in ("missing", "incomplete", "damaged")):
                get(PUBLISHED[name], folder=root, mirror=mirror, progress=bars)
                fetched.append(name)
                one = inspect(name, folder=root)
            found.append(one)
    if as_json:
        output.emit({"folder": root, "fetched": fetched, "sets": list(map(_as_object, found))})
    else:
        _print(found)
        whole = not any(one.note or one.problem for one in found)
        nothing = "Nothing to fetch: all is here" if whole else "Nothing was fetched"
        output.output().print()
        _notes(found, " 'splitwiper data fetch NAME --again' gets the whole.")
        output.line(output.output(), f"Fetched {', '.join(fetched)} into {root}" if fetched else nothing)
    _leave(found)


def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Data sets; those that are here unless given.", show_default=False),
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Check data sets that are here: every file's size, content and SHA-256.

    Hashes are compared with those recorded by 'splitwiper data fetch', or otherwise
    with the published ones; for files that were unpacked by hand, there may be neither.

    Example:
      splitwiper data check
      splitwiper data check cifar10 --data ~/data
    """
    from splitwiper_lab.datasets.sources import PUBLISHED, data_folder, inspect, known

    root = data_folder(folder)
    asked = list(map(known, names or PUBLISHED))
    with Bars(quiet=as_json) as bars, when_interrupted("Checking changes nothing: run it again."):
        found = []
        for number, name in enumerate(asked):
            bars("checking data sets", number, len(asked))
            one = inspect(name, folder=root, hashes=True)
            if names or one.state != "missing":  # unless named, only what is here is checked
                found.append(one)
    if as_json:
        output.emit({"folder": root, "sets": list(map(_as_object, found))})
    else:
        out = output.output()
        rows = []
        for one in found:
            for file, recorded in one.files.items():
                rows.append((one.name, file, recorded))
        if found:
            _print(found)
        if rows:
            out.print()
            out.print(output.table(("set", "file", "hash as"), rows))
        out.print()
        _notes(found)
        output.line(
            out, f"Checked in {root}" if found else f"No data set is in {root}; 'splitwiper data fetch' gets one."
        )
    _leave(found)


def _print(found: Sequence[Found]) -> None:
    rows: list[tuple[str | Text, ...]] = []
    for one in found:
        counts = map(output.count, (one.train, one.test, one.labels)) if one.train else ["–"] * 3
        rows.append((one.name, Text(one.state, STYLES.get(one.state, "")), *counts, one.title))
    output.output().print(output.table(("set", "state", ">training", ">test", ">labels", "what it is"), rows))


def _notes(found: Sequence[Found], more: str = "") -> None:
    for one in found:
        if one.note:
            output.line(output.output(), Text(f"{one.name}: ", "bold"), one.note, more)


def _as_object(one: Found) -> dict[str, Any]:
    problem = None if one.problem is None else str(one.problem)
    return {
        "name": one.name,
        "title": one.title,
        "state": one.state,
        "train": one.train,
        "test": one.test,
        "labels": one.labels,
        "files": one.files,
        "note": one.note,
        "problem": problem,
    }


def _leave(found: Sequence[Found]) -> None:
    """Exit with the code of the first problem, after printing all."""
    code = 0
    for one in found:
        if one.problem is not None:
            output.line(output.errors(), Text("error: ", "bold red"), Text(str(one.problem), "red"))
            code = code or exit_code(one.problem)  # of the first, though all are shown
    if code:
        raise typer.Exit(code)


data.command("list")(guarded(list_))
data.command("fetch", no_args_is_help=True)(guarded(fetch))
data.command("check")(guarded(check))
data.command("plot", no_args_is_help=True)(guarded(plot))
