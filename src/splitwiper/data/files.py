"""Readers of users' own data files: ``.npz`` and ``.csv``. Nothing is unpickled."""

from __future__ import annotations

import csv
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError

import numpy as np

from splitwiper.data.labels import INTEGER
from splitwiper.data.tables import Table
from splitwiper.errors import DataError, nearest
from splitwiper.wire.columns import Array

Inputs = Array | Table | dict[str, Array]
_PREFIX = "inputs."  # of the arrays of a model with several inputs


def read_data(path: str | Path, *, label: str | None = None) -> tuple[Inputs, list[str | int]]:
    """Read inputs and labels, as `Federation.learn` takes them.

    An ``.npz`` file holds the arrays ``inputs`` (or several, ``inputs.NAME``) and ``labels``. A ``.csv`` file has a
    header row, numbers, and one column of labels. In both, texts that look like integers become integers.

    Args:
        path: the file.
        label: the column of labels of a ``.csv`` file; by default the last one.

    Raises:
        DataError: the file is missing, empty or malformed; the message names the place and the remedy.
    """
    file = Path(path)
    if _kind(file) == ".csv":
        header, lines = _read_csv(file)
        column = _column(file, header, label) if label is not None else len(header) - 1
        if len(header) < 2:
            raise DataError(f"{file} has only the column {header[0]!r}; give at least one feature and the labels.")
        labels = []
        for number, cells in lines:
            labels.append(_name(f"{file}, line {number}", cells[column]))
        return _table(file, header, lines, labels=column), labels
    if label is not None:
        raise DataError(f"{file}: a label column ({label!r}) is for .csv files; an .npz file names its array 'labels'.")
    with _opened(file) as arrays:
        return _inputs(file, arrays), _labels(file, arrays)


def read_inputs(path: str | Path, *, label: str | None = None) -> Inputs:
    """Read only inputs, as `Federation.predict` takes them: without the labels of an ``.npz`` file, or one column.

    Raises:
        DataError: as for `read_data`.
    """
    file = Path(path)
    if _kind(file) == ".csv":
        header, lines = _read_csv(file)
        return _table(file, header, lines, labels=None if label is None else _column(file, header, label))
    with _opened(file) as arrays:
        return _inputs(file, arrays)


def read_texts(path: str | Path, *, label: str | None = None) -> list[str]:
    """Read one text per row from a ``.csv`` file with a header: its columns, but for one, joined by spaces.

    Raises:
        DataError: as for `read_data`.
    """
    file = Path(path)
    if _kind(file) != ".csv":
        raise DataError(f"{file}: texts are read from a .csv file.")
    header, lines = _read_csv(file)
    if odd := next(filter(_is_number, header), ""):
        raise DataError(f"{file}: the first line holds {odd!r}, not a name; give the columns names.")
    left_out = None if label is None else _column(file, header, label)
    kept = [index for index in range(len(header)) if index != left_out]
    for index in kept:
        if all(_is_number(cells[index]) for _, cells in lines):
            raise DataError(
                f"{file}: column {header[index]!r} holds numbers, not texts; leave it out (label={header[index]!r})."
            )
    texts = []
    for _, cells in lines:
        texts.append(" ".join(cells[index] for index in kept))
    return texts


def _kind(file: Path) -> str:
    suffix = file.suffix.lower()
    if suffix not in (".npz", ".csv"):
        raise DataError(f"{file}: data files end in .npz or .csv, not in {suffix!r}.")
    if not file.exists():
        beside = [other.name for other in file.parent.glob("*")]
        raise DataError(f"there is no data file {file}.{nearest(file.name, beside) or ' Check the path.'}")
    if not file.is_file():
        raise DataError(f"{file} is not a file; give an .npz or .csv file.")
    if file.stat().st_size == 0:
        raise DataError(f"{file} is empty; leave the client out until it has rows.")
    return suffix


# --- .npz ----------------------------------------------------------------------------------------------------


# Errors of NumPy and the archive reader for files that are encrypted, truncated or altered.
_BROKEN = (EOFError, MemoryError, NotImplementedError, OSError, RuntimeError, SyntaxError, ValueError)


@contextmanager
def _opened(file: Path) -> Iterator[np.lib.npyio.NpzFile]:
    try:
        with zipfile.ZipFile(file):  # anything but an archive must not reach np.load, which would try other formats
            pass
        with np.load(file, allow_pickle=False) as arrays:
            yield arrays
    except DataError:
        raise
    except (*_BROKEN, zipfile.BadZipFile, zlib.error, TokenError) as problem:
        raise DataError(f"{file} is not a whole .npz file ({problem}); write it with numpy.savez.") from problem


def _array(file: Path, arrays: np.lib.npyio.NpzFile, name: str) -> Array:
    try:
        array = arrays[name]
    except ValueError as problem:
        if "pickle" not in str(problem).lower():
            raise DataError(f"{file}: array {name!r} cannot be read ({problem}).") from problem
        how = "astype(str) or astype(int)" if name == "labels" else "astype('float32')"
        raise DataError(
            f"{file}: array {name!r} holds Python objects, which are never unpickled; save it as {name}.{how}."
        ) from problem
    if not isinstance(array, np.ndarray):
        raise DataError(f"{file}: {name!r} is not an array; write the file with numpy.savez.")
    if array.ndim == 0:
        raise DataError(f"{file}: array {name!r} has no row dimension; dimension 0 counts rows.")
    return array


