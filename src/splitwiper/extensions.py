"""Additions by other packages, found by entry points or by import path.

========================  =========================================================================================
``splitwiper.commands``   a function that becomes a command, or a `typer.Typer` that becomes a group of commands
``splitwiper.tables``     how a table of a configuration file becomes settings and data; see `splitwiper.cli.settings`
``splitwiper.codecs``     a `splitwiper.wire.codecs.Codec`
``splitwiper.modes``      a `splitwiper.masking.modes.Mode`
``splitwiper.losses``     a `splitwiper.training.parts.Loss`
``splitwiper.optimizers`` a subclass of `torch.optim.Optimizer`
``splitwiper.schedules``  a `splitwiper.training.parts.Schedule`
``splitwiper.blobs``      a `splitwiper.store.blobs.BlobStore`
``splitwiper.engines``    a `splitwiper.server.training.Engine`
========================  =========================================================================================

The last seven are *parts*. Settings name a part by its entry point's name, or as ``package.module:name``, which needs
no packaging. All but blob stores and engines take part in a computation that must be repeatable bit for bit. So part of
what exactness is relative to is an `Origin`: the import path, the distribution's version, the keyword settings and a
digest of the code.

A part is imported and called, so its name must come from whoever runs the program: from their settings or their own
store, and never from a file or an answer that another party sent.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from splitwiper.errors import ConfigError, nearest
from splitwiper.formats import canonical_json

COMMANDS = "splitwiper.commands"
TABLES = "splitwiper.tables"
LABORATORY = "splitwiper-lab"
"""The distribution with the data sets, baselines, attacks and experiments."""
OF_LABORATORY = ("attack", "compare", "data", "reproduce", "results", "tradeoff")
"""Its commands: if it is not installed, they are refused with instructions to install it."""


def extensions(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group, by name."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def how_to_get(what: str) -> str:
    """Return a sentence on how to install the laboratory."""
    return f"{what} comes with the laboratory: pip install {LABORATORY}."


@dataclass(frozen=True)
class Origin:
    """Where a part comes from, and what it computes: whatever else has the same origin computes the same.

    Attributes:
        path: its import path, ``package.module:name``.
        settings: what it is called with, by keyword.
        version: the distribution that it comes from, with its version; empty for code that is not installed.
        digest: a digest of its code and everything that it refers to (see `splitwiper.splitting.identity`).
    """

    path: str
    settings: Mapping[str, Any]
    version: str
    digest: str

    def __str__(self) -> str:
        return f"{self.path} {canonical_json(self.settings)} {self.digest} {self.version}".rstrip()


def path_of(group: str, name: str) -> str:
    """Return the import path that a name stands for: an entry point's, or the name itself if it is one."""
    if ":" in name:
        return name
    known = extensions(group)
    if name not in known:
        raise ConfigError(
            f"{name!r} is neither built in nor an entry point of {group!r}.{nearest(name, known)} Install the package "
            "that has it, or give an import path, as in 'package.module:name'."
        )
    return known[name].value.partition("[")[0].strip()


def load(path: str) -> Any:
    """Import the class or function that a path names."""
    module, _, name = path.partition(":")
    try:
        part = pkgutil.resolve_name(f"{importlib.import_module(module).__name__}:{name}")
    except (ImportError, AttributeError, ValueError) as problem:
        raise ConfigError(
            f"{path!r} cannot be imported ({problem}). Install its package, or put the file's folder on PYTHONPATH."
        ) from problem
    if not callable(part):
        raise ConfigError(f"{path!r} is neither a class nor a function; name one.")
    return part


def origin(path: str, settings: Mapping[str, Any]) -> Origin:
    """Return the origin of what a path names, as it is now."""
    # imported here, since most programs use no part from outside and start faster without
    from splitwiper.splitting.code import library_of
    from splitwiper.splitting.identity import code_identity

    part = load(path)
    return Origin(path, dict(settings), library_of(part.__module__ or ""), code_identity(part))


def make(path: str, settings: Mapping[str, Any], **given: Any) -> Any:
    """Return a part: an object of the class, or the function with its settings filled in.

    ``given`` are further keywords, which no message repeats.
    """
    part = load(path)
    try:
        if isinstance(part, type):
            return part(**given, **settings)
        inspect.signature(part).bind_partial(**given, **settings)  # `partial` itself would only fail when called
        return partial(part, **given, **settings)
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"{path!r} does not take the settings {dict(settings)}: {problem}.") from problem


def check_settings_of(path: str, settings: Mapping[str, Any], *given: str) -> None:
    """Refuse a part that cannot be called with its settings, without calling it.

    ``given`` are the names of further keywords that it is called with.

    Raises:
        ConfigError: it cannot be imported, or does not take these settings.
    """
    try:
        inspect.signature(load(path)).bind(**dict.fromkeys(given), **settings)
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"{path!r} does not take the settings {dict(settings)}: {problem}.") from problem


def recall(recorded: str) -> Any:
    """Return the part that the text of an origin describes; the text must come from this party's own records.

    Raises:
        ConfigError: it cannot be imported, or computes something else than what was recorded.
    """
    path, _, rest = recorded.partition(" ")
    # the settings are JSON, which may contain spaces; `raw_decode` ends where they do
    try:
        settings, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError as problem:
        raise ConfigError(f"{recorded!r} is not a record of a part from outside.") from problem
    now = str(origin(path, settings))
    if now != recorded:
        raise ConfigError(
            f"{path} is not what this was made with: its code, its version or what it refers to has changed.\n"
            f"  then: {recorded}\n  now:  {now}\nInstall the version it was made with."
        )
    return make(path, settings)
