"""Merkle trees as in RFC 6962: roots, inclusion proofs, consistency proofs, and their verification (RFC 9162, 2.1).

Leaves are given by their hashes (`leaf_hash`), so proofs can be made without the content. Proofs are
lists of 32-byte hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from splitwiper.errors import InputError

EMPTY = hashlib.sha256().digest()
"""The root of a tree without leaves."""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf; its prefix keeps it from being taken for a node."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node with two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes.

    >>> root([leaf_hash(b"a")]) == leaf_hash(b"a"), root([]) == EMPTY
    (True, True)
    """
    level = list(leaves)
    if not level:
        return EMPTY
    while len(level) > 1:  # a last leaf without a partner moves up unchanged: the RFC's tree, built bottom-up
        pairs = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


def inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the proof that leaf ``index`` is in the tree: the siblings on its way up, lowest first.

    Raises:
        InputError: there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise InputError(f"there is no leaf {index} in a tree of {len(leaves)}: count from 0.")
    if len(leaves) == 1:
        return []
    k = _split(len(leaves))
    if index < k:
        return [*inclusion(leaves[:k], index), root(leaves[k:])]
    return [*inclusion(leaves[k:], index - k), root(leaves[:k])]


def consistency(leaves: Sequence[bytes], old: int) -> list[bytes]:
    """Return the proof that the tree of the first ``old`` leaves is a prefix of the whole tree.

    Raises:
        InputError: there are fewer leaves.
    """
    if not 0 <= old <= len(leaves):
        raise InputError(f"a tree of {len(leaves)} leaves has no earlier tree of {old}: give a size it once had.")
    return [] if old in (0, len(leaves)) else _subproof(leaves, old, whole=True)


def _subproof(leaves: Sequence[bytes], old: int, *, whole: bool) -> list[bytes]:
    if old == len(leaves):
        return [] if whole else [root(leaves)]
    k = _split(len(leaves))
    if old <= k:
        return [*_subproof(leaves[:k], old, whole=whole), root(leaves[k:])]
    return [*_subproof(leaves[k:], old - k, whole=False), root(leaves[:k])]


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
