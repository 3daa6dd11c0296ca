"""Streams depend on their name alone; isolation leaves no trace."""

import random

import numpy as np
import torch

from splitwiper.seeding import Stream, digest, encode, isolated_rng, mac, state_digest


def test_no_two_lists_of_parts_collide() -> None:
    lists = [["ab", "c"], ["a", "bc"], ["abc"], [b"abc"], ["1"], [1], [b"1"], ["", ""], [""], []]
    assert len({encode(parts) for parts in lists}) == len(lists)
    assert digest("a") != digest(b"a") and mac(b"k", "a") != mac(b"l", "a")


def test_streams_differ_by_every_part_of_their_name() -> None:
    base = Stream(1, "order", "north", b"x")
    others = [Stream(2, "order", "north", b"x"), Stream(1, "noise", "north", b"x"), Stream(1, "order", "south", b"x")]
    others.append(Stream(1, "order", "north", b"y"))
    assert len({s.number for s in [base, *others]}) == 5
    assert sorted(base.permutation(9)) == list(range(9))


def test_isolation_seeds_and_restores_all_generators() -> None:
    def draw() -> tuple[float, float, float]:
        return float(torch.rand(())), float(np.random.rand()), random.random()

    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    expected = draw()
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    seen = []
    for _ in range(2):
        with isolated_rng(Stream(1, "test")):
            seen.append(draw())
    assert seen[0] == seen[1]
    assert draw() == expected


def test_state_digest_sees_names_types_shapes_and_bits() -> None:
    tensor = torch.arange(6, dtype=torch.float32)
    states = [
        {"a": tensor},
        {"b": tensor},
        {"a": tensor.reshape(2, 3)},
        {"a": tensor.double()},
        {"a": tensor.clone().fill_(0.0)},
        {"a": -tensor.clone().fill_(0.0)},  # minus zero is another bit pattern
        {"a": tensor, "b": torch.empty(0)},
    ]
    assert len({state_digest(s) for s in states}) == len(states)
    assert state_digest({"x": tensor, "y": tensor}) == state_digest({"y": tensor, "x": tensor})
    assert state_digest({"a": tensor.reshape(2, 3).T}) == state_digest({"a": tensor.reshape(2, 3).T.contiguous()})
