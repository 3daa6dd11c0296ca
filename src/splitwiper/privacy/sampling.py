"""From random words to Laplace and Gaussian noise, in float32, on the activations' device.

Logarithm and cosine are torch's: their last bits belong to the fingerprint (torch, device, instruction set). Everything
else is exact or rounded once, so a draw depends only on its words.

Notes:
    Noise in floating point is not the noise of theory (Mironov, CCS 2012): the low bits that a sum can have reveal
    something of the value. So `noise.protect` rounds sums to a grid of 2⁻¹¹ to 2⁻¹⁰ of the scale, the same for every
    value. A Laplace draw takes 48 bits and a Gaussian one 64, enough to reach all of the grid except for the last 1e-10
    of the noise's mass; noise ends at 33 scales or 6.66 deviations. This is meant against the published attack, and is
    not a proof: count 1e-10 for each value towards δ. A proof to the last bit needs a discrete mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from splitwiper.privacy.sources import NoiseSource
from splitwiper.seeding import Part

_SIGN = -(1 << 31)  # the sign bit of a float32, in an int32


class Scratch:
    """Two float32 blocks that are reused for every draw: fresh memory costs more than the arithmetic."""

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        self._first, self._second = torch.empty(2, rows, width, device=device)

    def of(self, rows: int) -> Room:
        """Return working space for the draws of this many rows."""
        return Room(self._first[:rows], self._second[:rows])


@dataclass(frozen=True)
class Room:
    """Working space for the draws of one block: rows × width, twice."""

    first: Tensor
    second: Tensor


Sampler = Callable[[NoiseSource, Sequence[Part], int, Room], Tensor]


def laplace(source: NoiseSource, name: Sequence[Part], first: int, room: Room) -> Tensor:
    """Draw Laplace noise of scale 1 for the rows from ``first`` on, by inverting its distribution function.

    A first word of 32 bits and a second of 16 make a number in [-1, 1] that is never 0, because the second is odd.
    """
    signed, out = room.first, room.second
    rows, width = signed.shape
    _fill(signed, source.words([*name, "first"], "<i4", first=first, rows=rows, width=width))
    _fill(out, source.words([*name, "second"], "<i2", first=first, rows=rows, width=width).bitwise_or_(1))
    signed.add_(out, alpha=2.0**-16).mul_(2.0**-31)
    # minus the logarithm of the size is exponential noise: give it the sign of the number, by its bit
    torch.abs(signed, out=out).log_()
    out.view(torch.int32).bitwise_xor_(signed.view(torch.int32).bitwise_and_(_SIGN))
    return out


def gaussian(source: NoiseSource, name: Sequence[Part], first: int, room: Room) -> Tensor:
    """Draw Gaussian noise of deviation 1 for the rows from ``first`` on, from two words each (Box–Muller, cosine)."""
    radius, out = room.first, room.second
    rows, width = radius.shape
    _fill(radius, source.words([*name, "first"], "<i4", first=first, rows=rows, width=width))
    _fill(out, source.words([*name, "second"], "<i4", first=first, rows=rows, width=width))
    radius.add_(0.5).mul_(2.0**-31).abs_().log_().mul_(-2).sqrt_()
    return out.mul_(2.0**-31 * math.pi).cos_().mul_(radius)


def _fill(block: Tensor, words: Tensor) -> None:
    """Copy words to a block as numbers: they are transferred as integers, and become floats on the block's device."""
    block.copy_(words.to(block.device))


SAMPLERS: dict[str, Sampler] = {"laplace": laplace, "gaussian": gaussian}
