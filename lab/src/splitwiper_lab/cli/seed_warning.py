"""Seeded keys are intentional here: experiments derive them from the seed, so that results can be repeated."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silence_seed_warning() -> Iterator[None]:
    """Suppress the product's warning about keys that are derived from the seed."""

    def about_others(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("client.keys = 'seeded'")

    log = logging.getLogger("splitwiper")
    log.addFilter(about_others)
    try:
        yield
    finally:
        log.removeFilter(about_others)