def _inputs(file: Path, arrays: np.lib.npyio.NpzFile) -> Inputs:
    several = [name for name in arrays.files if name.startswith(_PREFIX) and name != _PREFIX]
    if "inputs" in arrays.files and several:
        raise DataError(f"{file} has both 'inputs' and {several[0]!r}; give one array, or several named 'inputs.NAME'.")
    if several:
        return {name.removeprefix(_PREFIX): _array(file, arrays, name) for name in several}
    return _array(file, arrays, _named(file, arrays, "inputs"))


def _labels(file: Path, arrays: np.lib.npyio.NpzFile) -> list[str | int]:
    array = _array(file, arrays, _named(file, arrays, "labels"))
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise DataError(
            f"{file}: labels have shape {list(array.shape)} and dtype {array.dtype}; give one integer or text a row."
        )
    labels: list[str | int] = array.tolist()
    if array.dtype.kind == "U":  # as in a .csv file, so that the same rows are equal there
        for number, text in enumerate(array.tolist()):
            labels[number] = _name(f"{file}, row {number}", text.strip())
    return labels


def _named(file: Path, arrays: np.lib.npyio.NpzFile, name: str) -> str:
    if name not in arrays.files:
        there = ", ".join(map(repr, arrays.files)) or "nothing"
        raise DataError(f"{file} has no array {name!r}; it has {there}. Write it with numpy.savez(…, {name}=…).")
    return name


# --- .csv ----------------------------------------------------------------------------------------------------

Lines = Sequence[tuple[int, list[str]]]
"""The number of each line in the file, and its cells."""


def _read_csv(file: Path) -> tuple[list[str], Lines]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, strict=True)
            lines = []
            for cells in reader:
                if cells:
                    lines.append((reader.line_num, list(map(str.strip, cells))))  # a row may span several lines
    except UnicodeDecodeError as problem:
        raise DataError(f"{file} is not UTF-8 text ({problem}); save it as UTF-8.") from problem
    except csv.Error as problem:
        raise DataError(f"{file}, line {reader.line_num}: {problem}. Check the quotation marks.") from problem
    if len(lines) < 2:
        raise DataError(f"{file} has no rows below its header; leave the client out until it has some.")
    header = lines[0][1]
    if len(header) == 1 and re.search(r"[;\t]", header[0]):
        raise DataError(f"{file}: the columns are separated by something else than commas; save it with commas.")
    name, times = Counter(header).most_common(1)[0]
    if times > 1:
        raise DataError(f"{file}: two columns are called {name!r}; give each its own name.")
    for number, cells in lines[1:]:
        if len(cells) != len(header):
            raise DataError(
                f"{file}, line {number}: {len(cells)} cells, the header has {len(header)}; make them equal."
            )
    return header, lines[1:]


def _column(file: Path, header: Sequence[str], name: str) -> int:
    if name not in header:
        hint = nearest(name, header) or f" Its columns are {', '.join(header)}."
        raise DataError(f"{file} has no column {name!r}.{hint}")
    return header.index(name)


def _table(file: Path, header: Sequence[str], lines: Lines, *, labels: int | None) -> Table:
    names = tuple(name for index, name in enumerate(header) if index != labels)
    if all(map(_is_number, header)) or (all(map(_is_number, names)) and not _are_counted(names)):
        shown = ", ".join(names[:3]) + ("…" if len(names) > 3 else "")
        raise DataError(
            f"{file}: the first line holds numbers ({shown}), not names; add a line that names the columns."
        )
    return Table(names, _numbers(file, header, lines, labels=labels))


def _are_counted(names: Sequence[str]) -> bool:
    """Return whether names are consecutive whole numbers: programs name columns like that; a row hardly looks so."""
    if len(names) < 2 or not all(map(INTEGER.fullmatch, names)):
        return False
    first = int(names[0])
    return list(map(int, names)) == list(range(first, first + len(names)))


def _numbers(file: Path, header: Sequence[str], lines: Lines, *, labels: int | None) -> Array:
    rows = []
    for _, cells in lines:
        rows.append([cell for index, cell in enumerate(cells) if index != labels])
    try:
        return np.array(rows, dtype=np.str_).astype(np.float32)
    except ValueError:
        for number, cells in lines:  # which cell is it?
            for index, (name, cell) in enumerate(zip(header, cells, strict=True)):
                if index != labels and not _is_number(cell):
                    raise DataError(_no_number(f"{file}, line {number}", name, cell, header, labels)) from None
        raise


def _no_number(where: str, column: str, cell: str, header: Sequence[str], labels: int | None) -> str:
    fault = f"{cell!r} is not a number" if cell else "the cell is empty"
    if labels is None:
        remedy = f"leave the column out (label={column!r})"
    else:
        remedy = f"take the column away (labels are read from {header[labels]!r})"
    return f"{where}, column {column!r}: {fault}; write a number, drop the row, or {remedy}."


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _name(where: str, text: str) -> str | int:
    if not text:
        raise DataError(f"{where}: the label is empty; write one, or drop the row.")
    return int(text) if len(text) < 20 and INTEGER.fullmatch(text) else text
