"""``splitwiper tradeoff``: the cost of each way of hiding labels, and what attacks still find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.errors import InputError
from splitwiper_lab.cli.measuring import Commit, Data, silence_seed_warning

if TYPE_CHECKING:
    from splitwiper_lab.evaluation.tradeoff import Setting
    from splitwiper_lab.sweeps import CellResult
    from splitwiper_lab.workloads import Workload

LINES, PAGE, TEXT = "tradeoff.jsonl", "tradeoff.html", "README.md"
COLUMNS = 6
"""Number of table columns shown on a terminal; the page has them all."""


Source = Annotated[str, typer.Argument(metavar="SOURCE", help="A data set: digits, cifar10, mnist…")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A network: digits_cnn, vgg, resnet18…")]
Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The folder for results, table and plot.")]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="TEXT", help="Only settings with this in them. May be repeated.")
]
Kind = Annotated[str, typer.Option("--partition", help="How labels are divided over clients.")]
Clients = Annotated[int, typer.Option("--clients", min=1, help="Number of clients.")]
Rows = Annotated[int | None, typer.Option("--rows", min=1, help="Number of training rows to use.")]
Epochs = Annotated[int | None, typer.Option("--epochs", min=1, help="Epochs of the server.")]
Codec = Annotated[str, typer.Option("--codec", help="How activations are stored.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything that is not secret.")]
Device = Annotated[str, typer.Option("--device", help="cpu, or cuda.")]
Quick = Annotated[bool, typer.Option("--quick", help="Do less of everything.")]
Json = Annotated[bool, typer.Option("--json", help="Print a list of JSON objects and nothing else.")]


def tradeoff(
    source: Source,
    model: Model,
    out: Out,
    only: Only = None,
    partition: Kind = "overlapping",
    clients: Clients = 5,
    rows: Rows = None,
    epochs: Epochs = None,
    codec: Codec = "none",
    seed: Seed = 0,
    device: Device = "cpu",
    data: Data = None,
    quick: Quick = False,
    commit: Commit = "",
    as_json: Json = False,
) -> None:
    """Sweep ways of hiding labels, attack each, and plot privacy against utility.

    Each setting learns, is attacked with the whole suite, forgets a class, and is
    attacked again across generations. Results are JSON lines in FOLDER; settings
    that are there already are not measured again.

    Example:
      splitwiper tradeoff digits digits_cnn --out tradeoff --quick
      splitwiper tradeoff cifar10 vgg --out tradeoff --codec int4 --device cuda
    """
    from splitwiper_lab.workloads import workload

    out.mkdir(parents=True, exist_ok=True)
    side = _side(device)
    work = workload(
        source,
        model,
        partition=partition,
        clients=clients,
        seed=seed,
        folder=data,
        rows=rows,
        server={**side, "epochs": epochs} if epochs else side,
        client={**side, "codec": codec, "keys": "seeded"},
    )
    about = {"source": source, "model": model, "partition": partition, "clients": clients, "seed": seed, "quick": quick}
    about |= {"rows": rows, "epochs": work.config.server.epochs, "codec": codec}
    _sweep(work, about, out, only or (), device, quick=quick, commit=commit, as_json=as_json)


def _side(device: str) -> dict[str, Any]:
    """Return the settings that server and clients have alike."""
    from splitwiper.numerics import pick_device

    return {"device": device, "precision": "bfloat16"} if pick_device(device).type == "cuda" else {"device": device}


def _sweep(
    work: Workload,
    about: Mapping[str, Any],
    out: Path,
    only: Sequence[str],
    device: str,
    *,
    quick: bool,
    commit: str,
    as_json: bool,
) -> None:
    """Measure the settings that are missing, and show all that are there."""
    from splitwiper_lab.evaluation.tradeoff import TradeoffMeasure, settings, tradeoff_cells
    from splitwiper_lab.sweeps import machine, matches, missing, sweep

    every = settings(_labels(work))
    chosen = [setting for setting in every if matches(only, setting.name)]
    if not chosen:
        raise InputError(
            f"--only {' '.join(only)} is in no setting's name. Some are: {every[0].name}; {every[4].name}."
        )
    cells = tradeoff_cells(about, chosen)
    results = _known(out, about)
    again = "What was measured is kept: run it again to go on."
    with Bars(quiet=as_json) as bars, when_interrupted(again), silence_seed_warning():
        measured = sweep(
            out / LINES,
            missing(cells, results),
            TradeoffMeasure(work, cells, device, quick, bars),
            made=lambda cell: {**machine(device), "commit": commit},
            about=about,
        )
        results.extend(measured)
    _finish(out, about, results, every, as_json=as_json)


def _known(out: Path, about: Mapping[str, Any]) -> list[CellResult]:
    """Return what was measured under these conditions, whichever settings are chosen now."""
    from splitwiper_lab.evaluation.tradeoff import Point
    from splitwiper_lab.sweeps import read_results
    from splitwiper_lab.sweeps.cells import about_digest

    settings = about_digest(about)
    return read_results(
        out / LINES, wanted=lambda cell: cell.settings == settings, check=lambda result: Point.from_dict(result.values)
    )


def _labels(work: Workload) -> int:
    """Return the number of labels; clients of different tasks share none."""
    found = set()
    for name, (_, labels) in work.train.items():
        for label in set(labels):
            found.add((work.tasks.get(name, ""), str(label)))  # a set: clients share labels
    return len(found)


def _finish(
    out: Path, about: Mapping[str, Any], results: Sequence[CellResult], every: Sequence[Setting], *, as_json: bool
) -> None:
    from splitwiper_lab.evaluation.recommend import recommendation
    from splitwiper_lab.evaluation.tradeoff import Point, in_table_order
    from splitwiper_lab.pages.tradeoff import markdown, table, write
    from splitwiper_lab.sweeps import machines
    from splitwiper_lab.theorem import theorem_table

    points = in_table_order([Point.from_dict(result.values) for result in results], every)
    checks = theorem_table(0.2)
    advice = recommendation(points)
    write(out / PAGE, about, points, advice, checks)
    (out / TEXT).write_text(markdown(about, points, advice, machines(results), PAGE), encoding="utf-8")
    if as_json:
        output.emit([result.values for result in results])
        return
    screen = output.output()
    headings, rows = table(points)
    screen.print(output.table(headings[:COLUMNS], [row[:COLUMNS] for row in rows]))  # the first columns say the most
    screen.print()
    output.line(screen, advice)
    failed = sum(not check.step_holds for check in checks)
    output.line(
        screen, f"Theorem 1's bound on posteriors fails in {failed} of {len(checks)} cases tried; the page lists them."
    )
    output.line(screen, f"Results: {out / LINES}; page: {out / PAGE}")
