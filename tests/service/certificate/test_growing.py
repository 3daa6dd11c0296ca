"""A tree that grows gives the roots and proofs of the plain functions, at every size."""

from __future__ import annotations

import pytest

from splitwiper.errors import InputError
from splitwiper.service.certificate.growing import GrowingTree
from splitwiper.store import merkle

LEAVES = [merkle.leaf_hash(bytes([number])) for number in range(40)]


def test_every_root_and_proof() -> None:
    tree = GrowingTree()
    for size in range(len(LEAVES) + 1):
        assert len(tree) == size
        for end in {size, size // 2}:
            assert tree.root(end) == merkle.root(LEAVES[:end])
            for old in range(end + 1):
                assert tree.consistency(old, end) == merkle.consistency(LEAVES[:end], old), (old, end)
            for index in range(end):
                assert tree.inclusion(index, end) == merkle.inclusion(LEAVES[:end], index), (index, end)
        tree.extend(LEAVES[size : size + 1])


def test_a_copy_goes_its_own_way() -> None:
    tree = GrowingTree()
    tree.extend(LEAVES[:5])
    copy = GrowingTree(tree)
    copy.extend(LEAVES[5:9])
    tree.extend(LEAVES[20:24])
    assert copy.root(9) == merkle.root(LEAVES[:9]) != tree.root(9)


def test_sizes_it_never_had() -> None:
    tree = GrowingTree()
    tree.extend(LEAVES[:3])
    for call in (
        lambda: tree.root(4),
        lambda: tree.inclusion(3, 3),
        lambda: tree.consistency(3, 2),
        lambda: tree.root(-1),
    ):
        with pytest.raises(InputError):
            call()
