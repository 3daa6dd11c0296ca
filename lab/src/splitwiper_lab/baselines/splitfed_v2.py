"""SplitFed, version 2 (Thapa et al. 2022): client halves are averaged, the server's part is not.

The server has one part and serves clients one after another, in an order drawn again for each epoch; afterwards the
client halves are averaged, weighted by rows, and optimisers are reset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from splitwiper_lab.baselines.vanilla import Vanilla


@dataclass(frozen=True, kw_only=True)
class SplitFedV2(Vanilla):
    """One server half, clients in random order, their halves averaged after each epoch."""

    schedule: str = "turns"
    synchronise: bool = True
    fresh: bool = True

    name: ClassVar[str] = "splitfed-v2"
    wanders: ClassVar[bool] = True
    averages: ClassVar[bool] = True
