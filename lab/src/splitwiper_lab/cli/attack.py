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
    from splitwiper_lab.attacks import AttackResult, Pictures

TRUTH = "truth.npz"
MOST, WIDE, NARROW = 12, 130, 4
"""Results shown; width of a terminal that fits the whole table; columns shown on narrower ones."""


def attack(
    run: Run,
    earlier: Annotated[
        list[Path] | None,
        typer.Option("--earlier", metavar="FOLDER", help="A snapshot of before, made with --keep. May be repeated."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="FOLDER", help="Attack nothing: keep what the server holds now, as a curious one might."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do less of everything.")] = False,
    aux: Annotated[
        int, typer.Option("--aux", metavar="ROWS", help="Rows per label that one attacker knows; 0 for none.", min=0)
    ] = 10,
    pictures: Annotated[
        Path | None,
        typer.Option("--pictures", metavar="FOLDER", help="Rebuild inputs from activations, and draw them here."),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME", help="An attack of your own: package.module:name. May be repeated."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Where to compute: cpu, or cuda.")] = "cpu",
    everything: Annotated[bool, typer.Option("--all", help="Show every result, not only the strongest.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of JSON objects and nothing else.")] = False,
) -> None:
    """Attack a run as its own server could, and report the results.

    Every attack sees what the server sees, and is scored by the truth in the
    clients' folders; 'told' says what it was given beyond that. A snapshot lets
    attacks compare generations: what was forgotten is in it, so erase it after.

    Example:
      splitwiper attack runs/ward --quick
      splitwiper attack runs/ward --keep before
      splitwiper unlearn runs/ward north --class bird
      splitwiper attack runs/ward --earlier before --json
    """
    from splitwiper.numerics import pick_device
    from splitwiper_lab.attacks import ServerView, Truth, load_attack, snapshot, suite
    from splitwiper_lab.attacks.report import HEADER, table, verdict

    pick_device(device)
    own = [load_attack(name) for name in more or ()]
    with Bars(quiet=as_json) as bars, when_interrupted("Attacking changes nothing: run it again."):
        federation = open_run(run, bars)
        truth = Truth.of(federation)
        if keep is not None:
            if earlier or pictures is not None:
                raise InputError("--keep only keeps a snapshot: leave the other options out.")
            count = snapshot(run, keep)
            truth.save(keep / TRUTH)
            _kept(keep, count, as_json=as_json)
            return
        if lost := [folder for folder in earlier or () if not (folder / TRUTH).exists()]:
            raise InputError(f"there is no snapshot in {lost[0]}: make one with --keep, before the change.")
        before = [Truth.load(folder / TRUTH) for folder in earlier or ()]
        view = ServerView.of(run / "server", federation.halves, earlier or ())
        results = suite(
            view,
            truth=truth.joined(*before) if before else truth,
            device=device,
            quick=quick,
            aux=aux,
            pictures=_pictures(federation, pictures),
            more=own,
            progress=bars,
        )
    if as_json:
        output.emit([result.to_dict() for result in results])
        return
    out = output.output()
    shown = [result for result in results if result.strength >= 0][: len(results) if everything else MOST]
    columns = len(HEADER) if out.width >= WIDE else NARROW
    titles = [HEADER[0], HEADER[1], *(f">{title}" for title in HEADER[2:])]
    out.print(output.table(titles[:columns], [row[:columns] for row in table(shown)]))
    out.print()
    if len(shown) < len(results):
        output.line(out, f"The {len(shown)} strongest of {len(results)} results; --all and --json show every one.")
    output.line(out, verdict(results))
    _notes(results)


def _kept(keep: Path, count: int, *, as_json: bool) -> None:
    if as_json:
        output.emit([])
        return
    out = output.output()
    output.line(
        out, f"{output.plural(count, 'shard')} kept in {keep}. What the run forgets lives on there: erase it after."
    )


def _pictures(federation: Federation, folder: Path | None) -> Pictures | None:
    from splitwiper_lab.attacks import Pictures, inputs_of

    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return Pictures(inputs_of(federation), to=folder)


def _notes(results: Sequence[AttackResult]) -> None:
    out = output.output()
    if noted := [result for result in results if result.notes and result.strength < 0 and not result.scores]:
        output.line(out, f"Without a result: {'; '.join(f'{r.attack} ({r.notes})' for r in noted)}.")
