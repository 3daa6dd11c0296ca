"""SplitFed, version 2 (Thapa et al. 2022): client halves are averaged, the server's part is not.

The server has one part and serves clients one after another, in an order drawn anew for each epoch; after it the client
halves are averaged, weighted by rows, and optimisers start afresh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from splitwiper.baselines.vanilla import Vanilla
from splitwiper.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SplitFedV2(Vanilla):
    """One server half, clients in random order, their halves averaged after each epoch."""

    schedule: str = "turns"
    synchronise: bool = True
    fresh: bool = True

    name: ClassVar[str] = "splitfed-v2"
    wanders: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.synchronise:
            raise ConfigError("SplitFed averages client halves; without synchronisation it is vanilla split learning.")
