"""Open a run for work."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from splitwiper.cli.progress import Bars
from splitwiper.errors import ConfigError

if TYPE_CHECKING:
    from splitwiper.config import Config
    from splitwiper.federation import Federation


def look_here() -> None:
    """Look for the model's code in the current folder too, last."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def open_run(run: Path, bars: Bars, config: Config | None = None) -> Federation:
    """Return the federation in a folder; with a configuration it is created if it is missing.

    The model's code is looked for where Python finds modules, and last in the current folder.
    """
    from splitwiper.federation import Federation

    look_here()
    try:
        return Federation(run, config=config, progress=bars, invitation=os.environ.get("SPLITWIPER_INVITATION"))
    except ConfigError as problem:
        if isinstance(problem.__cause__, ModuleNotFoundError):
            raise ConfigError(
                f"{problem} Run the command in the folder that holds the module, or add that folder to PYTHONPATH."
            ) from problem
        raise
