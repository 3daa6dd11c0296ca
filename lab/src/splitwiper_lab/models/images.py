"""Parts of networks for images: the client half up to the paper's cut, and pooling over a whole map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from splitwiper.errors import DataError

CENTRE, SCALE = 0.5, 0.25
"""The shift and scale of pixels in [0, 1]. They are fixed, never fitted to any client's images."""


class ImageStem(nn.Module):
    """The client half of Section 5.1: the first convolution, the same in every network for images.

    Its ReLU is before the cut, because pre-training pools what crosses it before a local head: without the ReLU, the
    local head would only see linear functions of the image. Batch normalisation and dropout are behind the cut, as in
    the paper: a client holds only a few labels, and its statistics would be those of its labels.

    Images are ``uint8`` in 0…255, or floats in 0…1.
    """

    def __init__(self, width: int, *, channels: int = 3, side: int = 32) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1)
        self.relu = nn.ReLU()
        self._shape = (channels, side, side)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of ``width`` channels, as large as the image."""
        if tuple(x.shape[1:]) != self._shape:
            got, wanted = "×".join(map(str, x.shape[1:])), "×".join(map(str, self._shape))
            raise DataError(
                f"images are {got or 'single numbers'}, this network takes {wanted}: resize them, or build it with "
                "other channels and side"
            )
        dtype = self.conv.weight.dtype
        pixels = x.to(dtype) / 255 if x.dtype == torch.uint8 else x.to(dtype)
        maps: Tensor = self.relu(self.conv((pixels - CENTRE) / SCALE))
        return maps


class MapMean(nn.Module):
    """The mean of every map: ``[n, c, h, w]`` to ``[n, c]``. Unlike torch's adaptive pooling, repeatable on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Average over height and width."""
        return x.mean(dim=(2, 3))


def conv_norm(inputs: int, outputs: int, *, stride: int = 1, kernel: int = 3) -> list[nn.Module]:
    """Create a convolution without bias and its batch normalisation, to be unpacked into a ``Sequential``."""
    # the normalisation subtracts the mean, and with it any bias
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]
