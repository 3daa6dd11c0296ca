"""Whether rows can be learned from at all: looked at before anything is kept."""

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

from splitwiper.cache import to_device
from splitwiper.certainty import NET_FAULTS, Trial, certain
from splitwiper.client.embed import BATCH
from splitwiper.client.local_net import Embedder, Normaliser, features_of
from splitwiper.config import ClientConfig
from splitwiper.data.datasets import spread
from splitwiper.data.labels import as_learned
from splitwiper.data.rows import Rows
from splitwiper.errors import DataError, nearest
from splitwiper.exclusive import give_way
from splitwiper.numerics import reproducible, undisturbed
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.wire import Column
from splitwiper.wire.columns import Array

_TABLES = frozenset({"embedding", "_embedding_bag", "index", "index_select", "gather", "take", "scatter", "index_put"})
"""Operations that fail for a value that is no place in their table."""


class _Lookups(TorchDispatchMode):
    """Notices whether values are taken for places in a table."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= func.overloadpacket.__name__.rstrip("_") in _TABLES
        return func(*args, **(kwargs or {}))


def _batches(count: int, lookups: _Lookups) -> Iterator[Array]:
    """Yield the places of rows to try: some, spread over all of them; then all, where one of those looked values up."""
    yield np.array(spread(count, BATCH))
    if lookups.seen:
        for start in range(0, count, BATCH):
            yield np.arange(start, min(start + BATCH, count))


def check_rows(rows: Rows, *, client: str, config: ClientConfig, half: nn.Module, columns: Sequence[Column]) -> None:
    """Refuse rows with labels outside the closed set, or that the client half cannot take.

    Some rows are tried: whether they fit is a matter of shapes. Where the half takes values for places in a table,
    every row is tried.

    Raises:
        DataError: naming what does not fit.
    """
    known = set(map(as_learned, config.labels))
    for label in rows.labels:
        if known and label.name not in known:
            raise DataError(
                f"client {client!r}: label {label.name!r} is outside the known set "
                f"{list(config.labels)}.{nearest(str(label.name), map(str, known))}"
            )
    device = torch.device("cpu")  # where a value out of range is an error, and not the end of the process
    embedder = Embedder(copy.deepcopy(half), rows.call, Normaliser({})).to(device).eval()

    @contextmanager
    def held() -> Iterator[None]:
        pinned = reproducible(device, config.threads, config.numerics)
        with pinned, torch.inference_mode(), isolated_rng(Stream(0, "probe")):
            yield

    boundary = certain(
        partial(_tried, embedder, rows, client, half),
        held,
        pinned=partial(undisturbed, device, config.numerics),
        key=None,
        what=f"client {client!r}, trying rows",
    )
    features_of(boundary)
    for column in columns:
        got = tuple(boundary[column.name].shape[1:])
        if got != column.shape:
            raise DataError(
                f"client {client!r}: from rows of {_shown(rows)} its half sends {column.name} of shape {list(got)}, "
                f"the cut needs {column}."
            )


def _tried(embedder: Embedder, rows: Rows, client: str, half: nn.Module, trial: Trial) -> dict[str, Tensor]:
    """Embed rows to see whether it works, and return what became of the last of them.

    Raises:
        DataError: the half cannot take them.
    """
    lookups, boundary = _Lookups(), dict[str, Tensor]()
    with lookups:
        for number, tried in enumerate(_batches(len(rows), lookups)):
            give_way()
            part = {name: torch.from_numpy(array[tried]) for name, array in rows.inputs.items()}
            try:
                boundary = embedder(to_device(part, torch.device("cpu")))
            except NET_FAULTS as problem:
                if number == 0 and lookups.seen and len(rows) > len(tried):
                    continue  # all rows are tried next, which tells where it is
                raise DataError(
                    f"client {client!r}: the client half cannot take rows of {_shown(rows)}{_wanted(rows, half)}; "
                    f"between rows {tried[0]} and {tried[-1]} it says: {problem}."
                ) from problem
            trial.look()
    return boundary


def _shown(rows: Rows) -> str:
    return ", ".join(map(str, rows.columns))


def _wanted(rows: Rows, half: nn.Module) -> str:
    """Say what rows the half was made for, where it is known and differs."""
    wanted = getattr(half, "row_shapes", ())
    given = [array.shape[1:] for array in rows.inputs.values()]
    if not wanted or list(wanted) == given:
        return ""
    if len(given) == len(wanted) == 1 and len(given[0]) == len(wanted[0]) == 1:
        columns = rows.features.get(next(iter(rows.inputs)), ())
        names = ", ".join(columns[:12]) + ("…" if len(columns) > 12 else "")
        return f": they have {given[0][0]} columns{f' ({names})' if names else ''}, the model takes {wanted[0][0]}"
    return f"; the model was cut for rows of shape {', '.join(str(list(shape)) for shape in wanted)}"
