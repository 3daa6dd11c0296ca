"""The form of a progress callback, the same for everything that takes long."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called during long work. What it raises ends the work."""

    def __call__(self, what: str, done: int, total: int, /, loss: float | None = None) -> None:
        """Take note of progress.

        Args:
            what: the work, in a few words.
            done: the steps done.
            total: all steps; 0 if their number is unknown.
            loss: the mean loss of the epoch that was just trained; None for other work.
        """
        ...
