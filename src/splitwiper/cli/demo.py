"""``splitwiper demo``: five clients learn digits, one forgets a class, and the result is verified."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import OUTCOMES, when_interrupted
from splitwiper.cli.options import Json
from splitwiper.cli.outcomes import print_outcome
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
    as_json: Json = False,
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
        # imported below the bars, which say "starting": torch takes seconds
        from splitwiper.cli.demo_run import forget_class
        from splitwiper.report import write_report

        federation = open_run(folder, bars, _config(seed))
        report = forget_class(federation, clients=CLIENTS, owner=OWNER, name=FORGOTTEN, seed=seed)
        page = write_report(folder / "report.html", report)
    elapsed = time.perf_counter() - began
    if as_json:
        output.emit(_result(report, folder, page, elapsed))
    else:
        _print(report)
        output.say(f"Report:  {page}")
        output.say(f"Run:     {folder} (look at it: splitwiper status {folder})")
        output.say(f"Took     {output.seconds(elapsed)}.")
    raise typer.Exit(OUTCOMES[report.verification.outcome])


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

    # one thread: the number is part of the fingerprint, and otherwise differs from machine to machine
    return Config(
        seed=seed,
        model=ModelConfig(
            factory="splitwiper.models:digits_cnn", inputs={"x": "float32[1,8,8]"}, at="stem", head="head"
        ),
        server=ServerConfig(epochs=20, threads=1),
        client=ClientConfig(epochs=10, threads=1, keys="seeded"),
    )


def _result(report: ReportData, folder: Path, page: Path, elapsed: float) -> dict[str, Any]:
    from splitwiper.wire import Spent

    others = sum((client.unlearn for client in report.others), Spent())
    own = report.requester.unlearn if report.requester else Spent()
    clients = {}
    for client in report.clients:
        clients[client.name] = {
            "rows_before": client.rows_before,
            "rows_after": client.rows_after,
            "learn": client.learn,
            "unlearn": client.unlearn,
        }
    return {
        "run": folder,
        "report": page,
        "forgotten_accuracy_before": report.before.forgotten,
        "forgotten_accuracy_after": report.after.forgotten,
        "retained_accuracy_before": report.before.retained,
        "retained_accuracy_after": report.after.retained,
        "requester": OWNER,
        "forgotten_class": FORGOTTEN,
        "forgotten_rows": report.request.rows,
        "requester_seconds": own.seconds,
        "requester_bytes": own.traffic,
        "others_seconds": others.seconds,
        "others_bytes": others.traffic,
        "server_seconds": report.server.unlearn_seconds,
        "exact": report.verification.exact,
        "outcome": report.verification.outcome,
        "ticket": report.receipt["ticket"],
        "clients": clients,
        "seed": report.seed,
        "seconds_total": elapsed,
    }


def _print(report: ReportData) -> None:
    forgotten = output.plural(report.request.rows, "row")
    output.say(
        f"{len(CLIENTS)} clients learned handwritten digits together. Only {OWNER} held any {FORGOTTEN!r}; it then "
        f"forgot that class ({forgotten})."
    )
    output.say()
    before, after = report.before, report.after
    accuracies = (
        (f"forgotten: {FORGOTTEN}", output.percent(before.forgotten), output.percent(after.forgotten)),
        ("retained: all others", output.percent(before.retained), output.percent(after.retained)),
    )
    output.show(("test accuracy", ">before", ">after"), accuracies)
    output.say()
    rows, left = [], 0
    for client in report.clients:
        cells = [client.name, output.count(client.rows_after)]
        for work in (client.learn, client.unlearn):
            cells += [output.seconds(work.seconds), output.size(work.traffic)]
        rows.append(cells)
        left += client.rows_after
    learn, unlearn = output.seconds(report.server.learn_seconds), output.seconds(report.server.unlearn_seconds)
    rows.append(["server", output.count(left), learn, "", unlearn, ""])
    output.show(("spent by", ">rows left", ">to learn", ">sent", ">to forget", ">sent"), rows, last="total")
    output.say()
    print_outcome(report.verification)
    output.say()
