"""``splitwiper verify``: recompute, and compare bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splitwiper.cli import show
from splitwiper.cli.exits import OUTCOMES, when_interrupted
from splitwiper.cli.opening import open_run
from splitwiper.cli.progress import Bars
from splitwiper.cli.unlearn import Json, Run
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from splitwiper.federation import Federation
    from splitwiper.wire import Receipt


def verify(
    run: Run,
    receipt: Annotated[
        str | None,
        typer.Argument(
            metavar="RECEIPT",
            help="A receipt file, or a ticket (its first characters will do). Without it: the whole run as it is.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute from the surviving data and compare bit for bit.

    The exit code is 0 only if all is exact; 3 on a mismatch, 4 if the numerics
    here are not comparable, 5 if it cannot be verified any more.

    Example:
      splitwiper verify runs/ward
      splitwiper verify runs/ward bird.json
    """
    with Bars(quiet=as_json) as bars, when_interrupted("Verifying changes nothing: run it again."):
        federation = open_run(run, bars)
        chosen = _find(federation, receipt) if receipt is not None else None
        found = federation.verify(chosen)
    if as_json:
        show.emit(
            {
                "run": run,
                "ticket": chosen.ticket if chosen else None,
                "exact": found.exact,
                "outcome": found.outcome,
                "reason": found.reason,
                "checks": found.checks,
            }
        )
    else:
        show.verdict(show.output(), found)
    raise typer.Exit(OUTCOMES[found.outcome])


def _find(federation: Federation, text: str) -> Receipt:
    """The receipt in a file, or the one whose ticket starts with ``text``."""
    from splitwiper.wire import Receipt

    path = Path(text)
    if path.is_file() or path.suffix or len(path.parts) > 1:
        return Receipt.load(path)
    tickets = federation.status().tickets
    fitting = [ticket for ticket in tickets if text and ticket.id.startswith(text)]
    if len(fitting) > 1:
        raise InputError(f"{len(fitting)} tickets start with {text!r}; give more characters.")
    if not fitting:
        raise NotFoundError(
            f"there is no receipt file and no ticket {text!r}; 'splitwiper status {federation.path}' lists the tickets."
        )
    if fitting[0].state != "settled":
        raise NotFoundError(
            f"ticket {text!r} has no receipt yet: it waits. Run 'splitwiper settle {federation.path}' first."
        )
    return federation.receipt(fitting[0].id)
