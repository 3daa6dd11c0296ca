"""ResNet-18 for small colour images (Section 5.1)."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from splitwiper.models.augment import ShiftFlip
from splitwiper_lab.models.images import ImageStem, MapMean, conv_norm

DEPTHS = (2, 2, 2, 2)


class Block(nn.Module):
    """A residual block: two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(*conv_norm(inputs, outputs, stride=stride), nn.ReLU())
        self.second = nn.Sequential(*conv_norm(outputs, outputs))
        same = stride == 1 and inputs == outputs
        self.around = nn.Identity() if same else nn.Sequential(*conv_norm(inputs, outputs, stride=stride, kernel=1))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return the activated sum of the convolutions and the shortcut."""
        out: Tensor = self.relu(self.second(self.first(x)) + self.around(x))
        return out


def resnet18(
    outputs: int = 10, *, width: int = 64, augment: bool = False, channels: int = 3, side: int = 32
) -> nn.Sequential:
    """Build ResNet-18 for 32×32 images: cut it after ``stem``, its first convolution.

    The stem is `vgg`'s, so clients hold as many parameters in both. The batch normalisation that follows the first
    convolution in the original is the server half's first layer; it brings the maps of all clients to one scale.

    As many maps as the width cross the cut; the server half grows to eight times as many. A federation makes its own
    head, with one output per label present. With ``augment``, the server half shifts (by up to 4 pixels) and mirrors
    the maps while training.

    >>> [name for name, _ in resnet18(width=8).named_children()]
    ['stem', 'body', 'head']
    """
    body = OrderedDict[str, nn.Module]()
    if augment:
        body["augment"] = ShiftFlip(pad=4)
    body["norm"] = nn.BatchNorm2d(width)
    inputs = width
    for stage, depth in enumerate(DEPTHS):
        size = width * 2**stage
        for number in range(depth):
            stride = 2 if stage and not number else 1  # halves the side where the width doubles
            body[f"layer{stage + 1}_{number + 1}"] = Block(inputs, size, stride=stride)
            inputs = size
    body["mean"] = MapMean()
    return nn.Sequential(
        OrderedDict(
            stem=ImageStem(width, channels=channels, side=side),
            body=nn.Sequential(body),
            head=nn.Linear(inputs, outputs),
        )
    )
