"""``splitwiper attack``: what a curious server could learn about hidden labels, scored by the clients' truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.options import Run
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import open_run
from splitwiper.errors import InputError

if TYPE_CHECKING:
    from splitwiper.federation import Federation
    from splitwiper_lab.attacks import AttackResult, Pictures, Truth

TRUTH = "truth.npz"
MOST, WIDE, NARROW = 12, 130, 4
"""Results shown; width of a terminal that fits the whole table; columns shown on narrower ones."""


Earlier = Annotated[
    list[Path] | None,
    typer.Option("--earlier", metavar="FOLDER", help="A snapshot of before, made with --keep. May be repeated."),
]
Keep = Annotated[
    Path | None,
    typer.Option(
        "--keep", metavar="FOLDER", help="Attack nothing: keep what the server holds now, as a curious one might."
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Do less of everything.")]
Aux = Annotated[
    int, typer.Option("--aux", metavar="ROWS", help="Rows per label that one attacker knows; 0 for none.", min=0)
]
Folder = Annotated[
    Path | None,
    typer.Option("--pictures", metavar="FOLDER", help="Rebuild inputs from activations, and draw them here."),
]
More = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME", help="An attack of your own: package.module:name. May be repeated."),
]
Device = Annotated[str, typer.Option("--device", help="Where to compute: cpu, or cuda.")]
Everything = Annotated[bool, typer.Option("--all", help="Show every result, not only the strongest.")]
Json = Annotated[bool, typer.Option("--json", help="Print a list of JSON objects and nothing else.")]


def attack(
    run: Run,
    earlier: Earlier = None,
    keep: Keep = None,
    quick: Quick = False,
    aux: Aux = 10,
    pictures: Folder = None,
    more: More = None,
    device: Device = "cpu",
    everything: Everything = False,
    as_json: Json = False,
) -> None:
    """Attack a run as its own server could, and report the results.

    Every attack sees what the server sees, and is scored by the truth in the
    clients' folders; 'told' says what it was given beyond that. A snapshot lets
    attacks compare generations: it contains what was forgotten, so erase it afterwards.

    Example:
      splitwiper attack runs/ward --quick
      splitwiper attack runs/ward --keep before
      splitwiper unlearn runs/ward north --class bird
      splitwiper attack runs/ward --earlier before --json
    """
    from splitwiper.numerics import pick_device
    from splitwiper_lab.attacks import ServerView, Truth, load_attack, suite

    pick_device(device)
    own = list(map(load_attack, more or ()))
    snapshots = earlier or []
    with Bars(quiet=as_json) as bars, when_interrupted("Attacking changes nothing: run it again."):
        federation = open_run(run, bars)
        truth = Truth.of(federation)
        if keep is not None:
            if snapshots or pictures is not None:
                raise InputError("--keep only keeps a snapshot: leave the other options out.")
            _keep(run, keep, truth, as_json=as_json)
            return
        if snapshots:  # rows that were forgotten since are known from these alone
            truth = truth.joined(*map(_kept_truth, snapshots))
        view, drawn = ServerView.of(run / "server", federation.halves, snapshots), _pictures(federation, pictures)
        results = suite(view, truth=truth, device=device, quick=quick, aux=aux, pictures=drawn, more=own, progress=bars)
    if as_json:
        output.emit([result.to_dict() for result in results])
    else:
        _show(results, everything=everything)


def _show(results: Sequence[AttackResult], *, everything: bool) -> None:
    from splitwiper_lab.attacks.report import HEADER, table, verdict

    out = output.output()
    # the rest have notes and no scores
    shown = [result for result in results if result.strength >= 0][: len(results) if everything else MOST]
    columns = len(HEADER) if out.width >= WIDE else NARROW
    first, second, *numbers = HEADER
    titles = [first, second, *map(">{}".format, numbers)]
    out.print(output.table(titles[:columns], [row[:columns] for row in table(shown)]))
    out.print()
    if len(shown) < len(results):
        output.line(out, f"The {len(shown)} strongest of {len(results)} results; --all and --json show every one.")
    output.line(out, verdict(results))
    noted = []
    for result in results:
        if result.notes and result.strength < 0 and not result.scores:
            noted.append(f"{result.attack} ({result.notes})")
    if noted:
        output.line(out, f"Without a result: {'; '.join(noted)}.")


def _kept_truth(folder: Path) -> Truth:
    from splitwiper_lab.attacks import Truth

    if not (folder / TRUTH).exists():
        raise InputError(f"there is no snapshot in {folder}: make one with --keep, before the change.")
    return Truth.load(folder / TRUTH)


def _keep(run: Path, keep: Path, truth: Truth, *, as_json: bool) -> None:
    """Keep a snapshot of what the server holds, with the truth that attacks on it are scored by."""
    from splitwiper_lab.attacks import snapshot

    count = snapshot(run, keep)
    truth.save(keep / TRUTH)
    if as_json:
        output.emit([])
        return
    shards = output.plural(count, "shard")
    output.line(output.output(), f"{shards} kept in {keep}. What the run forgets lives on there: erase it after.")


def _pictures(federation: Federation, folder: Path | None) -> Pictures | None:
    from splitwiper_lab.attacks import Pictures, inputs_of

    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return Pictures(inputs_of(federation), to=folder)
