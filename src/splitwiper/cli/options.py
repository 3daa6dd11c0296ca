"""Arguments and options that several commands have, each declared once, and the questions that commands ask."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import INTERRUPTED
from splitwiper.errors import InputError

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.", show_default=False)]
SiteFolder = Annotated[Path, typer.Argument(metavar="SITE", help="The client's own folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print a single JSON object instead of text.")]
Classes = Annotated[list[str] | None, typer.Option("--class", metavar="NAME", help="Forget a class. May be repeated.")]
Samples = Annotated[
    list[int] | None, typer.Option("--sample", metavar="ID", help="Forget a row by its id. May be repeated.")
]
Everything = Annotated[bool, typer.Option("--everything", help="Forget everything the client ever sent.")]
ReceiptFile = Annotated[Path | None, typer.Option("--receipt", metavar="FILE", help="Write the receipt here.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --everything.")]

LONGEST_REASON = 200  # characters of a reason that other parties are shown


def is_reason(text: str) -> bool:
    """Return whether a text can be put on record as a reason: one line, not blank, and not too long."""
    return bool(text.strip()) and text.isprintable() and len(text) <= LONGEST_REASON


def on_terminal() -> bool:
    """Return whether somebody can be asked."""
    return sys.stdin.isatty()


def confirm(question: str, *, warning: str = "", declined: str, unasked: str) -> None:
    """Ask before something that cannot be undone, and leave if the answer is no.

    Args:
        question: what is asked.
        warning: what is shown before the question.
        declined: what is shown if the answer is no.
        unasked: the error message where nobody can be asked.

    Raises:
        InputError: nobody can be asked.
    """
    if not on_terminal():  # an empty answer from a script would not be a person's consent
        raise InputError(unasked)
    if warning:
        output.note(warning)
    if not typer.confirm(question, err=True):
        output.note(declined)
        raise typer.Exit(INTERRUPTED)


def confirm_everything(warning: str) -> None:
    """Ask before everything is forgotten."""
    confirm(
        "Go on?",
        warning=warning,
        declined="Nothing was forgotten.",
        unasked="--everything cannot be undone: add --yes to continue without being asked.",
    )
