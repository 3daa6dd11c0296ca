"""``splitwiper rekey``: have all clients agree on a new codebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import open_run
from splitwiper.cli.unlearn import Json, Run
from splitwiper.errors import ConfigError

if TYPE_CHECKING:
    from splitwiper.federation.agreeing import Agreement


def rekey(
    run: Run,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Agree on this label too, for rows to come. May be repeated."),
    ] = None,
    task: Annotated[str, typer.Option("--task", help="The task of these labels, where clients have several.")] = "",
    as_json: Json = False,
) -> None:
    """Have all clients agree on a new codebook, and send their rows again.

    Where labels are hidden, this is the only way their codes change. It takes
    every client. Labels that nobody holds any more leave the codebook; rows with
    a label it does not know are refused until it is agreed on.

    Example:
      splitwiper rekey runs/ward --label rubella
    """
    if (run / "site.toml").exists():
        raise ConfigError(
            f"{run} is a client's site, and over a network codes do not change: every client would have to take part. "
            "Name labels that may come in client.labels when you join; for others make a new store, which all "
            "clients join."
        )
    with Bars(quiet=as_json) as bars, when_interrupted(f"Finish it with 'splitwiper settle {run}'."):
        federation = open_run(run, bars)
        numbers = any(isinstance(label.name, int) for label in federation.labels if label.task == task)
        names: list[str | int] = []
        for name in labels or ():  # as labels are: integers where the others are
            names.append(int(name) if numbers and name.lstrip("-").isdigit() else name)
        agreement = federation.rekey(names, task=task)
        state = federation.status().model
    if as_json:
        output.emit({"run": run, "model": state, "agreement": agreement_of(agreement)})
    else:
        output.line(output.output(), f"{agreed(agreement)} The model of {run} is {state}.")


def agreed(agreement: Agreement) -> str:
    """Return a sentence on what the agreement took."""
    return (
        f"{output.plural(len(agreement.clients), 'client')} agreed on labels in {output.seconds(agreement.seconds)}, "
        f"with {output.plural(agreement.messages, 'sealed message')}."
    )


def agreement_of(agreement: Agreement | None) -> dict[str, Any] | None:
    """Return the same as values for JSON."""
    if agreement is None:
        return None
    return {"clients": agreement.clients, "messages": agreement.messages, "seconds": agreement.seconds}
