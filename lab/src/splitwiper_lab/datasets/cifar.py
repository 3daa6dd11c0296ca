"""CIFAR-10 and CIFAR-100, binary versions: one record per picture, label bytes first. Nothing is unpickled."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from splitwiper.wire.columns import Array
from splitwiper_lab.datasets.published import DataSet, Download, Published

PIXELS = 3 * 32 * 32
TRAIN = tuple(f"data_batch_{n}.bin" for n in range(1, 6))
_BASE = "https://www.cs.toronto.edu/~kriz/"


def _read(
    what: Published, place: Path, *, listed: str, files: tuple[tuple[str, ...], ...], labels: tuple[int, ...]
) -> DataSet:
    """Read the files of the training and of the test part.

    A record has a label byte for each number in ``labels``, the number of known labels, and 3 × 32 × 32 pixels.
    CIFAR-100 has a coarse and a fine label; the last is used.
    """
    names = what.names(place / listed, labels[-1])
    parts = []
    for part, rows in zip(files, what.rows, strict=True):
        pixels, codes = [], []
        for file in part:
            records = _records(what, place / file, rows=rows // len(part), labels=labels)
            pixels.append(records[0])
            codes.append(records[1])
        parts.append((np.concatenate(pixels), np.array(names)[np.concatenate(codes)]))
    return DataSet(what.name, parts[0], parts[1], names)


def _records(what: Published, file: Path, *, rows: int, labels: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the pixels (rows × 3 × 32 × 32) and the last label byte of every record in a file."""
    length, size = len(labels) + PIXELS, file.stat().st_size
    if size != rows * length:
        whole, rest = divmod(size, length)
        left = f" and {rest:,} bytes of another" if rest else ""
        what.damaged(
            file, f"{size:,} bytes, that is {whole:,} pictures{left}, instead of {rows:,} pictures ({rows * length:,})"
        )
    records = np.fromfile(file, dtype=np.uint8).reshape(rows, length)
    for place, known in enumerate(labels):
        wrong = np.flatnonzero(records[:, place] >= known)
        if len(wrong):
            value, row = records[wrong[0], place], wrong[0]
            what.damaged(
                file, f"label byte {value} in picture {row:,} (byte {row * length + place:,}) is not below {known}"
            )
    return records[:, len(labels) :].reshape(rows, 3, 32, 32), records[:, len(labels) - 1]


CIFAR10 = Published(
    name="cifar10",
    title="photographs 3×32×32",
    base=_BASE,
    downloads=(
        Download(
            "cifar-10-binary.tar.gz",  # MD5 c32a1d4ab5d03f1284b67883e8d87530 on the publisher's page
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    folder="cifar-10-batches-bin",
    files=(*TRAIN, "test_batch.bin", "batches.meta.txt"),
    rows=(50_000, 10_000),
    limit=10_000 * (1 + PIXELS),
    read=partial(_read, listed="batches.meta.txt", files=(TRAIN, ("test_batch.bin",)), labels=(10,)),
)
CIFAR100 = Published(
    name="cifar100",
    title="photographs 3×32×32",
    base=_BASE,
    downloads=(
        Download(
            "cifar-100-binary.tar.gz",  # MD5 03b5dce01913d631647c71ecec9e9cb8 on the publisher's page
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
    ),
    folder="cifar-100-binary",
    files=("train.bin", "test.bin", "fine_label_names.txt"),
    rows=(50_000, 10_000),
    limit=50_000 * (2 + PIXELS),
    read=partial(_read, listed="fine_label_names.txt", files=(("train.bin",), ("test.bin",)), labels=(20, 100)),
)
