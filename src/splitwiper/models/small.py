"""Small networks for tables and for 8×8 images."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def mlp(inputs: int, outputs: int, *, hidden: int = 64, cut: int = 32) -> nn.Sequential:
    """A perceptron for tables: cut it after ``stem``.

    >>> [name for name, _ in mlp(4, 3).named_children()]
    ['stem', 'body', 'head']
    """
    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(nn.Linear(inputs, cut), nn.ReLU()),
            body=nn.Sequential(nn.Linear(cut, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()),
            head=nn.Linear(hidden, outputs),
        )
    )


def digits_cnn(outputs: int = 10, *, width: int = 16) -> nn.Sequential:
    """A convolutional network for 1×8×8 images: cut it after ``stem``; dropout and batch norm lie behind the cut."""
    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU()),
            body=nn.Sequential(
                nn.Conv2d(width, 2 * width, 3, padding=1),
                nn.BatchNorm2d(2 * width),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(2 * width, 4 * width, 3, padding=1),
                nn.BatchNorm2d(4 * width),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Dropout(0.2),
            ),
            head=nn.Linear(16 * width, outputs),
        )
    )
