"""RFC 6962 trees against the definition, written down as the RFC has it."""

from __future__ import annotations

import hashlib

import pytest

from splitwiper.errors import InputError
from splitwiper.store.merkle import (
    EMPTY,
    GrowingTree,
    leaf_hash,
    root,
    verify_consistency,
    verify_inclusion,
)

SIZES = range(71)
DATA = [number.to_bytes(2, "big") for number in SIZES]
LEAVES = [leaf_hash(item) for item in DATA]
OTHER = leaf_hash(b"other")


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def below(size: int) -> int:
    k = 1
    while 2 * k < size:
        k *= 2
    return k


def naive(data: list[bytes]) -> bytes:
    """MTH of section 2.1."""
    if not data:
        return sha(b"")
    if len(data) == 1:
        return sha(b"\0" + data[0])
    k = below(len(data))
    return sha(b"\1" + naive(data[:k]) + naive(data[k:]))


def path(m: int, data: list[bytes]) -> list[bytes]:
    """PATH of section 2.1.1."""
    if len(data) == 1:
        return []
    k = below(len(data))
    return [*path(m, data[:k]), naive(data[k:])] if m < k else [*path(m - k, data[k:]), naive(data[:k])]


def subproof(m: int, data: list[bytes], b: bool) -> list[bytes]:
    """SUBPROOF of section 2.1.2."""
    if m == len(data):
        return [] if b else [naive(data)]
    k = below(len(data))
    if m <= k:
        return [*subproof(m, data[:k], b), naive(data[k:])]
    return [*subproof(m - k, data[k:], False), naive(data[:k])]


ROOTS = [naive(DATA[:size]) for size in SIZES]


def grown(size: int) -> GrowingTree:
    tree = GrowingTree()
    tree.extend(LEAVES[:size])
    return tree


TREE = grown(len(SIZES))


def test_the_roots_of_the_certificate_transparency_project() -> None:
    inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    leaves = [leaf_hash(bytes.fromhex(text)) for text in inputs]
    assert [root(leaves[: size + 1]).hex()[:16] for size in range(8)] == [
        "6e340b9cffb37a98",
        "fac54203e7cc696c",
        "aeb6bcfe274b70a1",
        "d37ee418976dd957",
        "4e3bbb1f7b478dcf",
        "76e67dadbcdf1e10",
        "ddb89be403809e32",
        "5dc9da79a70659a9",
    ]


def test_roots() -> None:
    assert [root(LEAVES[:size]) for size in SIZES] == [TREE.root(size) for size in SIZES] == ROOTS
    assert root([]) == EMPTY == sha(b"")


@pytest.mark.parametrize("size", SIZES)
def test_every_leaf_is_proved_and_nothing_else(size: int) -> None:
    for index in range(size):
        proof = TREE.inclusion(index, size)  # of a tree that has grown since
        assert proof == grown(size).inclusion(index, size) == path(index, DATA[:size])
        assert verify_inclusion(LEAVES[index], index, size, proof, ROOTS[size])
        assert not verify_inclusion(OTHER, index, size, proof, ROOTS[size])
        assert not verify_inclusion(LEAVES[index], index, size, proof, OTHER)
        assert not verify_inclusion(LEAVES[index], index, size, [*proof, OTHER], ROOTS[size])
        assert not verify_inclusion(LEAVES[index], size, size, proof, ROOTS[size])
        assert not verify_inclusion(LEAVES[index], -1, size, proof, ROOTS[size])
        for place in range(len(proof)):
            assert not verify_inclusion(LEAVES[index], index, size, proof[:place] + proof[place + 1 :], ROOTS[size])
            altered = [*proof[:place], OTHER, *proof[place + 1 :]]
            assert not verify_inclusion(LEAVES[index], index, size, altered, ROOTS[size])
        for wrong in {0, index // 2, index + 1, size - 1} - {index}:
            assert not verify_inclusion(LEAVES[index], wrong, size, proof, ROOTS[size])


@pytest.mark.parametrize("new", SIZES)
def test_every_beginning_is_proved_and_nothing_else(new: int) -> None:
    for old in range(new + 1):
        proof = TREE.consistency(old, new)
        assert proof == grown(new).consistency(old, new) == (subproof(old, DATA[:new], True) if old else [])
        assert verify_consistency(old, ROOTS[old], new, ROOTS[new], proof)
        assert not verify_consistency(old, OTHER, new, ROOTS[new], proof)
        assert not verify_consistency(old, ROOTS[old], new, ROOTS[new], [*proof, OTHER])
        if old:
            assert not verify_consistency(old, ROOTS[old], new, OTHER, proof)
        if old < new:
            assert not verify_consistency(new, ROOTS[new], old, ROOTS[old], proof)
        for place in range(len(proof)):
            short = proof[:place] + proof[place + 1 :]
            assert not verify_consistency(old, ROOTS[old], new, ROOTS[new], short)
            altered = [*proof[:place], OTHER, *proof[place + 1 :]]
            assert not verify_consistency(old, ROOTS[old], new, ROOTS[new], altered)


def test_what_is_not_there_is_refused() -> None:
    tree = grown(3)
    for index in (-1, 3):
        with pytest.raises(InputError, match=f"no leaf {index} in a tree of 3"):
            tree.inclusion(index, 3)
    for old in (-1, 4):
        with pytest.raises(InputError, match=f"no earlier tree of {old}"):
            tree.consistency(old, 3)
    for size in (-1, 4):
        with pytest.raises(InputError, match=f"has 3 leaves, not {size}"):
            tree.root(size)
    assert not verify_consistency(2, ROOTS[2], 3, ROOTS[3], [])


def test_a_copy_goes_its_own_way() -> None:
    tree = grown(5)
    copy = GrowingTree(tree)
    copy.extend(LEAVES[5:9])
    tree.extend(LEAVES[20:24])
    assert copy.root(9) == ROOTS[9] != tree.root(9)
