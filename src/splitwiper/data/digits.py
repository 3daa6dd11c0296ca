"""Handwritten digits that come with the package, for the demo.

They are the 1,797 images of 8 × 8 pixels in the test set of the UCI "Optical Recognition of Handwritten Digits", which
scikit-learn distributes too. A quarter of each digit is held out for tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from splitwiper.seeding import Stream
from splitwiper.wire.columns import Array

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
Part = tuple[Array, Array]
"""Images (rows × 1 × 8 × 8, from 0 to 1) and the names of their digits."""


def digits() -> tuple[Part, Part]:
    """Return the training rows and the test rows."""
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as file:
        images, names = (file["images"][:, None] / 16).astype(np.float32), np.array(NAMES)[file["labels"]]
        training = int(file["train"])
    return (images[:training], names[:training]), (images[training:], names[training:])


def dealt(part: Part, holders: Mapping[str, Sequence[str]], *, stream: Stream) -> dict[str, Part]:
    """Deal rows to clients: the rows of a digit in equal numbers to every client that holds it, as a stream decides."""
    chosen: dict[str, list[Array]] = {}
    for name, clients in holders.items():
        rows = np.flatnonzero(part[1] == name)
        shuffled = rows[Stream(stream.seed, stream.purpose, name).permutation(len(rows))]
        for number, client in enumerate(clients):
            chosen.setdefault(client, []).append(shuffled[number :: len(clients)])
    images, names = part
    parts = {}
    for client, lists in chosen.items():
        rows = np.sort(np.concatenate(lists))
        parts[client] = images[rows], names[rows]
    return parts
