"""Help texts as a terminal of 80 columns shows them: samples can be copied, and nothing of the markup is left."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from splitwiper.cli import app


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


EVERY = dict(commands(get_command(app)))


def test_the_command_line_without_its_script() -> None:
    found = subprocess.run([sys.executable, "-m", "splitwiper", "--help"], capture_output=True, text=True, check=True)
    assert "unlearn" in found.stdout


def samples(command: Any) -> list[list[str]]:
    """The indented parts of a command's docstring, line by line as they were written."""
    parts: list[list[str]] = []
    for line in inspect.cleandoc(inspect.unwrap(command.callback).__doc__ or "").splitlines():
        if line and not line.startswith("  "):
            parts.append([])
        elif line and parts:
            parts[-1].append(line)
    return [part for part in parts if part]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help(call, words: tuple[str, ...]) -> None:
    shown = [line.rstrip() for line in call(*words, "--help").stdout.splitlines()]
    assert max(map(len, shown)) <= 80
    assert not [line for line in shown if "\\" in line]
    for line in (line for part in samples(EVERY[words]) for line in part):
        assert f" {line}" in shown


def test_the_files_in_help_texts_can_be_copied() -> None:
    files = [part for command in EVERY.values() for part in samples(command) if " = " in part[0] or "]" in part[0]]
    for part in files:
        assert tomllib.loads("\n".join(part))
    assert len(files) >= 4  # of learn, compare, join and audit
