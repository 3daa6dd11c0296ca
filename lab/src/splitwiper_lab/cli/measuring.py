"""What the commands that measure have in common: options, and the warning that they do without."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path | None, typer.Option("--data", help="The folder with the data sets.", show_default=False)]
Commit = Annotated[str, typer.Option("--commit", help="Written into the results.")]


@contextmanager
def silence_seed_warning() -> Iterator[None]:
    """Suppress the product's warning about keys that are derived from the seed.

    Experiments derive them on purpose, so that results can be repeated.
    """

    def is_another(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("client.keys = 'seeded'")

    log = logging.getLogger("splitwiper")
    log.addFilter(is_another)
    try:
        yield
    finally:
        log.removeFilter(is_another)
