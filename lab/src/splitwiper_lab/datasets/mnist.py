"""MNIST in its idx files, plain or compressed, and its pictures in the shape of CIFAR's."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from splitwiper.errors import DataError
from splitwiper.wire.columns import Array
from splitwiper_lab.datasets.published import DataSet, Download, Published

_UBYTE = 0x08
"""The idx code of unsigned bytes."""


def read(what: Published, place: Path) -> DataSet:
    """Read pictures 1 × 28 × 28 and labels 0 to 9."""
    parts = []
    for prefix, rows in zip(("train", "t10k"), what.rows, strict=True):
        pictures = _idx(what, place, f"{prefix}-images-idx3-ubyte", shape=(rows, 28, 28))
        labels = _idx(what, place, f"{prefix}-labels-idx1-ubyte", shape=(rows,))
        wrong = np.flatnonzero(labels > 9)
        if len(wrong):
            file = what.path(place, f"{prefix}-labels-idx1-ubyte") or place
            what.damaged(file, f"label {labels[wrong[0]]} in row {wrong[0]:,} is not a digit")
        parts.append((pictures[:, None], labels.astype(np.int64)))
    return DataSet(what.name, parts[0], parts[1], tuple(range(10)))


def _idx(what: Published, place: Path, name: str, *, shape: tuple[int, ...]) -> Array:
    """Read the array in an idx file: two zero bytes, type, number of dimensions, big-endian dimensions, values."""
    file = what.path(place, name) or place / name
    head = 4 + 4 * len(shape)
    expected = head + math.prod(shape)
    raw = _bytes(what, file, most=expected + 1)  # one byte more than there should be shows that there are too many
    magic = bytes((0, 0, _UBYTE, len(shape)))
    if raw[:4] != magic:
        what.damaged(
            file, f"it starts with {raw[:4].hex() or 'nothing'} instead of {magic.hex()}: not such an idx file"
        )
    announced = np.frombuffer(raw[4:head], dtype=">u4").tolist() if len(raw) >= head else []
    if announced != list(shape):
        what.damaged(file, f"it announces the dimensions {announced} instead of {list(shape)}")
    if len(raw) != expected:
        size = f"more than {expected:,}" if len(raw) > expected else f"{len(raw):,}"
        what.damaged(file, f"{size} bytes, but its dimensions {list(shape)} take {expected:,}")
    return np.frombuffer(raw, dtype=np.uint8, offset=head).reshape(shape).copy()  # writable


def _bytes(what: Published, file: Path, *, most: int) -> bytes:
    """Read at most ``most`` bytes of a file, decompressing it if necessary."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            return bytes(stream.read(most))
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        what.damaged(file, f"it cannot be unpacked ({problem})")


def as_rgb32(images: Array) -> Array:
    """Convert grey pictures n × 1 × 28 × 28 to n × 3 × 32 × 32: pad by two zeros all around, repeat the channel.

    >>> as_rgb32(np.ones((5, 1, 28, 28), np.uint8)).shape
    (5, 3, 32, 32)
    """
    if images.ndim != 4 or images.shape[1:] != (1, 28, 28):
        raise DataError(f"pictures have shape {list(images.shape)}; give rows × 1 × 28 × 28.")
    return np.repeat(np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2))), 3, axis=1)


_FILES = {
    "train-images-idx3-ubyte": (
        (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    ),
    "train-labels-idx1-ubyte": (
        (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    ),
    "t10k-images-idx3-ubyte": (
        (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    ),
    "t10k-labels-idx1-ubyte": (
        (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        (10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ),
}
"""Size and SHA-256 of each file, compressed as it is offered and unpacked."""
MNIST = Published(
    name="mnist",
    title="written digits 1×28×28",
    base="https://ossci-datasets.s3.amazonaws.com/mnist/",
    downloads=tuple(Download(f"{file}.gz", *packed) for file, (packed, _) in _FILES.items()),
    folder="MNIST/raw",
    files=tuple(_FILES),
    rows=(60_000, 10_000),
    limit=10_000_000,
    read=read,
    loose=True,
    zipped=True,
    unpacked=tuple(Download(file, *plain) for file, (_, plain) in _FILES.items()),
)
