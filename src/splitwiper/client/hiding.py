"""How a client hides labels: the source row of each row of the shard, and its code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from splitwiper.client.content import mac_table, sort_order
from splitwiper.client.fitted import labels_present
from splitwiper.config import Masking
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes import Mode, ModeInputs
from splitwiper.masking.plan import ShardPlan, plain, planned
from splitwiper.seeding import mac
from splitwiper.training.cache import CODE, Cache
from splitwiper.wire import Label, Shard
from splitwiper.wire.columns import Array

_BLOCK = 4096


@dataclass(frozen=True)
class Hiding:
    """The codebook, mode and settings with which a client hides its labels."""

    codebook: Codebook
    mode: Mode
    masking: Masking


def label_mac(key: bytes, label: Label) -> bytes:
    """Return the HMAC under which a client remembers that it forgot a label."""
    return mac(key, "label", label.text)


class Survivors:
    """A client's surviving rows in the order of their HMACs, across all slices."""

    def __init__(self, slices: Sequence[Shard], names: Sequence[str]) -> None:
        self.labels = labels_present(slices)
        self._cache = Cache(slices, self.labels, names=names)
        macs = mac_table(slices)
        self._order = sort_order(macs)
        self.macs: Array = macs[self._order]

    def __len__(self) -> int:
        return len(self._order)

    def index(self) -> Array:
        """Return each row's index in the table of labels."""
        codes = torch.empty(len(self), dtype=torch.int64)
        self._cache.gather(self._order, {CODE: codes})
        return codes.numpy()

    def inputs(self, rows: Array) -> dict[str, torch.Tensor]:
        """Return the inputs of some rows."""
        parts = self._cache.buffers(len(rows))
        self._cache.gather(self._order[rows], parts)
        del parts[CODE]
        return parts

    def blocks(self) -> Iterator[Mapping[str, Array]]:
        """Yield the inputs of all rows, in blocks."""
        for start in range(0, len(self), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(self)))
            yield {name: part.numpy() for name, part in self.inputs(rows).items()}


def plan_for(
    survivors: Survivors, hiding: Hiding | None, key: bytes, features: Callable[[], Array]
) -> tuple[ShardPlan, tuple[Label, ...]]:
    """Plan the rows of a client's shard, and return the table that their codes point into.

    ``features`` computes a few numbers for each row from its activations.
    """
    if hiding is None:
        return plain(survivors.index()), survivors.labels
    held = ModeInputs(survivors.labels, survivors.index(), survivors.macs, key, survivors.blocks, features)
    plan = planned(held, hiding.codebook, hiding.mode, hiding.masking)
    present, place = np.unique(plan.codes, return_inverse=True)
    table = tuple(Label("", int(code)) for code in present)
    return ShardPlan(plan.source, plan.other, plan.share, place), table
