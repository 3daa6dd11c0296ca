"""SplitFed, version 1 (Thapa et al. 2022): federated averaging on both sides of the cut.

The server keeps a copy of its part for each client and trains it with that client's batches alone, in parallel; after
each epoch both the copies and the client halves are averaged, weighted by rows, and optimisers start afresh, as is
usual in federated averaging. The copies meet nowhere else, so the schedule only says what a batch is: so many rows of
one client, or so many of all together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from splitwiper_lab.baselines.vanilla import Vanilla


@dataclass(frozen=True, kw_only=True)
class SplitFedV1(Vanilla):
    """A server half for each client, averaged with the client halves after each epoch."""

    schedule: str = "turns"
    synchronise: bool = True
    fresh: bool = True

    name: ClassVar[str] = "splitfed-v1"
    copies: ClassVar[bool] = True
    averages: ClassVar[bool] = True
