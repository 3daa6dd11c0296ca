"""A growing Merkle tree: roots and proofs of any earlier size, without hashing all leaves again.

The hash of a full subtree never changes, so it is computed once. A root or proof then takes a number of hashes that is
logarithmic in the size. Results equal those of `merkle.root`, `merkle.inclusion` and `merkle.consistency`.
"""

from __future__ import annotations

from collections.abc import Iterable

from splitwiper.errors import InputError
from splitwiper.store.merkle import EMPTY, node_hash


class GrowingTree:
    """Leaf hashes, and the hashes of all full subtrees over them.

    Args:
        before: a tree to start from; it is copied.
    """

    def __init__(self, before: GrowingTree | None = None) -> None:
        self._levels: list[list[bytes]] = [level[:] for level in before._levels] if before else [[]]

    def __len__(self) -> int:
        return len(self._levels[0])

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append leaf hashes, and the hashes of the subtrees that they complete."""
        for leaf in leaves:
            value, height = leaf, 0
            self._levels[0].append(value)
            # an even number of nodes on a level means that the last two have just become a full pair
            while len(self._levels[height]) % 2 == 0:
                value = node_hash(*self._levels[height][-2:])
                height += 1
                if height == len(self._levels):
                    self._levels.append([])
                self._levels[height].append(value)

    def root(self, size: int) -> bytes:
        """Return the root over the first ``size`` leaves."""
        return self._hash(0, self._checked(size)) if size else EMPTY

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the proof that leaf ``index`` is in the tree of the first ``size`` leaves, lowest sibling first.

        Raises:
            InputError: there is no such leaf.
        """
        if not 0 <= index < self._checked(size):
            raise InputError(f"there is no leaf {index} in a tree of {size}: count from 0.")
        start, end, proof = 0, size, list[bytes]()
        while end - start > 1:
            middle = start + _split(end - start)
            if index < middle:
                proof.append(self._hash(middle, end))
                end = middle
            else:
                proof.append(self._hash(start, middle))
                start = middle
        return proof[::-1]

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Return the proof that the first ``old`` leaves are a prefix of the first ``new``.

        Raises:
            InputError: ``old`` or ``new`` is not a size that the tree has had.
        """
        if not 0 <= old <= self._checked(new):
            raise InputError(f"a tree of {new} leaves has no earlier tree of {old}: give a size it once had.")
        if old in (0, new):
            return []
        start, end, proof = 0, new, list[bytes]()
        while old < end:
            middle = start + _split(end - start)
            if old <= middle:
                proof.append(self._hash(middle, end))
                end = middle
            else:
                proof.append(self._hash(start, middle))
                start = middle
        if start:  # the verifier cannot derive the old tree's last subtree from its root alone
            proof.append(self._hash(start, end))
        return proof[::-1]

    def _hash(self, start: int, end: int) -> bytes:
        """Return the hash over a range of leaves that forms a subtree."""
        size = end - start
        # a full subtree starts at a multiple of its size, so its hash is stored
        if size & (size - 1) == 0:
            height = size.bit_length() - 1
            return self._levels[height][start >> height]
        middle = start + _split(size)
        return node_hash(self._hash(start, middle), self._hash(middle, end))

    def _checked(self, size: int) -> int:
        if not 0 <= size <= len(self):
            raise InputError(f"the tree has {len(self)} leaves, not {size}: ask for a size it had.")
        return size


def _split(size: int) -> int:
    """Return the largest power of two below ``size``."""
    return 1 << (size - 1).bit_length() - 1
