"""Merkle trees as in RFC 6962: roots, inclusion proofs, consistency proofs, and their verification (RFC 9162, 2.1).

Leaves are given by their hashes (`leaf_hash`), so proofs can be made without the content. Proofs are
lists of 32-byte hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from splitwiper.errors import InputError

EMPTY = hashlib.sha256().digest()
"""The root of a tree without leaves."""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf; its prefix keeps it from being taken for a node."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node with two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root(leaves: Iterable[bytes]) -> bytes:
    """Return the root over leaf hashes.

    >>> root([leaf_hash(b"a")]) == leaf_hash(b"a"), root([]) == EMPTY
    (True, True)
    """
    tree = GrowingTree()
    tree.extend(leaves)
    return tree.root(len(tree))


class GrowingTree:
    """A tree that grows: roots and proofs of any earlier size, without hashing all leaves again.

    The hash of a full subtree never changes, so it is computed once. A root or proof then takes a number of hashes that
    is logarithmic in the size.
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
        """Return the proof that leaf ``index`` is in the tree of the first ``size`` leaves, lowest sibling first."""
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
        """Return the proof that the first ``old`` leaves are a prefix of the first ``new``."""
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


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected: bytes) -> bool:
    """Check a proof that a leaf hash is leaf ``index`` of the tree with this size and root."""
    if not 0 <= index < size:
        return False
    # On the way up, `value` is the hash of the subtree that holds the leaf, `here` its position on its level, and
    # `last` that of the last subtree there. Both halve with each level; the root is reached when `last` is 0.
    here, last, value = index, size - 1, leaf
    for sibling in proof:
        if last == 0:  # at the root already: the proof is too long
            return False
        if here & 1 or here == last:  # a right child; or the last on its level, whose sibling is to its left higher up
            value = node_hash(sibling, value)
            # the last subtree moves up unchanged through levels where it has no sibling: these give no hash
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:
            value = node_hash(value, sibling)
        here, last = here >> 1, last >> 1
    return last == 0 and value == expected  # a shorter proof has not reached the root


def verify_consistency(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Check a proof that the tree of ``old`` leaves is a prefix of the tree of ``new`` leaves."""
    if not 0 <= old <= new:
        return False
    if old == new:
        return not proof and old_root == new_root
    if old == 0:
        return not proof and old_root == EMPTY
    path = list(proof)
    if old & (old - 1) == 0:  # a power of two: the old tree is a whole subtree of the new one, which the proof omits
        path.insert(0, old_root)
    if not path:
        return False
    # The proof begins with the largest subtree that ends with the old tree's last leaf and is in both trees. From
    # there, two hashes are computed on one way up: `then` must become the old root, `now` the new one.
    here, last = old - 1, new - 1
    while here & 1:
        here, last = here >> 1, last >> 1
    then = now = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if here & 1 or here == last:  # a sibling to the left is older than the old tree's end: it is in both trees
            then, now = node_hash(sibling, then), node_hash(sibling, now)
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:  # a sibling to the right was added since: it is in the new tree only
            now = node_hash(now, sibling)
        here, last = here >> 1, last >> 1
    return last == 0 and then == old_root and now == new_root
