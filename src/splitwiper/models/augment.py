"""Augmentation behind the cut: the cache holds each row once, training sees it shifted and mirrored."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ShiftFlip(nn.Module):
    """Shift every row's maps by up to ``pad`` pixels and mirror half of them; when evaluating, the identity.

    What is shifted out is lost, and the edge is repeated on the other side: every pixel of the result is one of the
    input's. The numbers come from torch's generator on the tensor's device, and only tensor operations are used. So the
    module can be part of a CUDA graph, and computes the same under a seeded generator and deterministic algorithms.

    Args:
        pad: the largest shift, in pixels.
        flip: whether to mirror left and right.
    """

    def __init__(self, pad: int = 2, *, flip: bool = True) -> None:
        super().__init__()
        self.pad, self.flip = pad, flip

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``[n, c, h, w]``, moved row by row in training mode."""
        if not self.training:
            return x
        n, c, h, w = x.shape
        down, right = self._shifts(n, h, x.device), self._shifts(n, w, x.device)  # [n, h], [n, w]
        if self.flip:
            mirrored = torch.randint(0, 2, (n, 1), device=x.device) == 1
            right = torch.where(mirrored, w - 1 - right, right)
        row = torch.arange(n, device=x.device)
        if x.is_contiguous(memory_format=torch.channels_last):  # copy whole pixels, and stay channels-last
            pixels = x.permute(0, 2, 3, 1)[row[:, None, None], down[:, :, None], right[:, None, :]]
            return pixels.permute(0, 3, 1, 2)
        channel = torch.arange(c, device=x.device)
        return x[row[:, None, None, None], channel[:, None, None], down[:, None, :, None], right[:, None, None, :]]

    def _shifts(self, rows: int, side: int, device: torch.device) -> Tensor:
        """For every row and place, the place its pixel comes from."""
        by = torch.randint(-self.pad, self.pad + 1, (rows, 1), device=device)
        return (torch.arange(side, device=device) + by).clamp(0, side - 1)

    def extra_repr(self) -> str:
        """The settings."""
        return f"pad={self.pad}, flip={self.flip}"
