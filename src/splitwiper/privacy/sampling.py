"""From random words to Laplace and Gaussian noise, in float32, on the device that has the activations.

Logarithm and cosine are torch's: their last bits belong to the fingerprint (torch, device, instruction set). All else
is exact or rounded once, so a draw depends on its words alone.

Notes:
    Noise in floating point is not the noise of theory (Mironov, CCS 2012): which low bits a sum can have tells of the
    value below. So `noise.protect` rounds sums to a grid of 2⁻¹¹ to 2⁻¹⁰ of the scale, the same for every value. A
    Laplace draw takes 48 bits and a Gaussian one 64, enough to reach all of the grid but for the last 1e-10 of the
    noise's mass; noise ends at 33 scales or 6.66 deviations. It is meant against the published attack, and no proof:
    count 1e-10 for each value towards δ. Who needs a proof to the last bit needs a discrete mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from splitwiper.privacy.sources import Source
from splitwiper.seeding import Part

_SIGN = -(1 << 31)
"""The sign bit of a float32."""


class Scratch:
    """Two float32 blocks that draws are made in, over and over: fresh memory costs more than the arithmetic."""

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        self._blocks = [torch.empty(rows, width, device=device) for _ in range(2)]

    def of(self, rows: int) -> Room:
        """Room for the draws of so many rows."""
        return Room(*(block[:rows] for block in self._blocks))


@dataclass(frozen=True)
class Room:
    """Where the draws of one block are made: rows × width, twice."""

    one: Tensor
    two: Tensor


Sampler = Callable[[Source, Sequence[Part], int, Room], Tensor]


def laplace(source: Source, name: Sequence[Part], first: int, room: Room) -> Tensor:
    """Laplace noise of scale 1 for the rows from ``first`` on, by the inverse of its distribution.

    A first word of 32 bits and a second of 16 make a number in [-1, 1] that is never 0, because the second is odd.
    """
    signed, out = room.one, room.two
    rows, width = signed.shape
    _fill(signed, source.words([*name, "first"], "<i4", first=first, rows=rows, width=width))
    _fill(out, source.words([*name, "second"], "<i2", first=first, rows=rows, width=width).bitwise_or_(1))
    signed.add_(out, alpha=2.0**-16).mul_(2.0**-31)
    torch.abs(signed, out=out).log_()
    out.view(torch.int32).bitwise_xor_(signed.view(torch.int32).bitwise_and_(_SIGN))
    return out


def gaussian(source: Source, name: Sequence[Part], first: int, room: Room) -> Tensor:
    """Gaussian noise of deviation 1 for the rows from ``first`` on, from two words each (Box and Muller's cosine)."""
    radius, out = room.one, room.two
    rows, width = radius.shape
    _fill(radius, source.words([*name, "first"], "<i4", first=first, rows=rows, width=width))
    _fill(out, source.words([*name, "second"], "<i4", first=first, rows=rows, width=width))
    radius.add_(0.5).mul_(2.0**-31).abs_().log_().mul_(-2).sqrt_()
    return out.mul_(2.0**-31 * math.pi).cos_().mul_(radius)


def _fill(block: Tensor, words: Tensor) -> None:
    """Words as numbers: they travel as they are, and become floats where the block is."""
    block.copy_(words.to(block.device))


SAMPLERS: dict[str, Sampler] = {"laplace": laplace, "gaussian": gaussian}
