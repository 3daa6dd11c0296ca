"""Find the shard that makes training fail, by training on fewer of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from splitwiper.errors import CorruptError, UntrainableError
from splitwiper.store import ShardRecord, ledger
from splitwiper.wire.shard import farthest_value

if TYPE_CHECKING:
    from splitwiper.server.server import Server

_T = TypeVar("_T")
_ALONE = 8
"""Shards that may fail by themselves before the settings are taken to be at fault."""


@dataclass(frozen=True)
class Blamed:
    """The shard to erase because training fails.

    Attributes:
        shard: the shard.
        by_comparison: whether training succeeds on other shards, and fails once this one is added. If not, training
            fails on everything that was tried, so the settings may be at fault.
    """

    shard: ShardRecord
    by_comparison: bool


class _ShardsChanged(Exception):
    """A shard was replaced or withdrawn while the one at fault was being looked for."""


def blame(server: Server, shards: tuple[ShardRecord, ...]) -> Blamed | None:
    """Find the shard with which training fails; None where shards changed meanwhile.

    Args:
        server: trains on some of them, and publishes nothing.
        shards: the manifest, on which training failed.
    """

    def trains(some: Sequence[ShardRecord]) -> bool:
        if server.tree.shards() != shards:
            raise _ShardsChanged
        try:
            server.compute(sorted(some, key=lambda one: one.client), warm=server.warm_start())
        except UntrainableError:
            return False
        return True

    try:
        ordered = _by_suspicion(server, shards)
        place = find_offender(ordered, trains)
    except (CorruptError, _ShardsChanged):
        if server.tree.shards() != shards:  # a file that is gone was replaced
            return None
        raise
    return Blamed(ordered[-1 if place is None else place], place is not None)


def _by_suspicion(server: Server, shards: Sequence[ShardRecord]) -> list[ShardRecord]:
    """Order shards: those of the last model first, which could be trained on, then by their largest value."""
    changed = ledger.shards_since_model(server.tree.book.db)
    values = [farthest_value(one, server.columns) for one in server.open_shards(shards)]
    ranked = sorted(zip(shards, values, strict=True), key=lambda one: (one[0].client in changed, one[1]))
    return [shard for shard, _ in ranked]


def find_offender(ordered: Sequence[_T], trains: Callable[[Sequence[_T]], bool]) -> int | None:
    """Return the place of a shard that makes training fail; None where nothing that is tried can be trained on.

    Training on all of them fails. The shard that is returned was added to others on which training succeeds, and made
    it fail. A shard that fails by itself is not accused for that: too few rows may be all that is wrong with it, for
    example one row in front of batch normalisation. It is left out instead. If the others succeed without it, it is at
    fault; if they do not, the search goes on among them.

    Args:
        ordered: the shards, the least suspected first.
        trains: whether training on some of them succeeds.
    """
    for start in range(min(len(ordered), _ALONE)):  # training on ordered[start:] fails
        place = start + _first_failure(ordered[start:], trains)
        if place > start:
            return place
        others = ordered[start + 1 :]
        if others and trains(others):
            return start
    return None


def _first_failure(ordered: Sequence[_T], trains: Callable[[Sequence[_T]], bool]) -> int:
    """Return the place of a shard with which training fails, and without which it succeeds on those before it.

    The last one is tried first, then the two before it, and so on, and then halves: an offender at the end takes one
    training to find, any other at most about 2 log₂ n.
    """
    good, bad, step = 0, len(ordered), 1  # training on the first `good` succeeds, on the first `bad` fails
    while bad - good > 1:
        middle = max(bad - step, (good + bad) // 2)
        if trains(ordered[:middle]):
            good = middle
        else:
            bad = middle
        step *= 2
    return good
