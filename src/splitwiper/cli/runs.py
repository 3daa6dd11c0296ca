"""Open a run, or a client's site, for work."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from splitwiper.cli.progress import Bars
from splitwiper.errors import ConfigError

if TYPE_CHECKING:
    from splitwiper.config import Config
    from splitwiper.federation import Federation
    from splitwiper.service.site import Site


def look_here() -> None:
    """Look for the model's code in the current folder too, last."""
    # last, so that a file called like a library does not take its place
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def is_site(folder: Path) -> bool:
    """Return whether a folder is a client's site, and not a run."""
    return (folder / "site.toml").exists()


def open_run(run: Path, bars: Bars, config: Config | None = None) -> Federation:
    """Return the federation in a folder; with a configuration it is created if it is missing.

    The model's code is looked for where Python finds modules, and last in the current folder. Two variables name what
    computes the server's trainings, which no bit depends on: SPLITWIPER_ENGINE and SPLITWIPER_RANKS.
    """
    from splitwiper.engines import make_engine
    from splitwiper.federation import Federation

    look_here()
    ranks = os.environ.get("SPLITWIPER_RANKS", "1")
    if not ranks.isdecimal():
        raise ConfigError(f"SPLITWIPER_RANKS = {ranks!r} is not a number of processes.")
    engine = make_engine(os.environ.get("SPLITWIPER_ENGINE", "local"), int(ranks))
    invitation = os.environ.get("SPLITWIPER_INVITATION")
    try:
        return Federation(run, config=config, progress=bars, invitation=invitation, engine=engine)
    except ConfigError as problem:
        if isinstance(problem.__cause__, ModuleNotFoundError):
            raise ConfigError(
                f"{problem} Run the command in the folder that holds the module, or add that folder to PYTHONPATH."
            ) from problem
        raise


@contextmanager
def open_site(folder: Path, bars: Bars) -> Iterator[Site]:
    """Open a client's site, and close its connection afterwards."""
    from splitwiper.service.site import Site

    look_here()
    site = Site(folder, bars)
    try:
        yield site
    finally:
        site.close()
