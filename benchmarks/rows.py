"""Made-up caches of a given size, and a small server half to train from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from splitwiper.config import ServerConfig
from splitwiper.seeding import Stream
from splitwiper.training.cache import Cache
from splitwiper.training.loop import Training
from splitwiper.wire import Column, Label, Shard, open_shard, write_shard
from splitwiper.wire.shard import Block

SHAPE = (16, 16, 16)
COLUMN = Column("activations", "F32", SHAPE)
LABELS = tuple(Label("", number) for number in range(10))
_BLOCK = 512


class Narrow(nn.Module):
    """A server half with little to compute for each byte of its input: moving data matters as much as it ever does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(SHAPE[0], 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(64, len(LABELS)),
        )

    def forward(self, boundary: Mapping[str, Tensor]) -> Tensor:
        """Logits."""
        logits: Tensor = self.layers(boundary[COLUMN.name])
        return logits


def write_cache(folder: Path, size: int, *, shards: int) -> int:
    """Write shards of normal deviates, every byte of them, that add up to about ``size`` bytes; returns their rows."""
    rows = max(len(LABELS), size // COLUMN.width // shards)
    for number in range(shards):
        with (folder / f"{number}.safetensors").open("wb") as file:
            write_shard(file, columns=[COLUMN], rows=rows, labels=LABELS, blocks=_blocks(number, rows))
    return rows * shards


def _blocks(seed: int, rows: int) -> Iterator[Block]:
    draw = np.random.default_rng(seed)
    for start in range(0, rows, _BLOCK):
        codes = np.arange(start, min(start + _BLOCK, rows), dtype=np.int32) % len(LABELS)
        yield {COLUMN.name: draw.standard_normal((len(codes), *SHAPE), dtype=np.float32)}, codes


def open_cache(folder: Path) -> list[Shard]:
    """The shards in a folder."""
    return [open_shard(path) for path in sorted(folder.glob("*.safetensors"))]


def train(net: nn.Module, shards: list[Shard], recipe: ServerConfig) -> None:
    """One epoch, by the loop that federations train with."""
    cache = Cache(shards, LABELS, names=[COLUMN.name])
    Training(net, cache, recipe, epochs=1, stream=Stream(0, "benchmark"), what="benchmark").run()
