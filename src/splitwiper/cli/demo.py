"""``splitwiper demo``: five clients learn digits, one forgets a class, and the result is verified."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import OUTCOMES, when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import open_run
from splitwiper.errors import InputError

if TYPE_CHECKING:
    from splitwiper.config import Config
    from splitwiper.report import ReportData

CLIENTS = ("north", "south", "east", "west", "centre")
OWNER = "north"
FORGOTTEN = "three"
DEFAULT = Path("runs/demo")


def demo(
    run: Annotated[
        Path | None,
        typer.Option("--run", help="A new folder for the run. Default: runs/demo, then runs/demo-2 and so on."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of all randomness.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a single JSON object instead of text.")] = False,
) -> None:
    """Five clients learn digits; one forgets a class, exactly.

    Needs no data, no network and no settings. Shows accuracy before and after,
    what every client spent, verifies the receipt by recomputing, and writes a
    report as a web page.

    Example:
      splitwiper demo --run runs/first
    """
    began = time.perf_counter()
    folder = _fresh(run)
    with Bars(quiet=as_json) as bars, when_interrupted("Run the demo again: it starts afresh, in another folder."):
        from splitwiper.cli.demo_run import forget_class
        from splitwiper.report import write_report

        federation = open_run(folder, bars, _config(seed))
        told = forget_class(federation, clients=CLIENTS, owner=OWNER, name=FORGOTTEN, seed=seed)
        page = write_report(folder / "report.html", told)
    found = _result(told, folder, page, time.perf_counter() - began)
    if as_json:
        output.emit(found)
    else:
        _print(told, found)
    raise typer.Exit(OUTCOMES[told.verification.outcome])


def _fresh(run: Path | None) -> Path:
    """Return an empty folder to work in; existing runs are not touched."""
    if run is not None:
        if run.exists() and (not run.is_dir() or any(run.iterdir())):
            raise InputError(f"{run} is not an empty folder; give another --run, or leave it out for a fresh one.")
        return run
    number = 1
    while True:
        folder = DEFAULT if number == 1 else DEFAULT.with_name(f"{DEFAULT.name}-{number}")
        try:
            folder.mkdir(mode=0o700, parents=True)  # taken in one step: two demos at once get two folders
            return folder
        except FileExistsError:
            number += 1


def _config(seed: int) -> Config:
    from splitwiper.config import ClientConfig, Config, ModelConfig, ServerConfig

    return Config(
        seed=seed,
        model=ModelConfig(
            factory="splitwiper.models:digits_cnn", inputs={"x": "float32[1,8,8]"}, at="stem", head="head"
        ),
        server=ServerConfig(epochs=20, threads=1),
        client=ClientConfig(epochs=10, threads=1, keys="seeded"),
    )


def _result(told: ReportData, folder: Path, page: Path, elapsed: float) -> dict[str, Any]:
    mine = next(client for client in told.clients if client.requester)
    clients = {}
    for client in told.clients:
        clients[client.name] = {
            "rows_before": client.rows_before,
            "rows_after": client.rows_after,
            "learn": client.learn,
            "unlearn": client.unlearn,
        }
    return {
        "run": folder,
        "report": page,
        "forgotten_accuracy_before": told.before.forgotten,
        "forgotten_accuracy_after": told.after.forgotten,
        "retained_accuracy_before": told.before.retained,
        "retained_accuracy_after": told.after.retained,
        "requester": OWNER,
        "forgotten_class": FORGOTTEN,
        "forgotten_rows": mine.rows_before - mine.rows_after,
        "requester_seconds": mine.unlearn.seconds,
        "requester_bytes": mine.unlearn.traffic,
        "others_seconds": sum(client.unlearn.seconds for client in told.others),
        "others_bytes": sum(client.unlearn.traffic for client in told.others),
        "server_seconds": told.server.unlearn_seconds,
        "exact": told.verification.exact,
        "outcome": told.verification.outcome,
        "ticket": told.receipt["ticket"],
        "clients": clients,
        "seed": told.seed,
        "seconds_total": elapsed,
    }


def _print(told: ReportData, found: dict[str, Any]) -> None:
    out = output.output()
    output.line(
        out,
        f"{len(CLIENTS)} clients learned handwritten digits together. Only {OWNER} held any {FORGOTTEN!r}; it then "
        f"forgot that class ({output.plural(found['forgotten_rows'], 'row')}).",
    )
    out.print()
    out.print(
        output.table(
            ("test accuracy", ">before", ">after"),
            (
                (
                    f"forgotten: {FORGOTTEN}",
                    output.percent(told.before.forgotten),
                    output.percent(told.after.forgotten),
                ),
                ("retained: all others", output.percent(told.before.retained), output.percent(told.after.retained)),
            ),
        )
    )
    out.print()
    rows = []
    for client in told.clients:
        spent: list[str] = []
        for work in (client.learn, client.unlearn):
            spent += [output.seconds(work.seconds), output.size(work.traffic)]
        rows.append((client.name, output.count(client.rows_after), *spent))
    left = output.count(sum(client.rows_after for client in told.clients))
    server = told.server
    rows.append(("server", left, output.seconds(server.learn_seconds), "", output.seconds(server.unlearn_seconds), ""))
    out.print(output.table(("spent by", ">rows left", ">to learn", ">sent", ">to forget", ">sent"), rows, last="total"))
    out.print()
    output.verdict(out, told.verification)
    out.print()
    output.line(out, f"Report:  {found['report']}")
    output.line(out, f"Run:     {found['run']} (look at it: splitwiper status {found['run']})")
    output.line(out, f"Took     {output.seconds(found['seconds_total'])}.")
