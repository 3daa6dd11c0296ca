"""Ways to damage a file, and the kinds of files in a folder; each command must then end with a verdict or an error."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from reliability.campaign import todays
from splitwiper.cli import app

Damage = Callable[[Path], object]


def garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(max(64, path.stat().st_size)))


def text(path: Path) -> None:
    path.write_text("garbage = [", encoding="utf-8")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: tuple[Damage, ...] = (garbage, text, half, empty, Path.unlink, folder)


def kinds(root: Path) -> list[str]:
    """One file of every kind in a folder; names that differ only in numbers and clients are of one kind."""
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            name = str(path.relative_to(root))
            found.setdefault(re.sub(r"[0-9a-f]{8,}|north|south", "*", name), name)
    return sorted(found.values())


def outcome(root: Path, work: Path, name: str, damage: Damage, words: Sequence[object]) -> str:
    """What is wrong with how a command ends on a damaged copy of a folder; empty where nothing is."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(root, work, symlinks=True)
    damage(work / name)
    result = CliRunner().invoke(app, [str(word) for word in words])
    where = f"{' '.join(map(str, words))}: {name}, {damage.__name__}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{where}: {result.exception!r}"
    told = result.exit_code == 0 or result.stderr.strip() or result.stdout.strip()
    return "" if result.exit_code != 1 and told else f"{where}: exit code {result.exit_code}, {result.output!r}"


def troubles(
    root: Path, work: Path, commands: Mapping[str, Sequence[object]], damages: Sequence[Damage] = DAMAGES
) -> list[str]:
    """Everything that is wrong with how commands end on damaged folders.

    Every kind of file is damaged in every way, one half of them each day, and one of the commands is tried on each, in
    turn: over all files every command meets every damage.
    """
    found, names = [], list(commands)
    for number, name in enumerate(kinds(root)):
        for place, damage in enumerate(damages):
            if (number + place) % 2 != todays(2) and os.environ.get("SPLITWIPER_TEST_SHARE") != "all":
                continue
            words = commands[names[(number + place) % len(names)]]
            found.append(outcome(root, work, name, damage, words))
    return [trouble for trouble in found if trouble]
