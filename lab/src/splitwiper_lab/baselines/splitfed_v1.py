"""SplitFed, version 1 (Thapa et al. 2022): federated averaging on both sides of the cut.

The server keeps a copy of its part for each client and trains it on that client's batches only, in parallel. After
each epoch both the copies and the client halves are averaged, weighted by rows, and optimisers are reset, as usual in
federated averaging. The copies do not interact otherwise, so the schedule only determines whether a batch's rows are
counted for one client or for all together.
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
