"""Check that rows can be learned from, before anything is stored."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from splitwiper.certainty import NET_FAULTS, Trial, certain
from splitwiper.client.embed import BATCH
from splitwiper.client.local_net import Embedder, Normaliser, features_of
from splitwiper.config import ClientConfig
from splitwiper.data.datasets import spread
from splitwiper.data.labels import as_learned
from splitwiper.data.rows import Rows
from splitwiper.errors import DataError, nearest
from splitwiper.exclusive import give_way
from splitwiper.numerics import reproducible, still_as_pinned
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.training.cache import to_device
from splitwiper.wire import Column
from splitwiper.wire.columns import Array

_TABLES = frozenset({"embedding", "_embedding_bag", "index", "index_select", "gather", "take", "scatter", "index_put"})
"""Operations that fail for a value that is not an index into their table."""


class _Lookups(TorchDispatchMode):
    """Detects whether values are used as indices into a table."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= func.overloadpacket.__name__.rstrip("_") in _TABLES
        return func(*args, **(kwargs or {}))


def _batches(count: int, lookups: _Lookups) -> Iterator[Array]:
    """Yield indices of rows to try: a sample spread over all; then all, if the sample looked values up in a table."""
    yield np.array(spread(count, BATCH))
    if lookups.seen:
        for start in range(0, count, BATCH):
            yield np.arange(start, min(start + BATCH, count))


def check_rows(rows: Rows, *, client: str, config: ClientConfig, half: nn.Module, columns: Sequence[Column]) -> None:
    """Refuse rows with labels outside the closed set, or that the client half cannot process.

    A sample of rows is tried: whether they fit depends on shapes. If the half uses values as indices into a table,
    every row is tried.
    """
    known = set(map(as_learned, config.labels))
    for label in rows.labels:
        if known and label.name not in known:
            raise DataError(
                f"client {client!r}: label {label.name!r} is outside the known set "
                f"{list(config.labels)}.{nearest(str(label.name), map(str, known))}"
            )
    device = torch.device("cpu")  # on a CPU an index out of range is an error; on a GPU it kills the process
    embedder = Embedder(copy.deepcopy(half), rows.call, Normaliser({})).to(device).eval()

    @contextmanager
    def held() -> Iterator[None]:
        pinned = reproducible(device, config.threads, config.numerics)
        with pinned, torch.inference_mode(), isolated_rng(Stream(0, "probe")):
            yield

    boundary = certain(
        partial(_tried, embedder, rows, client, half),
        held,
        pinned=partial(still_as_pinned, device, config.numerics),
        key=None,
        what=f"client {client!r}, trying rows",
    )
    features_of(boundary)
    for column in columns:
        got = tuple(boundary[column.name].shape[1:])
        if got != column.shape:
            raise DataError(
                f"client {client!r}: its half turns rows of {_shown(rows)} into {column.name} of shape {list(got)}, "
                f"but the cut expects {column}."
            )


def _tried(embedder: Embedder, rows: Rows, client: str, half: nn.Module, trial: Trial) -> dict[str, Tensor]:
    """Embed rows to see whether that works, and return the boundary of the last batch."""
    lookups, boundary = _Lookups(), dict[str, Tensor]()
    with lookups:
        for number, tried in enumerate(_batches(len(rows), lookups)):
            give_way()
            part = {name: torch.from_numpy(array[tried]) for name, array in rows.inputs.items()}
            try:
                boundary = embedder(to_device(part, torch.device("cpu")))
            except NET_FAULTS as problem:
                if number == 0 and lookups.seen and len(rows) > len(tried):
                    continue  # all rows are tried next, which finds the one that fails
                raise DataError(
                    f"client {client!r}: the client half cannot take rows of {_shown(rows)}{_wanted(rows, half)}; "
                    f"between rows {tried[0]} and {tried[-1]} it says: {problem}."
                ) from problem
            trial.look()
    return boundary


def _shown(rows: Rows) -> str:
    return ", ".join(map(str, rows.columns))


def _wanted(rows: Rows, half: nn.Module) -> str:
    """Describe the rows that the half was made for, if they are known and differ."""
    wanted = getattr(half, "row_shapes", ())
    given = [array.shape[1:] for array in rows.inputs.values()]
    if not wanted or list(wanted) == given:
        return ""
    if len(given) == len(wanted) == 1 and len(given[0]) == len(wanted[0]) == 1:
        columns = rows.features.get(next(iter(rows.inputs)), ())
        names = ", ".join(columns[:12]) + ("…" if len(columns) > 12 else "")
        return f": they have {given[0][0]} columns{f' ({names})' if names else ''}, the model takes {wanted[0][0]}"
    return f"; the model was cut for rows of shape {', '.join(map(str, map(list, wanted)))}"
