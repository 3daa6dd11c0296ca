"""SplitFed (Thapa et al. 2022): federated averaging of client halves, in its two versions.

In both, client halves are averaged after each epoch, weighted by rows, and optimisers are reset, as usual in federated
averaging. Version 2 averages nothing else: its only server half serves clients one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from splitwiper_lab.baselines.vanilla import Vanilla


@dataclass(frozen=True, kw_only=True)
class SplitFedV1(Vanilla):
    """A server half for each client, averaged with the client halves after each epoch.

    The server trains each copy on its client's batches only, in parallel. The copies do not interact otherwise, so the
    schedule only determines whether a batch's rows are counted for one client or for all together.
    """

    schedule: str = "turns"
    synchronise: bool = True
    fresh: bool = True

    name: ClassVar[str] = "splitfed-v1"
    copies: ClassVar[bool] = True
    averages: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class SplitFedV2(Vanilla):
    """One server half, clients in random order, their halves averaged after each epoch."""

    schedule: str = "turns"
    synchronise: bool = True
    fresh: bool = True

    name: ClassVar[str] = "splitfed-v2"
    wanders: ClassVar[bool] = True
    averages: ClassVar[bool] = True
