"""A small problem of real digits over three clients, with batch norm behind the cut and plain descent."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from splitwiper import Config, split
from splitwiper.config import ClientConfig, ServerConfig
from splitwiper.seeding import Stream, isolated_rng
from splitwiper_lab.baselines import Problem

HELD = {"east": (0, 1, 2), "north": (2, 3, 4), "south": (0, 3, 5)}
"""Labels of each client. Nobody but north holds 4."""
PLAIN = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "threads": 1}


def network() -> nn.Sequential:
    """The unsplit network."""
    with isolated_rng(Stream(3, "network")):
        return nn.Sequential(
            OrderedDict(
                stem=nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU()),
                body=nn.Sequential(
                    nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 16), nn.ReLU()
                ),
                head=nn.Linear(16, 10),
            )
        )


def digits(rows: int = 40, *, first: int = 0) -> dict[str, tuple[Any, Any]]:
    """So many rows of each client's labels, no row with two clients."""
    found = load_digits()
    images = (found.images[:, None] / 16).astype(np.float32)
    out, taken = {}, np.zeros(len(images), bool)
    for name, labels in HELD.items():
        free = np.flatnonzero(np.isin(found.target, labels) & ~taken)[first : first + rows]
        taken[free] = True
        out[name] = (images[free], found.target[free])
    return out


def problem(
    data: Mapping[str, tuple[Any, Any]] | None = None,
    *,
    epochs: int = 2,
    batch: int = 24,
    client: Mapping[str, Any] | None = None,
    **server: Any,
) -> Problem:
    """The problem, with settings that are to differ."""
    config = Config(
        seed=5,
        server=ServerConfig(**{**PLAIN, "epochs": epochs, "batch": batch, "lr": 0.1, **server}),
        client=ClientConfig(**{"epochs": 2, "batch": 16, "keys": "seeded", "threads": 1, **(client or {})}),
    )
    example = torch.zeros(2, 1, 8, 8)
    return Problem.of(split(network(), at="stem", example=example), config, data or digits())
