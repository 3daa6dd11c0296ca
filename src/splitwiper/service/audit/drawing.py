"""Draws of epochs: a draw stands until an audit with it has ended.

The server learns which epochs were drawn when the auditor asks for their states. If breaking off led to a new draw, a
cheating server could simply break off whenever it would be caught.
"""

from __future__ import annotations

import json
from pathlib import Path

from splitwiper.errors import InputError
from splitwiper.server.transcript import sample_epochs
from splitwiper.store import files

_FILE = "drawn.json"


def draw_epochs(folder: Path, model: str, of: int, count: int) -> tuple[int, ...]:
    """Choose epochs at random, and record them before asking the server for anything.

    Args:
        folder: the auditor's own folder.
        model: the commitment to the model that is audited.
        of: the number of epochs of the training.
        count: how many to choose. The epochs of an interrupted audit of this model are always included, so there may
            be more.

    Raises:
        InputError: ``count`` is not between 1 and ``of``.
    """
    if not 1 <= count <= of:
        raise InputError(f"{count} different epochs cannot be drawn from {of}: give a number up to {of}.")
    pending = [epoch for epoch in _pending(folder, model) if 1 <= epoch <= of]
    others = [epoch for epoch in range(1, of + 1) if epoch not in pending]
    fresh = sample_epochs(len(others), count - len(pending)) if count > len(pending) else ()
    chosen = tuple(sorted([*pending, *(others[place - 1] for place in fresh)]))
    files.write_bytes(folder / _FILE, json.dumps({"model": model, "epochs": chosen}).encode())
    return chosen


def forget_draw(folder: Path) -> None:
    """Let the next audit draw new epochs, because this one has ended."""
    (folder / _FILE).unlink(missing_ok=True)


def _pending(folder: Path, model: str) -> list[int]:
    try:
        kept = json.loads((folder / _FILE).read_bytes())
        return [int(epoch) for epoch in kept["epochs"]] if kept["model"] == model else []
    except (OSError, ValueError, KeyError, TypeError):  # missing or unreadable
        return []
