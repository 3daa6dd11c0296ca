"""Digests of Python values: constants by value, functions and classes by their code, objects by what they hold.

Equal digests mean the same thing in every process: no address, no order of hashes, no path and no line goes in.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import logging
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from splitwiper.seeding import digest, state_digest
from splitwiper.splitting.code import (
    is_own_file,
    is_own_module,
    library_name,
    references,
    spelled,
    tree_of,
)
from splitwiper.splitting.ghosts import Ghostly

_PLAIN = (type(None), type(...), bool, int, str, bytes)
_ELSEWHERE = (logging.Logger, weakref.ref, weakref.ProxyType, PurePath, torch.Generator, RemovableHandle)
"""These belong to a process or a machine: their type counts, not what they hold."""
_IN_C = (MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType, MemberDescriptorType)
_UNSAID = {"_abc_impl", "_role", "_graph", "__slots__"}
_SAID = {"__call__", "__init__", "__new__", "__getattr__", "__getattribute__", "__setattr__", "__torch_function__"}
_LABELS = {"num_labels", "_num_labels", "id2label", "label2id"}
"""What Hugging Face's configurations say of the head, which a federation makes anew for the labels it has."""


def is_bookkeeping(name: str) -> bool:
    """Whether Python, and no code of the model, keeps this attribute."""
    return name in _UNSAID or (name.startswith("__") and name.endswith("__"))


def real_class(cls: type) -> type:
    """The class that a module had before it was given a role in a half."""
    return next(base for base in cls.__mro__ if base is not Ghostly and Ghostly not in base.__bases__)


