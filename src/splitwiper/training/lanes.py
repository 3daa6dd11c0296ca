r"""Lanes: parts of a batch, computed one by one and added in one binary tree, by any number of processes.

Floating-point sums depend on their order, and kernels on the shape of what they compute. So each part, a *lane*, is
always computed alone, from the batch's first values of buffers and from a random stream of its own. The lanes' results
are always added in the same tree. Which process computes which lanes then changes no bit:

    lane   0   1   2   3        two ranks: the first owns lanes 0 and 1, and so the subtree above them;
            \ /     \ /         the second owns lanes 2 and 3; they exchange two vectors
             +       +
              \     /
                 +
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from splitwiper.errors import ConfigError, TrainingError
from splitwiper.seeding import Stream, begin
from splitwiper.training.cache import CODE, Parts

SMALLEST = 16
"""The smallest number of rows in a lane: batch norm's statistics are those of a lane."""


class Team(Protocol):
    """The processes that train one net in lock step. All of them make the same calls in the same order."""

    rank: int
    """This process's number, from 0."""
    size: int
    """The number of processes: a power of two."""

    def add(self, vector: Tensor) -> Tensor:
        """Return the sum of all ranks' vectors, added in pairs, in the order of ranks."""
        ...

    def worst(self, problem: Exception | None) -> Exception | None:
        """Return the error of the first rank that has one, on all ranks."""
        ...


class Alone:
    """The team of one process."""

    rank, size = 0, 1

    def add(self, vector: Tensor) -> Tensor:
        """Return the vector."""
        return vector

    def worst(self, problem: Exception | None) -> Exception | None:
        """Return the error."""
        return problem


class TreeSum:
    """Adds vectors in pairs, then pairs of pairs, and so on, keeping one partial sum per level of the tree."""

    def __init__(self) -> None:
        self._partial: list[tuple[int, Tensor]] = []  # the number of vectors in each partial sum, and the sum

    def add(self, vector: Tensor) -> None:
        """Add the next vector; their number ends up a power of two."""
        count = 1
        while self._partial and self._partial[-1][0] == count:
            _, left = self._partial.pop()
            vector, count = left + vector, 2 * count
        self._partial.append((count, vector))

    @property
    def total(self) -> Tensor:
        """The sum of all vectors."""
        ((_, total),) = self._partial
        return total


def lanes_of(rows: int, lanes: int) -> int:
    """Return how many lanes a batch is cut into: a power of two, fewer than usual for a small batch.

    >>> lanes_of(1024, 8), lanes_of(40, 8), lanes_of(3, 8)
    (8, 2, 1)
    """
    while lanes > 1 and rows < SMALLEST * lanes:
        lanes //= 2
    return lanes


