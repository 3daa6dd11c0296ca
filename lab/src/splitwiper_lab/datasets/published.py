"""What a publisher offers: which files, from where, with which checksums, and what to do if they are not here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from splitwiper.errors import DataError, NotFoundError
from splitwiper.formats import count
from splitwiper.wire.columns import Array

Part = tuple[Any, Array]
"""Inputs and labels, row by row."""


@dataclass(frozen=True)
class DataSet:
    """A data set, read and checked.

    Images are ``uint8`` arrays of shape rows × channels × height × width, texts a list of strings, tables ``float32``
    arrays. Labels are a NumPy array of names, or of integers where the labels are digits.
    """

    name: str
    train: Part = field(repr=False)
    test: Part = field(repr=False)
    labels: tuple[str | int, ...]
    """All labels, in the order they were published in."""


@dataclass(frozen=True)
class Download:
    """One file a publisher offers."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Published:
    """A data set in its published layout.

    Tests give smaller ``rows`` and another ``base``; nothing else is needed to read or to fetch a fixture.
    """

    name: str
    title: str
    base: str
    """Where the downloads are; ends with a slash."""
    downloads: tuple[Download, ...]
    folder: str
    """The folder its files lie in, below the data folder."""
    files: tuple[str, ...]
    """All of them must be there; any may also be there as ``.gz`` if the set is published so."""
    rows: tuple[int, int]
    """Rows for training and for tests, as published."""
    limit: int
    """No file that belongs to it is larger, in bytes."""
    read: Callable[[Published, Path], DataSet] = field(repr=False)
    loose: bool = False
    """Its files are also found in the data folder itself."""
    zipped: bool = False
    unpacked: tuple[Download, ...] = ()
    """Sizes and hashes of the files themselves, where their downloads are compressed and somebody may unpack them."""

    @property
    def packed(self) -> bool:
        """The download is an archive that has to be unpacked."""
        return self.downloads[0].file.endswith(".tar.gz")

    def path(self, place: Path, file: str) -> Path | None:
        """The file in ``place``, plain or compressed; None if it is not there."""
        names = (file, f"{file}.gz") if self.zipped else (file,)
        return next((place / name for name in names if (place / name).is_file()), None)

    def place(self, root: Path) -> Path:
        """The folder that holds its files, or should.

        A data folder that is named as the set's own folder is taken to be it.
        """
        places = [root / self.folder]
        if self.loose or root.name == Path(self.folder).name:
            places.append(root)
        return next((p for p in places if any(self.path(p, file) for file in self.files)), places[0])

    def load(self, root: Path) -> DataSet:
        """Read it from a data folder.

        Raises:
            NotFoundError: a file is not there; the message says how to get it.
            DataError: a file is cut short or altered.
        """
        place = self.place(root)
        missing = [file for file in self.files if not self.path(place, file)]
        if missing:
            what = f"{place / missing[0]} is missing" + (f", and {len(missing) - 1} more" if missing[1:] else "")
            raise NotFoundError(f"the data set {self.name!r} is not in {root}: {what}.\n{self.remedy(root)}")
        return self.read(self, place)

    def remedy(self, root: Path) -> str:
        """How to get the files, by command and by hand: a line for each step."""
        return f"Run 'splitwiper data fetch {self.name} --data {root}',\nor {self.by_hand(root)}"

    def by_hand(self, root: Path) -> str:
        """What to download from where, and where to put it."""
        offers = "".join(
            f"\n  {self.base}{d.file}\n    ({count(d.size)} bytes, SHA-256 {d.sha256})" for d in self.downloads
        )
        way = f"unpack it in {root}" if self.packed else f"put {_them(self.downloads)} into {root / self.folder}"
        seen = root / self.folder / self.files[0]
        return (
            f"by hand: download{offers}\nand {way}, so that there is {seen}{' (or with .gz)' if self.zipped else ''}."
        )

    def damaged(self, file: Path, what: str) -> NoReturn:
        """Refuse a file that is not as published."""
        raise DataError(
            f"{file}: {what}. The file is cut short or was altered: fetch it again with "
            f"'splitwiper data fetch {self.name} --data {_root(file.parent, self.folder)}'."
        )

    def names(self, file: Path, expected: int) -> tuple[str, ...]:
        """The label names in a text file, one a line."""
        try:
            found = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
        except UnicodeDecodeError as problem:
            self.damaged(file, f"not UTF-8 text ({problem})")
        if len(found) != expected or len(set(found)) != expected:
            self.damaged(file, f"{len(found)} label names, {len(set(found))} of them different, instead of {expected}")
        return found


def _them(downloads: tuple[Download, ...]) -> str:
    return "it" if len(downloads) == 1 else "them"


def _root(place: Path, folder: str) -> Path:
    """The data folder that ``place`` lies in."""
    parts = Path(folder).parts
    return place.parents[len(parts) - 1] if place.parts[-len(parts) :] == parts else place
