"""A simplified VGG for small colour images (Section 5.1)."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from splitwiper.models.augment import ShiftFlip
from splitwiper_lab.models.images import ImageStem, MapMean, conv_norm


def vgg(
    outputs: int = 10,
    *,
    width: int = 64,
    dropout: float = 0.3,
    augment: bool = False,
    channels: int = 3,
    side: int = 32,
) -> nn.Sequential:
    """Build a simplified VGG: cut it after ``stem``, its first convolution.

    The server half pools before it convolves, so that its wide layers see 16×16 pixels: few, wide convolutions keep a
    GPU busy. A row costs the client 3.5 MFLOP and the server 189 MFLOP forward, at ``width=64``.

    As many maps as the width cross the cut; the server half grows to eight times as many. A federation makes its own
    head, with one output per label present; dropout is before the head. With ``augment``, the server half shifts (by up
    to 4 of the image's pixels) and mirrors the maps while training. Images have sides of 8 pixels or more.

    >>> [name for name, _ in vgg().named_children()]
    ['stem', 'body', 'head']
    """
    body = OrderedDict[str, nn.Module](pool0=nn.MaxPool2d(2))
    if augment:
        body["augment"] = ShiftFlip(pad=2)  # behind the pool: a quarter of the bytes, and 2 pixels are 4
    for name, before, after, pooled in (("a", 1, 2, True), ("b", 2, 4, False), ("c", 4, 4, True), ("d", 4, 8, False)):
        convolution, norm = conv_norm(before * width, after * width)
        pool = [nn.MaxPool2d(2)] if pooled else []  # before the norm, which then has a quarter of the work
        body[name] = nn.Sequential(convolution, *pool, norm, nn.ReLU())
    body |= OrderedDict(mean=MapMean(), dropout=nn.Dropout(dropout))
    return nn.Sequential(
        OrderedDict(
            stem=ImageStem(width, channels=channels, side=side),
            body=nn.Sequential(body),
            head=nn.Linear(8 * width, outputs),
        )
    )
