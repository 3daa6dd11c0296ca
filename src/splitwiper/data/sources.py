"""Known data sets by name: where they are looked for, and how they are loaded."""

from __future__ import annotations

import os
from pathlib import Path

from splitwiper.data.ag_news import AG_NEWS
from splitwiper.data.bundled import TITLES, table
from splitwiper.data.cifar import CIFAR10, CIFAR100
from splitwiper.data.mnist import MNIST
from splitwiper.data.published import Array, DataSet, Published
from splitwiper.errors import NotFoundError, nearest

__all__ = ["NAMES", "PUBLISHED", "Array", "DataSet", "data_folder", "known", "load"]

VARIABLE = "SPLITWIPER_DATA"
"""The environment variable that names the data folder."""
PUBLISHED: dict[str, Published] = {what.name: what for what in (CIFAR10, CIFAR100, MNIST, AG_NEWS)}
"""Sets that lie in a data folder."""
NAMES: tuple[str, ...] = (*PUBLISHED, *TITLES)


def data_folder(folder: str | Path | None = None) -> Path:
    """Where data sets lie: the argument, else ``SPLITWIPER_DATA``, else ``splitwiper/data`` in the user's cache."""
    given = folder or os.environ.get(VARIABLE)
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "splitwiper" / "data"


def known(name: str) -> str:
    """The name, if there is such a set.

    Raises:
        NotFoundError: there is none; the message names the nearest.
    """
    if name not in NAMES:
        hint = nearest(name, NAMES) or f" Known are {', '.join(NAMES)}."
        raise NotFoundError(f"there is no data set {name!r}.{hint}")
    return name


def load(name: str, *, folder: str | Path | None = None, download: bool = False) -> DataSet:
    """A data set by name, read from its published files and checked.

    Args:
        name: one of `NAMES`.
        folder: the data folder, see `data_folder`.
        download: fetch the set from its publisher if it is not there.

    Raises:
        NotFoundError: no such set, or its files are not there; the message says which, from where, and where to.
        DataError: a file is cut short or altered; the message names the file, the place and the remedy.
    """
    if known(name) in TITLES:
        return table(name)
    from splitwiper.data.checksums import check_sizes

    what, root = PUBLISHED[name], data_folder(folder)
    check_sizes(what, root)
    try:
        return what.load(root)
    except NotFoundError:
        if not download:
            raise
    from splitwiper.data.fetch import fetch

    fetch(what, folder=root)
    return what.load(root)
