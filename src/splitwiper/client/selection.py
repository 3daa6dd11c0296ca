"""Select the rows that a request names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import index

import numpy as np

from splitwiper.client.content import row_id
from splitwiper.client.row_store import RowStore
from splitwiper.data.labels import as_learned
from splitwiper.errors import RequestError, nearest
from splitwiper.store import ClientStore
from splitwiper.store.client_store import RowsSeen
from splitwiper.wire.messages import Level


@dataclass(frozen=True)
class Choice:
    """The rows that a request forgets.

    Attributes:
        level: what was named: samples, classes or the client.
        macs: HMACs of the rows.
        seen: the rows that were chosen from: see `ClientStore.rows_seen`.
        again: repeats the choice, once these have changed.
    """

    level: Level
    macs: list[bytes]
    seen: RowsSeen
    again: Callable[[], Choice]


def select(
    store: ClientStore,
    holdings: RowStore,
    *,
    classes: Sequence[str | int] | None,
    samples: Sequence[int] | None,
    everything: bool,
) -> Choice:
    """Find the rows that a request names.

    Raises:
        RequestError: nothing, or more than one thing, was named, or the client does not hold it.
    """
    if not isinstance(everything, bool):
        raise RequestError(f"everything = {everything!r} must be True or False.")
    name, seen = store.root.name, store.rows_seen()
    again = partial(select, store, holdings, classes=classes, samples=samples, everything=everything)
    if (classes is not None) + (samples is not None) + everything != 1:
        raise RequestError("say what to forget: classes=[…], samples=[…] or everything=True, and only one of them.")
    held: dict[str | int, list[bytes]] = {}
    for value, label in holdings.surviving():
        held.setdefault(label.name, []).append(value)
    if samples is not None:
        return Choice("sample", _of_samples(name, list(chain(*held.values())), samples), seen, again)
    if classes is not None:
        named = map(held.__getitem__, _of_classes(name, held, classes))
        return Choice("class", list(chain(*named)), seen, again)
    if not held:
        raise RequestError(f"client {name!r} holds no rows: there is nothing to forget.")
    return Choice("client", list(chain(*held.values())), seen, again)


def _of_classes(name: str, held: Mapping[str | int, list[bytes]], classes: Sequence[str | int]) -> list[str | int]:
    wanted: dict[str | int, None] = {}
    try:
        for given in classes:
            wanted[as_learned(given.item() if isinstance(given, np.generic) else given)] = None
    except TypeError:  # not a list, or a list of something that is not a label
        wanted = {}
    if isinstance(classes, str) or not wanted:
        hint = f": classes=[{classes!r}]" if isinstance(classes, str | int) else ""
        raise RequestError(f"classes = {classes!r} must be a list of at least one label{hint}.")
    for label in wanted:
        if label in held and not isinstance(label, bool | float):  # True and 1.0 would find the class 1
            continue
        alike = {str(known): known for known in held}.get(str(label))  # an integer where text was given, or the reverse
        hint = nearest(str(label), map(str, held))
        if alike is not None:
            hint = f" Labels are {'integers' if isinstance(alike, int) else 'texts'} here: classes=[{alike!r}]."
        raise RequestError(
            f"client {name!r} holds no rows of class {label!r}; it holds "
            f"{', '.join(sorted(map(repr, held))) or 'nothing'}.{hint} Rows already forgotten are not listed."
        )
    return list(wanted)


def _of_samples(name: str, held: Sequence[bytes], samples: Sequence[int]) -> list[bytes]:
    try:
        wanted = list(map(index, samples))  # not int(): it would take 0.9 for 0
        if bool in map(type, samples):
            raise TypeError("a truth value is not a row id")
    except TypeError as problem:
        raise RequestError(f"samples = {samples!r} must be a list of row ids (integers).") from problem
    if not wanted:
        raise RequestError("samples = [] names no row; give at least one id.")
    ids: dict[int, list[bytes]] = {}
    for value in held:
        ids.setdefault(row_id(value), []).append(value)
    if unknown := [number for number in wanted if number not in ids]:
        shown = ", ".join(map(str, unknown[:5])) + ("…" if len(unknown) > 5 else "")
        raise RequestError(
            f"client {name!r} holds no rows with ids {shown} ({len(unknown)} of {len(wanted)} asked for). 'rows' lists "
            f"the ids of the {len(held)} rows that it holds; rows already forgotten have none."
        )
    chosen: dict[bytes, None] = {}
    for number in wanted:
        if len(ids[number]) > 1:  # one chance in ten thousand among a million rows
            raise RequestError(f"id {number} addresses two rows of client {name!r}: forget by class instead.")
        chosen[ids[number][0]] = None
    return list(chosen)
