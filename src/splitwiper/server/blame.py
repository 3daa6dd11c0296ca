"""Find the shard that makes training fail, by training on fewer of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def find_offender(ordered: Sequence[_T], trains: Callable[[Sequence[_T]], bool]) -> _T:
    """Return the shard with which training starts to fail.

    Training on all of them fails. The result is a shard such that training on those before it succeeds, and fails once
    it is added. The last one is tried first, then the two before it, and so on, and then halves: an offender at the end
    takes one training to find, any other at most about 2 log₂ n.

    Args:
        ordered: the shards, the least suspected first.
        trains: whether training on some of them succeeds.
    """
    good, bad, step = 0, len(ordered), 1  # training on the first `good` succeeds, on the first `bad` fails
    while bad - good > 1:
        middle = max(bad - step, (good + bad) // 2)
        if trains(ordered[:middle]):
            good = middle
        else:
            bad = middle
        step *= 2
    return ordered[good]
