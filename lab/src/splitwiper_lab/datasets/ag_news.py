"""AG-News: news in four classes, as comma-separated text."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from splitwiper.data.text import tidy
from splitwiper.wire.columns import Array
from splitwiper_lab.datasets.published import DataSet, Download, Published

CLASSES = ("World", "Sports", "Business", "Sci/Tech")
"""Class names as published; ``classes.txt``, if present, has the same."""


def read(what: Published, place: Path) -> DataSet:
    """Read texts (title and description) and class names. Fewer rows than published are accepted as a subset."""
    listed = place / "classes.txt"
    names = what.names(listed, len(CLASSES)) if listed.is_file() else CLASSES
    train = _texts(what, place / "train.csv", names=names, most=what.rows[0])
    test = _texts(what, place / "test.csv", names=names, most=what.rows[1])
    return DataSet(what.name, train, test, names)


def _texts(what: Published, file: Path, *, names: tuple[str, ...], most: int) -> tuple[list[str], Array]:
    texts: list[str] = []
    codes: list[int] = []
    numbers = list(map(str, range(1, len(names) + 1)))  # classes are counted from 1 in the files
    line = 0
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            for cells in reader:
                line = reader.line_num
                if len(cells) != 3:
                    what.damaged(file, f"line {line:,} has {len(cells)} cells instead of class, title and description")
                if cells[0] not in numbers:
                    what.damaged(file, f"line {line:,}: class {cells[0][:40]!r} is not one of 1 to {len(names)}")
                codes.append(numbers.index(cells[0]))
                texts.append(tidy(f"{cells[1]} {cells[2]}"))
    except UnicodeDecodeError as problem:
        what.damaged(file, f"not UTF-8 text after line {line:,} ({problem})")
    except csv.Error as problem:
        what.damaged(file, f"after line {line:,}: {problem}")
    if not texts:
        what.damaged(file, "it has no rows")
    if len(texts) > most:
        what.damaged(file, f"{len(texts):,} rows, more than the {most:,} published")
    return texts, np.array(names)[codes]


AG_NEWS = Published(
    name="ag_news",
    title="news in English",
    base="https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/",
    downloads=(
        Download("train.csv", 29_470_338, "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e"),
        Download("test.csv", 1_857_427, "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699"),
    ),
    folder="ag_news_csv",
    files=("train.csv", "test.csv"),
    rows=(120_000, 7_600),
    limit=30_000_000,
    read=read,
)