class Lanes:
    """Computes a batch's gradients and buffers lane by lane.

    Args:
        net: the net, on its device.
        count: the number of lanes, a power of two.
        team: the processes that share the work.

    Raises:
        ConfigError: the net has complex numbers, or the lanes cannot be divided among the team.
    """

    def __init__(self, net: nn.Module, count: int, team: Team) -> None:
        if count % team.size:
            raise ConfigError(f"{team.size} processes cannot share lanes = {count}: use 1, 2, 4 … up to {count}.")
        self._net, self._count, self._team = net, count, team
        self._dtype = torch.float32
        for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
            if tensor.is_complex():
                raise ConfigError(f"lanes = {count} is not for networks with complex numbers such as {name!r}; use 1.")
            if tensor.dtype == torch.float64:
                self._dtype = torch.float64

    def backward(self, parts: Parts, compute: Callable[[Parts, float], Tensor], noise: Stream) -> Tensor:
        """Set the net's gradients and buffers to those of a batch, and return the sum of its rows' losses.

        Args:
            parts: the batch.
            compute: runs the net forward and backward on some rows, with gradients scaled by the rows' share of the
                batch, and returns the sum of their losses.
            noise: names the batch's randomness.

        Raises:
            Exception: what ``compute`` raised, on all ranks.
        """
        rows = len(parts[CODE])
        used = lanes_of(rows, self._count)
        first = [buffer.clone() for buffer in self._net.buffers()]
        bounds = [rows * lane // used for lane in range(used + 1)]
        tree, problem = TreeSum(), None
        absent = self._zeros()
        for lane in self._own():
            vector = absent  # absent lanes are added too: -0.0 + 0.0 is not -0.0, whichever process adds them
            if lane < used and problem is None:
                part = {name: tensor[bounds[lane] : bounds[lane + 1]] for name, tensor in parts.items()}
                self._begin(first, replace(noise, purpose=f"{noise.purpose}/{lane}"))
                try:
                    loss = compute(part, len(part[CODE]) / rows)
                    vector = self._vector(loss, first)
                except Exception as caught:
                    if self._team.size == 1:
                        raise
                    problem = caught  # the others wait for this rank's vector, so it is sent all the same
            tree.add(vector)
        total = self._team.add(tree.total)
        if self._team.size > 1 and (worst := self._team.worst(problem)):
            raise worst
        return self._apply(total, first, used)

    def _own(self) -> range:
        """Return this rank's lanes: a block, so that its sum is a node of the tree."""
        block = self._count // self._team.size
        return range(self._team.rank * block, (self._team.rank + 1) * block)

    def _begin(self, first: Sequence[Tensor], noise: Stream) -> None:
        """Put buffers and generators where every lane starts from."""
        with torch.no_grad():
            for buffer, value in zip(self._net.buffers(), first, strict=True):
                buffer.copy_(value)
        self._net.zero_grad(set_to_none=True)
        begin(noise)

    # --- the vector that is added --------------------------------------------------------------------------

    # Gradients; buffers, as values or, for integers, as what was added and its square; the loss; a 1 for each parameter
    # that has a gradient, since optimisers treat a missing one and one of zeros differently; and a 1 for each buffer
    # that changed, since the mean of constants need not be the constant: twice the lowest number, as in a mask, is
    # infinite.

    def _zeros(self) -> Tensor:
        parameters, buffers = list(self._net.parameters()), list(self._net.buffers())
        whole = [buffer for buffer in buffers if not buffer.is_floating_point()]
        length = sum(tensor.numel() for tensor in (*parameters, *buffers, *whole)) + 1 + len(parameters) + len(buffers)
        return torch.zeros(length, dtype=self._dtype, device=parameters[0].device if parameters else None)

    def _vector(self, loss: Tensor, first: Sequence[Tensor]) -> Tensor:
        pieces, flags, changed = list[Tensor](), list[float](), list[Tensor]()
        for parameter in self._net.parameters():
            gradient = parameter.grad
            flags.append(float(gradient is not None))
            if gradient is None:
                gradient = torch.zeros_like(parameter)
            pieces.append((gradient.to_dense() if gradient.is_sparse else gradient).detach().reshape(-1))
        for buffer, value in zip(self._net.buffers(), first, strict=True):
            if buffer.is_floating_point():
                pieces.append(buffer.detach().reshape(-1))
            else:
                added = (buffer.long() - value.long()).double().reshape(-1)
                pieces += [added, added * added]
            changed.append((buffer.detach() != value).any().reshape(1))
        pieces += [loss.detach().reshape(1), torch.tensor(flags, device=loss.device), *changed]
        return torch.cat([piece.to(self._dtype) for piece in pieces])

    @torch.no_grad()
    def _apply(self, total: Tensor, first: Sequence[Tensor], used: int) -> Tensor:
        """Set gradients and buffers from the sum over lanes, and return the sum of the losses."""
        parameters, buffers = list(self._net.parameters()), list(self._net.buffers())
        flags = iter(total[len(total) - len(parameters) - len(buffers) :].tolist())
        start = 0

        def piece(like: Tensor) -> Tensor:
            nonlocal start
            start += like.numel()
            return total[start - like.numel() : start].view(like.shape)

        for parameter in parameters:
            gradient = piece(parameter)
            # in the parameter's own layout, which fused optimisers require
            parameter.grad = torch.empty_like(parameter).copy_(gradient) if next(flags) else None
        for buffer, value in zip(buffers, first, strict=True):
            mean = piece(buffer) / used  # exact: a power of two
            square = None if buffer.is_floating_point() else piece(buffer) / used
            if not next(flags):
                buffer.copy_(value)
            elif square is None:
                buffer.copy_(mean)
            elif torch.equal(mean * mean, square) and (square * used < 2 / torch.finfo(self._dtype).eps).all():
                # only if all lanes added the same; larger numbers are rounded, and equal by chance
                buffer.copy_(value.long() + mean.long())
            else:
                raise TrainingError(
                    "the network keeps whole numbers that depend on a batch's rows, so lanes cannot share it: set "
                    "lanes = 1."
                )
        return total[start].to(torch.float32)
