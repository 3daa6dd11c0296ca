"""Find the shard that makes training fail, by training on subsets of the shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from splitwiper.errors import CorruptError, UntrainableError
from splitwiper.server.training import ShardsChanged, StopIfShardsChange
from splitwiper.store import ShardRecord, ledger
from splitwiper.wire.shard_check import farthest_value

if TYPE_CHECKING:
    from splitwiper.server.server import Server

_T = TypeVar("_T")
_ALONE = 8
"""Shards that may fail on their own before the settings are taken to be at fault."""


@dataclass(frozen=True)
class Blamed:
    """The shard to erase because training fails.

    Attributes:
        shard: the shard.
        by_comparison: whether training succeeds on other shards and fails once this one is added. If not, training
            failed on every subset that was tried, so the settings may be at fault.
    """

    shard: ShardRecord
    by_comparison: bool


def blame(server: Server, shards: tuple[ShardRecord, ...]) -> Blamed | None:
    """Find the shard of a manifest with which training fails; return None if shards changed meanwhile.

    The server trains on subsets of the shards, and publishes nothing.
    """

    def trains(some: Sequence[ShardRecord]) -> bool:
        if server.store.shards() != shards:
            raise ShardsChanged
        try:
            # in a manifest's order: training is a function of it
            chosen = sorted(some, key=lambda shard: shard.client)
            server.compute(chosen, warm=server.warm_start(), on_step=StopIfShardsChange(server.store, shards))
        except UntrainableError:
            return False
        return True

    try:
        ordered = _by_suspicion(server, shards)
        offender = find_offender(ordered, trains)
    except (CorruptError, ShardsChanged):
        if server.store.shards() != shards:  # a missing file belongs to a replaced shard
            return None
        raise
    return Blamed(ordered[-1 if offender is None else offender], offender is not None)


def _by_suspicion(server: Server, shards: Sequence[ShardRecord]) -> list[ShardRecord]:
    """Order shards by the magnitude of their largest value, then those of the last model first, then by that value.

    Magnitude counts most: a shard of enormous values may be in the last model by luck, and training with it fails as
    soon as anybody else's shard changes.
    """
    with server.store.database.reading() as db:
        changed = ledger.shards_since_model(db)
    suspicion: dict[str, tuple[int, bool, float]] = {}
    for record, shard in zip(shards, server.open_shards(shards), strict=True):
        value = farthest_value(shard, server.columns)
        # `frexp` gives the power of two: values of one magnitude do not decide
        suspicion[record.client] = math.frexp(value)[1], record.client in changed, value
    return sorted(shards, key=lambda record: suspicion[record.client])


def find_offender(ordered: Sequence[_T], trains: Callable[[Sequence[_T]], bool]) -> int | None:
    """Return the index of a shard that makes training fail; None if training fails on every subset tried.

    Training on all of them fails. The returned shard was added to others on which training succeeds, and made it
    fail. A shard that fails on its own is not accused for that: it may simply have too few rows, for
    example one row in front of batch normalisation. It is left out instead. If the others succeed without it, and it
    fails with few of them as with many, it is at fault; if they fail too, the search continues among them. Shards are
    ordered with the least suspected first.
    """
    for start in range(min(len(ordered), _ALONE)):  # training on ordered[start:] fails
        rest = ordered[start:]
        # whether training on the first so many of the rest succeeds; nothing is tried twice
        first = cache(lambda count, rest=rest: trains(rest[:count]))
        failure = _first_failure(0, len(rest), first)
        if failure:
            return start + failure
        if len(rest) > 1 and trains(rest[1:]):
            return start + _without_company(len(rest), first)
    return None


def _without_company(count: int, first: Callable[[int], bool]) -> int:
    """Return the index of the shard at fault, given that the least suspected one fails alone and the others do not.

    It is the least suspected one, unless training succeeds with it and a few others: then a more suspected
    shard makes it fail, and the others succeeded by luck.
    """
    size = 2
    while size < count and not first(size):
        size *= 2
    if size >= count:
        return 0
    while 2 * size < count and first(2 * size):
        size *= 2
    return _first_failure(size, min(2 * size, count), first)


def _first_failure(good: int, bad: int, first: Callable[[int], bool]) -> int:
    """Return the index of a shard that makes training fail when it is added to those before it.

    The last one is tried first, then the two before it, and so on, and then halves: an offender at the end takes one
    training to find, any other at most about 2 log₂ n. The first ``good`` shards can be trained on, the first ``bad``
    cannot.
    """
    step = 1
    while bad - good > 1:
        middle = max(bad - step, (good + bad) // 2)
        if first(middle):
            good = middle
        else:
            bad = middle
        step *= 2
    return good
