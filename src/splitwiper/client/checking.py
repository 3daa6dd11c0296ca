"""Whether rows can be learned from at all: looked at before anything is kept."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from splitwiper.cache import to_device
from splitwiper.client.embed import BATCH
from splitwiper.client.local_net import Embedder, Normaliser, features_of
from splitwiper.config import ClientConfig
from splitwiper.data.rows import Rows
from splitwiper.errors import DataError, nearest
from splitwiper.exclusive import give_way
from splitwiper.numerics import device_at_hand, reproducible
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.wire import Column


def check_rows(rows: Rows, *, client: str, config: ClientConfig, half: nn.Module, columns: Sequence[Column]) -> None:
    """Refuse rows with labels outside the closed set, or that the client half cannot take.

    Every row is tried. That is done where the client trains, except for rows with integers that may be places in a
    table: a place that is not there is an error on the CPU, and the end of the process on a GPU.

    Raises:
        DataError: naming what does not fit.
    """
    known = set(config.labels)
    for label in rows.labels:
        if known and label.name not in known:
            raise DataError(
                f"client {client!r}: label {label.name!r} is outside the known set "
                f"{list(config.labels)}.{nearest(str(label.name), map(str, known))}"
            )
    shown = ", ".join(map(str, rows.columns))
    wide = any(array.dtype.kind in "iu" and array.dtype.itemsize > 1 for array in rows.inputs.values())
    looked_up = wide or any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in half.modules())
    device = torch.device("cpu") if looked_up else device_at_hand(config.device)
    embedder = Embedder(copy.deepcopy(half), rows.call, Normaliser({})).to(device).eval()
    pinned = reproducible(device, config.threads, config.numerics)
    with pinned, torch.inference_mode(), isolated_rng(Stream(0, "probe")):
        for start in range(0, len(rows), BATCH):
            give_way()
            part = {name: torch.from_numpy(array[start : start + BATCH].copy()) for name, array in rows.inputs.items()}
            try:
                boundary = embedder(to_device(part, device))
            except (RuntimeError, ValueError, TypeError, IndexError) as problem:
                raise DataError(
                    f"client {client!r}: the client half cannot take rows of {shown}; between rows {start} and "
                    f"{start + BATCH} it says: {problem}."
                ) from problem
    features_of(boundary)
    for column in columns:
        got = tuple(boundary[column.name].shape[1:])
        if got != column.shape:
            raise DataError(
                f"client {client!r}: from rows of {shown} its half sends {column.name} of shape {list(got)}, "
                f"the cut needs {column}."
            )
