"""Checks of settings, and reading and writing them as TOML."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from splitwiper import extensions
from splitwiper.errors import ConfigError, check_keys, nearest
from splitwiper.extensions import Origin
from splitwiper.reading import read_bytes
from splitwiper.seeding import digest

_T = TypeVar("_T")
_known_hints: dict[Any, dict[str, Any]] = {}
# Metadata of a setting that changes nothing at its default: digests then leave it out, so that records made before the
# setting existed keep their digests.
ADDED_LATER = {"added_later": True}
# Ends the name of the setting with a part's own settings: those of ``loss`` are in ``loss_args``.
ARGS = "_args"


def part(group: str, built_in: tuple[str, ...], *, added_later: bool = False) -> Any:
    """Return the field of a setting that names a part: the first of those built in, unless one is chosen."""
    metadata = {"group": group, "built_in": built_in, "added_later": added_later}
    return dataclasses.field(default=built_in[0], metadata=metadata)


def part_args() -> Any:
    """Return the field of the setting with a part's own settings."""
    return dataclasses.field(default_factory=dict, hash=False, metadata=ADDED_LATER)


def choice(owner: object, name: str, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not one of ``allowed``."""
    value = getattr(owner, name)
    if value not in allowed:
        hint = nearest(str(value), allowed)
        raise ConfigError(f"{name} = {value!r} is not one of {', '.join(allowed)}.{hint}")


def check_parts(owner: Any) -> None:
    """Refuse a part that is neither built in nor named in one of the two ways that `splitwiper.extensions` explains.

    Nothing is imported: an auditor reads settings that another party wrote.
    """
    for f in dataclasses.fields(owner):
        if "group" not in f.metadata:
            continue
        name, value, built_in = f.name, getattr(owner, f.name), f.metadata["built_in"]
        args = plain(getattr(owner, name + ARGS), name + ARGS)
        object.__setattr__(owner, name + ARGS, args)  # as it comes back from TOML
        if value in built_in:
            if args:
                raise ConfigError(f"{name}{ARGS} is not for {name} = {value!r}; leave it out.")
            continue
        module, colon, leaf = value.partition(":")
        if colon and all(word.isidentifier() for word in (*module.split("."), *leaf.split("."))):
            continue
        known = (*built_in, *extensions.extensions(f.metadata["group"]))
        if colon or value not in known:
            raise ConfigError(
                f"{name} = {value!r} is not one of {', '.join(known)}.{nearest(value, known)} A part of your own is "
                "given as 'package.module:name'."
            )


def part_path(owner: Any, name: str) -> str:
    """Return the import path of the part that a setting names; empty for one that is built in."""
    value = getattr(owner, name)
    metadata = next(f.metadata for f in dataclasses.fields(owner) if f.name == name)
    return "" if value in metadata["built_in"] else extensions.path_of(metadata["group"], value)


def outside_paths(settings: Any, *, within: str = "") -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return the parts from outside that settings name: by setting, the import path and the part's own settings."""
    paths: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if dataclasses.is_dataclass(value):
            paths |= outside_paths(value, within=f"{within}{f.name}.")
        elif "group" in f.metadata and (path := part_path(settings, f.name)):
            paths[within + f.name] = path, getattr(settings, f.name + ARGS)
    return paths


def origins(settings: Any) -> dict[str, Origin]:
    """Return where the parts from outside that settings name come from, and what they compute now.

    Raises:
        ConfigError: one cannot be imported.
    """
    return {name: extensions.origin(path, args) for name, (path, args) in outside_paths(settings).items()}


def bounded(owner: object, name: str, low: float, *, strict: bool = False, high: float = math.inf) -> None:
    """Refuse a number that is out of range or not finite."""
    value = getattr(owner, name)
    if not math.isfinite(value) or value < low or (strict and value == low) or value > high:
        limit = f"{'>' if strict else '≥'} {low:g}" + (f" and ≤ {high:g}" if high < math.inf else "")
        raise ConfigError(f"{name} = {value!r} is out of range: give a number {limit}.")


def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a settings class's fields; evaluating them takes longer than everything else here."""
    if kind not in _known_hints:
        _known_hints[kind] = get_type_hints(kind)
    return _known_hints[kind]


def typed(settings: Any) -> None:
    """Check every field's type, and convert values to the form in which TOML returns them."""
    hints = _hints(type(settings))
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if not dataclasses.is_dataclass(hints[f.name]):
            object.__setattr__(settings, f.name, _coerce(hints[f.name], value, f.name))
        elif not isinstance(value, hints[f.name]):
            raise ConfigError(f"{f.name} must be a {hints[f.name].__name__}, not {value!r}.")


def plain(value: Any, where: str) -> Any:
    """Return a value in the form in which TOML returns it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, where) for item in value]
    # TOML has infinity and NaN, but settings are compared, and NaN is not even equal to itself
    if not isinstance(value, str | int | float | bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{where} = {value!r} cannot be written to a configuration file; leave it out or use text.")
    return value


def from_dict(kind: type[_T], values: Mapping[str, Any], *, where: str = "") -> _T:
    """Build a settings dataclass from plain values; unknown keys and wrong types are errors.

    Raises:
        ConfigError: a value is wrong; the message names the key and, for an unknown one, the nearest valid key.
    """
    hints = _hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    built: dict[str, Any] = {}
    for key, value in values.items():
        check_keys([key], names, where=where)
        built[key] = _coerce(hints[key], value, where + key)
    # said here, because the error of a dataclass does not name the table
    for f in dataclasses.fields(kind):  # type: ignore[arg-type]
        if f.name not in built and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{where}{f.name} is missing.")
    return kind(**built)


def _coerce(kind: Any, value: Any, where: str) -> Any:
    """Return a value in the type that a field has, or refuse it.

    Only what TOML cannot express is converted: a table to a dataclass, a list to a tuple, a whole number to a float.
    Anything else must have the very type, so that True is not taken for 1, or 1.0 for 1.
    """
    if dataclasses.is_dataclass(kind):
        if isinstance(value, kind):  # type: ignore[arg-type]
            return value
        return from_dict(kind, table_in(value, where), where=f"{where}.")  # type: ignore[arg-type]
    origin = get_origin(kind)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} must be a list, not {value!r}.")
        return tuple(_coerce(get_args(kind)[0], item, where) for item in value)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), value, where)
    if origin is not None:  # Mapping[str, Any]
        return dict(table_in(value, where))
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ConfigError(f"{where} must be {kind.__name__}, not {value!r}.")
    return value


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Return a value of a field that takes several types: plain ones, and at most one kind of list."""
    lists = [kind for kind in kinds if get_origin(kind) is tuple]
    if lists and isinstance(value, list | tuple):
        return _coerce(lists[0], value, where)
    if type(value) not in kinds:
        names = ["a list" if kind in lists else kind.__name__ for kind in kinds]
        raise ConfigError(f"{where} must be {' or '.join(names)}, not {value!r}.")
    return value


def table_in(value: Any, where: str) -> Mapping[str, Any]:
    """Return a value that must be a table.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table, not {value!r}.")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file as plain values.

    Raises:
        ConfigError: the file is missing, cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(read_bytes(path).decode("utf-8"))
    except FileNotFoundError as problem:
        raise ConfigError(f"no configuration file {path}.") from problem
    except OSError as problem:
        raise ConfigError(str(problem)) from problem
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}") from problem


def to_toml(settings: Any, *, within: str = "", added_later: bool = True) -> str:
    r"""Return a settings dataclass as TOML; `from_dict` of its parsed text gives the same settings back.

    Args:
        settings: the dataclass.
        within: the prefix of nested tables' names.
        added_later: whether settings marked `ADDED_LATER` are written even at their default.

    >>> @dataclasses.dataclass
    ... class Cut:
    ...     at: str = ""
    >>> to_toml(Cut("stem"))
    'at = "stem"\n'
    """
    lines, tables = [], []
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if f.metadata.get("added_later") and not added_later and value == _default(f):
            continue
        if dataclasses.is_dataclass(value):
            name = f"{within}{f.name}"
            tables.append(f"\n[{name}]\n{to_toml(value, within=f'{name}.', added_later=added_later)}")
        else:
            lines.append(f"{f.name} = {_toml_value(value)}\n")
    return "".join(lines + tables)


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        entries = [f"{json.dumps(str(key))} = {_toml_value(item)}" for key, item in value.items()]
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # which JSON allows, and TOML does not
    return repr(value)


def config_digest(settings: Any, *, seed: int) -> str:
    """Return the digest of a settings dataclass and the root seed, for receipts.

    It covers the code of parts from outside: a changed loss or codec makes other settings, which whoever recorded the
    digest then refuses.
    """
    outside: list[str] = []
    for name, origin in sorted(origins(settings).items()):
        outside += [name, str(origin)]
    return digest("config", seed, type(settings).__name__, to_toml(settings, added_later=False), *outside)
