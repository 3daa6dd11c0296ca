"""Tables for terminals and pipes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from splitwiper.cli import output

ROWS = [
    ("north", "1", "a detail that is too long for one line of this narrow screen"),
    ("south", "12", ""),
    ("", "13", ""),
]


@pytest.mark.parametrize("terminal", [True, False])
def test_no_line_of_a_table_ends_with_blanks(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=40, color_system=None)
    console.print(output.table(["client", ">rows", "detail"], ROWS, title="Held", last="total"))
    shown = console.file.getvalue()
    lines = Text.from_ansi(shown).plain.splitlines() if terminal else shown.splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert lines[:2] == ["Held", "client   rows   detail"]
    assert [line for line in lines if "north" in line] == ["north       1   a detail that is too"]
    assert lines[-3:] == ["south      12", "", "           13"]


def test_commands_print_no_trailing_blanks(call, ward) -> None:
    for command in (["status", ward], ["verify", ward]):
        lines = call(*command).stdout.splitlines()
        assert any("────" in line for line in lines)
        assert lines == [line.rstrip() for line in lines]
