"""Known data sets by name: find, load and inspect them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from splitwiper.errors import ConfigError, DataError, NotFoundError, SplitWiperError, StoreError, nearest
from splitwiper.formats import count
from splitwiper_lab.datasets.ag_news import AG_NEWS
from splitwiper_lab.datasets.bundled import TITLES, table
from splitwiper_lab.datasets.checksums import check, check_sizes
from splitwiper_lab.datasets.cifar import CIFAR10, CIFAR100
from splitwiper_lab.datasets.mnist import MNIST
from splitwiper_lab.datasets.published import DataSet, Published

VARIABLE = "SPLITWIPER_DATA"
"""The environment variable that names the data folder."""
PUBLISHED: dict[str, Published] = {what.name: what for what in (CIFAR10, CIFAR100, MNIST, AG_NEWS)}
"""Sets that are read from a data folder."""
NAMES: tuple[str, ...] = (*PUBLISHED, *TITLES)


def data_folder(folder: str | Path | None = None) -> Path:
    """Return the data folder: the argument, or ``SPLITWIPER_DATA``, or ``splitwiper/data`` in the user's cache.

    Raises:
        ConfigError: the path starts with ``~``, and the user has no home directory.
    """
    given = Path(folder or os.environ.get(VARIABLE) or os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        expanded = given.expanduser()
    except RuntimeError as problem:
        raise ConfigError(
            f"the data folder {given} has no place here ({problem}); give a whole path with --data or {VARIABLE}."
        ) from problem
    return expanded if folder or os.environ.get(VARIABLE) else expanded / "splitwiper" / "data"


def known(name: str) -> str:
    """Return the exact name of a data set, ignoring hyphens and underscores.

    >>> known("ag-news"), known("cifar-10")
    ('ag_news', 'cifar10')

    Raises:
        NotFoundError: there is no such set; the message names the nearest.
    """
    if name not in NAMES:
        for candidate in NAMES:
            if candidate.replace("_", "") == name.replace("-", "").replace("_", ""):
                return candidate
        hint = nearest(name, NAMES) or f" Known are {', '.join(NAMES)}."
        raise NotFoundError(f"there is no data set {name!r}.{hint}")
    return name


def load(name: str, *, folder: str | Path | None = None, download: bool = False) -> DataSet:
    """Load one of `NAMES` from its published files in a data folder, and check it.

    With ``download``, the set is fetched from its publisher if it is missing.

    Raises:
        NotFoundError: no such set, or its files are missing; the message says what to download, and where to put it.
        DataError: a file is truncated or altered; the message names the file, the position and the remedy.
    """
    name = known(name)
    if name in TITLES:
        return table(name)
    what, root = PUBLISHED[name], data_folder(folder)
    check_sizes(what, root)
    try:
        return what.load(root)
    except NotFoundError:
        if not download:
            raise
    from splitwiper_lab.datasets.fetch import fetch

    fetch(what, folder=root)
    return what.load(root)


@dataclass(frozen=True)
class Found:
    """The state of one data set on this machine."""

    name: str
    title: str
    state: str
    """``bundled``, ``present``, ``part``, ``missing``, ``incomplete``, ``damaged`` or ``unreadable``."""
    train: int = 0
    test: int = 0
    labels: int = 0
    files: dict[str, str] = field(default_factory=dict)
    """The status of each file, see `checksums.check`; only if hashes were compared."""
    note: str = ""
    """A remark on a usable set: that it is only a part."""
    problem: SplitWiperError | None = None


def inspect(name: str, *, folder: str | Path | None = None, hashes: bool = False) -> Found:
    """Read one of `NAMES` and report its state.

    With ``hashes``, also compare the files' hashes with those recorded when they were fetched, or published.

    Raises:
        NotFoundError: there is no data set of that name.
    """
    name = known(name)
    title = TITLES.get(name) or PUBLISHED[name].title
    files: dict[str, str] = {}
    try:
        if hashes and name in PUBLISHED:
            files = check(PUBLISHED[name], data_folder(folder))
        data = load(name, folder=folder)
    except DataError as problem:
        return Found(name, title, "damaged", files=files, problem=problem)
    except NotFoundError as problem:
        what, root = PUBLISHED[name], data_folder(folder)
        some = any(what.path(what.place(root), file) for file in what.files)
        return Found(name, title, "incomplete" if some else "missing", files=files, problem=problem)
    except OSError as problem:
        refused = StoreError(f"{problem.filename or name}: {problem.strerror or problem}. Check your rights to it.")
        return Found(name, title, "unreadable", files=files, problem=refused)
    rows, note = (len(data.train[1]), len(data.test[1])), _part(name, data)
    state = "bundled" if name in TITLES else "part" if note else "present"
    return Found(name, title, state, *rows, labels=len(data.labels), files=files, note=note)


def _part(name: str, data: DataSet) -> str:
    """Say how many rows are missing from the published set; empty if none are."""
    if name in TITLES:
        return ""
    fewer = []
    train, test = PUBLISHED[name].rows
    for part, here, published in (("training", data.train, train), ("test", data.test, test)):
        if len(here[1]) < published:
            fewer.append(f"{count(len(here[1]))} of {count(published)} {part} rows")
    return f"{' and '.join(fewer)}: a part, not the whole published set." if fewer else ""
