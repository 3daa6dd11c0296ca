"""Functions that replace torch's own code: they compute differently, and no version number of torch reveals it."""

from __future__ import annotations

import inspect
import operator
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache, lru_cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

_TORCH, _STANDARD = f"{Path(torch.__file__).parent}/", f"{sysconfig.get_paths()['stdlib']}/"
_ROOMS = ("torch.nn.modules", "torch.nn.parameter", "torch.optim")
_KINDS = (torch.nn.Module, torch.nn.Parameter, torch.optim.Optimizer)
_TYPES = {"torch", "types", "typing", "typing_extensions", "collections", "builtins", "functools", "enum"}
"""Modules that define the types of torch's other callables."""
_KERNELS = ("/CPU", "/Autograd", "/AutogradCPU")
"""Suffixes of kernels' names that torch itself never registers from Python."""
_own: dict[int, Any] = {}
"""Members found to be torch's own, by id; holding them keeps ids from being reused."""
_unpatched: dict[ModuleType | type, list[Any]] = {}
"""All members of modules and classes when nothing in them was replaced, to compare with at C speed: every training asks
for the patches, and there are thousands of members."""


def patches() -> list[str]:
    """Return the names of torch's functions, layers' methods and kernels that a program replaced.

    Notes:
        Not seen: one of torch's functions in place of another, a function whose ``__code__`` was replaced, compiled
        code, and kernels for GPUs.
    """
    found = _added_kernels(frozenset(getattr(torch.library, "_impls", ())))
    for space in _spaces():
        values, before = list(vars(space).values()), _unpatched.get(space, [])
        if len(values) == len(before) and all(map(operator.is_, values, before)):
            continue
        members, replaced = list(vars(space).items()), set()
        for name, value in members:
            if id(value) in _own:
                continue
            if _is_own(value) or not _is_known(space, name):
                _own[id(value)] = value
            else:
                replaced.add(f"{space.__name__}.{name}")
        if not replaced:  # of the members just looked at: another thread may have changed them since `values`
            _unpatched[space] = [value for _, value in members]
        found |= replaced
    return sorted(found)


@lru_cache(1)
def _added_kernels(registered: frozenset[str]) -> frozenset[str]:
    """Return those of the kernels registered from Python that replace torch's own."""
    return frozenset(name for name in registered if name.startswith("aten/") and name.endswith(_KERNELS))


@cache
def _is_known(space: ModuleType | type, name: str) -> bool:
    """Whether torch itself has something of a name: what others only add, as some libraries do, replaces nothing.

    Where torch's source cannot be read, every name counts as torch's.
    """
    if hasattr(torch._C, name) or any(hasattr(base, name) for base in getattr(space, "__mro__", ())[1:]):
        return True
    try:
        return re.search(rf"\b{re.escape(name)}\b", inspect.getsource(space)) is not None
    except (OSError, TypeError):
        return True


@cache
def _spaces() -> tuple[ModuleType | type, ...]:
    """Return the modules and classes of torch that networks, optimisers and first weights are computed with."""
    rooms = [module for name, module in list(sys.modules.items()) if name.startswith(_ROOMS)]
    classes: set[type] = set()
    for room in rooms:
        for value in vars(room).values():
            if isinstance(value, type) and value.__module__.startswith(_ROOMS) and issubclass(value, _KINDS):
                classes.add(value)
    tools = (torch.nn.functional, torch.nn.init, torch.autograd, torch.linalg, torch.fft, torch.special)
    return (torch, torch.Tensor, *tools, *rooms, *classes)


def _is_own(value: Any) -> bool:
    functions = list(_functions(value))
    if functions:
        return all(_is_of_torch(function.__code__.co_filename) for function in functions)
    if not callable(value) or isinstance(value, type):
        return True
    return type(value).__module__.partition(".")[0] in _TYPES and not isinstance(value, partial)


def _functions(value: Any) -> Iterator[FunctionType]:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    parts = (value.fget, value.fset) if isinstance(value, property) else (value,)
    yield from (part for part in parts if isinstance(part, FunctionType))


def _is_of_torch(file: str) -> bool:
    """Return whether code comes from torch's files, or from those whose decorators torch uses."""
    # a decorated function of torch has the code of its wrapper, which may be in another library's file
    if file.startswith(_TORCH) or file == getattr(sys.modules.get("typing_extensions"), "__file__", None):
        return True
    return file.startswith(_STANDARD) and "-packages/" not in file
