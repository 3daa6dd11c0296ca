"""Additions to the command line by other installed packages, found by their entry points.

=======================  ==========================================================================================
``splitwiper.commands``  a function that becomes a command, or a `typer.Typer` that becomes a group of commands
``splitwiper.tables``    how a table of a configuration file becomes settings and data; see `splitwiper.cli.settings`
=======================  ==========================================================================================
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

COMMANDS = "splitwiper.commands"
TABLES = "splitwiper.tables"
LABORATORY = "splitwiper-lab"
"""The distribution with the data sets, baselines, attacks and experiments."""
OF_LABORATORY = ("attack", "compare", "data", "reproduce", "results", "tradeoff")
"""Its commands: if it is not installed, they are refused with instructions to install it."""


def extensions(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group, by name."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def how_to_get(what: str) -> str:
    """Return a sentence on how to install the laboratory."""
    return f"{what} comes with the laboratory: pip install {LABORATORY}."