class Describer:
    """Digests values; each object is looked at once.

    Args:
        modules: digests modules, which have more to them than their attributes.
        names: what tensors and modules are known by where they belong to the model itself, by id.
    """

    def __init__(self, modules: Callable[[Describer, nn.Module], str], names: Mapping[int, str]) -> None:
        self._modules, self._names = modules, names
        self._known: dict[int, tuple[Any, str]] = {}  # with the object, so that its id is not used again
        self._open: list[int] = []

    def of(self, value: Any) -> str:
        """The digest of a value."""
        kind = type(value)
        if kind in _PLAIN:
            return digest(kind.__name__, repr(value))
        if kind is float or kind is complex:
            return digest(kind.__name__, *(part.hex() for part in (complex(value).real, complex(value).imag)))
        if id(value) in self._known:
            return self._known[id(value)][1]
        if id(value) in self._open:  # a cycle: how far up it leads
            return digest("cycle", len(self._open) - self._open.index(id(value)))
        self._open.append(id(value))
        try:
            found = self._of_object(value)
        finally:
            self._open.pop()
        self._known[id(value)] = (value, found)
        return found

    def all(self, word: str, *values: Any) -> str:
        """The digest of several values under one heading."""
        return digest(word, *map(self.of, values))

    def _alone(self, value: Any) -> str:
        """A digest that depends on nothing seen before, to sort by."""
        other = Describer(self._modules, self._names)
        other._open = list(self._open)
        return other.of(value)

    def mapping(self, items: Mapping[Any, Any]) -> str:
        """Keys and values, in an order of their own unless the mapping is about order."""
        pairs = [(self._alone(key), value) for key, value in items.items()]
        if not isinstance(items, OrderedDict):
            pairs.sort(key=lambda pair: pair[0])
        return digest("mapping", *(part for key, value in pairs for part in (key, self.of(value))))

    def _of_object(self, value: Any) -> str:
        if id(value) in self._names:
            return digest("the model's own", self._names[id(value)])
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, nn.Module):
            return self._modules(self, value)
        if isinstance(value, FunctionType | BuiltinFunctionType | MethodType | CodeType | ModuleType | CellType):
            return self._of_code(value)
        if isinstance(value, Tensor):
            return self._of_tensor(value)
        if isinstance(value, torch.dtype | torch.device | torch.memory_format | torch.layout):
            return digest("torch", str(value))
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            held = array.tolist() if array.dtype.hasobject else array.tobytes()
            return self.all("array", type(value), array.dtype.str, array.shape, held)
        if isinstance(value, list | tuple):
            return self.all("items", type(value), *value)
        if isinstance(value, set | frozenset):
            return digest("set", self.of(type(value)), *sorted(map(self._alone, value)))
        if isinstance(value, dict | MappingProxyType):
            made = self.all("", type(value), getattr(value, "default_factory", None))
            return digest("dict", made, self.mapping(value), self.attributes(value))
        if isinstance(value, enum.Enum):
            return self.all("enum", type(value), value.name)
        return self._of_instance(value)

    # --- objects -------------------------------------------------------------------------------------------

    def _of_tensor(self, value: Tensor) -> str:
        about = ("tensor", type(value).__qualname__, str(value.dtype), *value.shape, value.requires_grad)
        if value.is_meta or value.grad_fn is not None:  # a state of the other half; something computed from weights
            return digest(*about)
        dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
        return digest(*about, state_digest({"": dense.resolve_conj().resolve_neg()}))

    def _attributes(self, value: Any) -> dict[str, Any]:
        """What an object holds: in its dictionary and its slots."""
        held = dict(getattr(value, "__dict__", {}))
        for cls in type(value).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, name):
                    held[name] = getattr(value, name)
        unsaid = set() if is_own_module(real_class(type(value)).__module__) else _LABELS
        return {name: held[name] for name in held if not is_bookkeeping(name) and name not in unsaid}

    def attributes(self, value: Any, *, leave: Iterable[str] = ()) -> str:
        """The digest of what an object holds, but for some names."""
        left = set(leave)
        return self.mapping({name: held for name, held in self._attributes(value).items() if name not in left})

    def _of_instance(self, value: Any) -> str:
        about = digest("instance", self.of(type(value)))
        if isinstance(value, _ELSEWHERE):
            return about
        if isinstance(value, property):
            return self.all("property", value.fget, value.fset, value.fdel)
        if isinstance(value, staticmethod | classmethod):
            return self.all(type(value).__name__, value.__func__)
        if isinstance(value, functools.partial):
            return self.all("partial", value.func, value.args, value.keywords)
        if isinstance(value, torch.fx.Graph):
            return digest(about, value.python_code("self").src)
        if type(value).__module__ == "torch._ops":
            return digest(about, str(value))
        if isinstance(value, _IN_C):
            return self.all("in C", value.__objclass__, value.__name__)
        if wrapped := getattr(value, "__dict__", {}).get("__wrapped__"):  # a function behind a cache
            about = digest(about, self.of(wrapped))
        if held := self._attributes(value):
            return digest(about, self.mapping(held))
        return digest(about, self._reduced(value))

    def _reduced(self, value: Any) -> str:
        """What an object without attributes tells of itself to be copied; nothing, where it cannot be."""
        try:
            told = value.__reduce_ex__(4)
        except Exception:  # whatever an object raises that cannot be copied: its type is all there is to say
            return ""
        if isinstance(told, str):
            return told
        parts = [list(part) if hasattr(part, "__next__") else part for part in told]
        return self.all("reduced", *parts)

    # --- code ----------------------------------------------------------------------------------------------

    def _of_code(self, value: Any) -> str:
        if isinstance(value, FunctionType):
            return self._of_function(value)
        if isinstance(value, MethodType):
            return self.all("method", value.__func__, value.__self__)
        if isinstance(value, CodeType):
            return self._of_bytecode(value, None)
        if isinstance(value, CellType):
            try:
                return self.all("cell", value.cell_contents)
            except ValueError:  # not filled yet
                return digest("empty cell")
        if isinstance(value, ModuleType):
            if not is_own_module(value.__name__):
                return digest("library", library_name(value.__name__, ""))
            return digest("module", self.mapping({k: v for k, v in vars(value).items() if not k.startswith("__")}))
        owner = None if isinstance(value.__self__, ModuleType) else value.__self__
        return digest("builtin", library_name(value.__module__, value.__qualname__), self.of(owner))

    def _of_function(self, value: FunctionType) -> str:
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        if is_own_file(value.__code__.co_filename):
            tree = tree_of(value.__code__)
            text = self._of_bytecode(value.__code__, value.__doc__) if tree is None else digest(spelled(tree))
            used = self.mapping(references(value))
        else:
            code, module = value.__code__, value.__globals__.get("__name__")
            text, used = library_name(module, code.co_qualname), ""
            if not cells:
                return digest("library", text)
        held = {key: kept for key, kept in vars(value).items() if not is_bookkeeping(key)}
        defaults = self.all("defaults", value.__defaults__, value.__kwdefaults__)
        return digest("function", text, used, defaults, self.mapping(cells), self.mapping(held))

    def _of_bytecode(self, code: CodeType, doc: str | None) -> str:
        consts = [const for place, const in enumerate(code.co_consts) if place or doc is None or const != doc]
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return self.all("bytecode", code.co_code, code.co_exceptiontable, shape, names, consts)

    def _of_class(self, value: type) -> str:
        value = real_class(value)
        if not is_own_module(value.__module__):
            own = [base for base in value.__mro__[1:] if is_own_module(base.__module__)]
            return self.all("library", library_name(value.__module__, value.__qualname__), *own)
        members = {k: v for k, v in vars(value).items() if self._is_written(value, k, v)}
        fields: dict[str, Any] = vars(value).get("__dataclass_fields__", {})
        for name, field in fields.items():
            given = [v for v in (field.default, field.default_factory) if v is not dataclasses.MISSING]
            members[f"field {name}"] = [field.init, given]
        meta = None if type(value) is type else type(value)
        return digest("class", value.__qualname__, self.of(meta), self.all("", *value.__bases__), self.mapping(members))

    def _is_written(self, owner: type, name: str, member: Any) -> bool:
        """Whether a class's member says something: not what Python keeps there, nor methods made from its fields."""
        code = getattr(member, "__code__", None)
        made = hasattr(owner, "__dataclass_fields__") or hasattr(owner, "_fields")
        if isinstance(code, CodeType):
            return not (made and code.co_filename.startswith("<string>"))
        return name in _SAID or not is_bookkeeping(name)
