"""The table of harms: what the attacker does before or while the others work.

Each harm is a context: what it did stays, or goes on, until it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from benchmarks.adversary.attacker import Attacker


@dataclass(frozen=True)
class Harm:
    """One kind of harm.

    Attributes:
        name: what it is called.
        does: what the attacker is to do, in a sentence.
        do: does it.
    """

    name: str
    does: str
    do: Callable[[Attacker], AbstractContextManager[None]]


HARMS: list[Harm] = []


def harm(do: Callable[[Attacker], Iterator[None]]) -> None:
    """Enter a harm into the table, under its function's name."""
    HARMS.append(Harm(do.__name__.replace("_", " "), (do.__doc__ or "").rstrip("."), contextmanager(do)))
