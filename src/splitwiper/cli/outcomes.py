"""How every command shows the outcome of a verification, and the exit code that it leaves with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.text import Text

from splitwiper.cli import output
from splitwiper.cli.exit_codes import OUTCOMES
from splitwiper.cli.wording import translated

if TYPE_CHECKING:
    from splitwiper.checks import Verification

STYLES = {
    "exact": "bold green",
    "holds": "bold green",
    "mismatch": "bold red",
    "not_comparable": "bold yellow",
    "unverifiable": "bold yellow",
    "unchecked": "yellow",
}
"""How outcomes look."""


def conclude(result: Verification, fields: Mapping[str, Any], *, as_json: bool, notes: Iterable[str] = ()) -> NoReturn:
    """Show the outcome of a verification, and leave with its exit code.

    Args:
        result: the outcome and its checks.
        fields: further fields of the JSON object.
        as_json: whether to print that instead of text.
        notes: lines below the table.
    """
    if as_json:
        output.emit({**result.to_dict(), **fields})
    else:
        print_outcome(result)
        for note in notes:
            output.say(note)
    raise typer.Exit(OUTCOMES[result.outcome])


def print_outcome(result: Verification) -> None:
    """Print the outcome of a verification, check by check."""
    rows = []
    for check in result.checks:
        outcome = Text(check.outcome, STYLES[check.outcome])
        rows.append((check.subject, outcome, translated(check.detail)))
    output.show(("verified", "outcome", "detail"), rows)
    output.say()
    in_words = result.outcome.replace("_", " ").capitalize()
    output.say(Text(f"{in_words}: ", STYLES[result.outcome]), f"{translated(result.reason.removesuffix('.'))}.")
