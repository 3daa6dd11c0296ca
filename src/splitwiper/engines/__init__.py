"""Engines: what computes the trainings of a server half.

`splitwiper.server.training.Engine` is the interface. ``local`` trains in this process, and ``distributed`` in several,
which share each batch's lanes (see `splitwiper.training.lanes`). Others come from outside the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitwiper import extensions
from splitwiper.engines.distributed import Distributed
from splitwiper.errors import ConfigError
from splitwiper.server.training import Engine, Local

GROUP = "splitwiper.engines"
BUILT_IN = ("local", "distributed")


def make_engine(name: str = "local", ranks: int = 1, settings: Mapping[str, Any] | None = None) -> Engine:
    """Return the engine of this name, or at this import path, that uses up to so many processes.

    Raises:
        ConfigError: there is no such engine, or it does not take these settings.
    """
    if ranks < 1:
        raise ConfigError(f"ranks = {ranks} is out of range: give a number ≥ 1.")
    if name == "local":
        if settings or ranks > 1:
            raise ConfigError("engine = 'local' trains in this process alone, and takes neither ranks nor settings.")
        return Local()
    if name == "distributed":
        name = f"{Distributed.__module__}:{Distributed.__qualname__}"
    engine: Engine = extensions.make(extensions.path_of(GROUP, name), settings or {}, ranks=ranks)
    return engine
