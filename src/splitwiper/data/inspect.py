"""Look at what is in a data folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splitwiper.data import checksums
from splitwiper.data.bundled import TITLES
from splitwiper.data.sources import PUBLISHED, data_folder, known, load
from splitwiper.errors import DataError, NotFoundError, SplitWiperError


@dataclass(frozen=True)
class Found:
    """One data set, as it is here."""

    name: str
    title: str
    state: str
    """``bundled``, ``present``, ``missing``, ``incomplete`` or ``damaged``."""
    train: int = 0
    test: int = 0
    labels: int = 0
    files: dict[str, str] = field(default_factory=dict)
    """What each file's hash was found to equal: ``fetched``, ``published`` or ``unknown``. Filled in by a check."""
    problem: SplitWiperError | None = None


def inspect(name: str, *, folder: str | Path | None = None, hashes: bool = False) -> Found:
    """Read a data set and say what was found.

    Args:
        name: one of `NAMES`.
        folder: the data folder.
        hashes: compare the files' hashes too, with those recorded when they were fetched, or published.

    Raises:
        NotFoundError: there is no data set of that name.
    """
    bundled = known(name) in TITLES
    title = TITLES[name] if bundled else PUBLISHED[name].title
    files: dict[str, str] = {}
    try:
        if hashes and not bundled:
            files = checksums.check(PUBLISHED[name], data_folder(folder))
        data = load(name, folder=folder)
    except DataError as problem:
        return Found(name, title, "damaged", files=files, problem=problem)
    except NotFoundError as problem:
        what, root = PUBLISHED[name], data_folder(folder)
        some = any(what.path(what.place(root), file) for file in what.files)
        return Found(name, title, "incomplete" if some else "missing", files=files, problem=problem)
    return Found(
        name,
        title,
        "bundled" if bundled else "present",
        train=len(data.train[1]),
        test=len(data.test[1]),
        labels=len(data.labels),
        files=files,
    )
