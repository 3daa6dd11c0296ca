"""A publisher's data set: its files, their addresses and checksums, and instructions for getting them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
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
    """All labels, in their published order."""


@dataclass(frozen=True)
class Download:
    """One file that a publisher offers."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Published:
    """A data set in its published layout.

    Tests set smaller ``rows`` and another ``base``; nothing else is needed to read or fetch a fixture.
    """

    name: str
    title: str
    base: str
    """The base address of the downloads; it ends with a slash."""
    downloads: tuple[Download, ...]
    folder: str
    """The folder of its files, inside the data folder."""
    files: tuple[str, ...]
    """Its files, all of which are required; if `zipped` is set, each may be present as ``.gz`` instead."""
    rows: tuple[int, int]
    """Numbers of training and test rows, as published."""
    limit: int
    """The size of its largest file, in bytes, at most."""
    read: Callable[[Published, Path], DataSet] = field(repr=False)
    loose: bool = False
    """Whether its files may also be in the data folder itself."""
    zipped: bool = False
    unpacked: tuple[Download, ...] = ()
    """Sizes and hashes of the decompressed files, for downloads that are compressed and may be unpacked by hand."""

    @property
    def packed(self) -> bool:
        """Whether the download is an archive that must be unpacked."""
        return self.downloads[0].file.endswith(".tar.gz")

    def path(self, place: Path, file: str) -> Path | None:
        """Return the path of a file in ``place``, plain or compressed; None if it is missing."""
        for path in (place / file, place / f"{file}.gz"):
            if path.is_file() and (self.zipped or path.name == file):
                return path
        return None

    def place(self, root: Path) -> Path:
        """Return the folder that holds its files, or should.

        A data folder with the name of the set's own folder is assumed to be that folder.
        """
        places = [root / self.folder]
        if self.loose or root.name == Path(self.folder).name:
            places.append(root)
        for place in places:
            if any(map(partial(self.path, place), self.files)):
                return place
        return places[0]

    def load(self, root: Path) -> DataSet:
        """Read the set from a data folder.

        Raises:
            NotFoundError: a file is missing; the message says how to get it.
            DataError: a file is truncated or altered.
        """
        place = self.place(root)
        missing = [file for file in self.files if not self.path(place, file)]
        if missing:
            absent = f"{place / missing[0]} is missing" + (f", and {len(missing) - 1} more" if missing[1:] else "")
            raise NotFoundError(f"the data set {self.name!r} is not in {root}: {absent}.\n{self.remedy(root)}")
        return self.read(self, place)

    def remedy(self, root: Path) -> str:
        """Say how to get the files, by command and by hand: one line per step."""
        return f"Run 'splitwiper data fetch {self.name} --data {root}',\nor {self.by_hand(root)}"

    def by_hand(self, root: Path) -> str:
        """Say what to download from where, and where to put it."""
        offers = ""
        for download in self.downloads:
            offers += f"\n  {self.base}{download.file}\n    ({count(download.size)} bytes, SHA-256 {download.sha256})"
        them = "it" if len(self.downloads) == 1 else "them"
        way = f"unpack it in {root}" if self.packed else f"put {them} into {root / self.folder}"
        file = f"{root / self.folder / self.files[0]}{' (or with .gz)' if self.zipped else ''}"
        return f"by hand: download{offers}\nand {way}, so that there is {file}."

    def damaged(self, file: Path, what: str) -> NoReturn:
        """Refuse a file that is not as published."""
        raise DataError(
            f"{file}: {what}. The file is cut short or was altered: fetch it again with "
            f"'splitwiper data fetch {self.name} --data {_root(file.parent, self.folder)}'."
        )

    def names(self, file: Path, expected: int) -> tuple[str, ...]:
        """Read the label names from a text file, one per line."""
        try:
            found = tuple(filter(None, map(str.strip, file.read_text(encoding="utf-8").splitlines())))
        except UnicodeDecodeError as problem:
            self.damaged(file, f"not UTF-8 text ({problem})")
        if len(found) != expected or len(set(found)) != expected:
            self.damaged(file, f"{len(found)} label names, {len(set(found))} of them different, instead of {expected}")
        return found


def _root(place: Path, folder: str) -> Path:
    """Return the data folder that contains ``place``."""
    parts = Path(folder).parts
    return place.parents[len(parts) - 1] if place.parts[-len(parts) :] == parts else place
