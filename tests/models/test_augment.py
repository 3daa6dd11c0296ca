"""`ShiftFlip`: the identity when evaluating, and while training the same pixels in other places."""

from __future__ import annotations

import pytest
import torch

from splitwiper.models import ShiftFlip

SIDE = 8


def maps(rows: int = 64) -> torch.Tensor:
    """Every pixel has a value of its own."""
    return torch.arange(rows * 2 * SIDE * SIDE, dtype=torch.float32).reshape(rows, 2, SIDE, SIDE)


def test_the_identity_when_evaluating() -> None:
    x = maps()
    before = torch.random.get_rng_state()
    assert ShiftFlip().eval()(x) is x
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_seeded_generator_decides() -> None:
    out = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        out.append(ShiftFlip(2)(maps()))
    assert torch.equal(out[0], out[1]) and not torch.equal(out[0], out[2])


@pytest.mark.parametrize("pad", [0, 1, 2])
def test_rows_are_shifted_and_mirrored_as_a_whole(pad: int) -> None:
    """Each row is one of the (2·pad + 1)² · 2 pictures that shifting with repeated edges, and mirroring, can give."""
    torch.manual_seed(0)
    x = maps(400)
    found = []
    for before, after in zip(x, ShiftFlip(pad)(x), strict=True):
        wide = torch.nn.functional.pad(before[None], [pad] * 4, mode="replicate")[0]
        for down in range(2 * pad + 1):
            for right in range(2 * pad + 1):
                part = wide[:, down : down + SIDE, right : right + SIDE]
                found += [(down, right, flip) for flip in (0, 1) if torch.equal(part.flip(2) if flip else part, after)]
    assert len(found) == len(x)  # each row is exactly one of them
    assert len(set(found)) == 2 * (2 * pad + 1) ** 2  # all of them occur


def test_memory_formats_differ_in_strides_alone() -> None:
    out = []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(4)
        out.append(ShiftFlip(2)(maps().contiguous(memory_format=layout)))
        assert out[-1].is_contiguous(memory_format=layout)
    assert torch.equal(*out)


def test_gradients_find_their_way_back() -> None:
    """For training across the cut; under deterministic algorithms too."""
    x = maps(4).requires_grad_()
    torch.use_deterministic_algorithms(True)
    try:
        ShiftFlip(1, flip=False)(x).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert x.grad is not None and x.grad.sum() == x.numel()


@pytest.mark.gpu
def test_a_cuda_graph_takes_it_in() -> None:
    module, x = ShiftFlip(2), maps().cuda()
    graph = torch.cuda.CUDAGraph()
    module(x)
    with torch.cuda.graph(graph):
        out = module(x)
    seen = []
    for seed in (1, 1, 2):
        torch.cuda.manual_seed(seed)
        graph.replay()
        seen.append(out.clone())
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])
    torch.cuda.manual_seed(1)
    assert torch.equal(module(x), seen[0])
