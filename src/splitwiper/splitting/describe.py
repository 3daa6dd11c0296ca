"""Digests of Python values: constants by value, functions and classes by their code, objects by their contents.

Equal digests mean the same in every process: no address, hash order, path or line number is included.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import logging
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context, ContextVar
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
    is_bookkeeping,
    is_own_file,
    is_own_module,
    library_name,
    references,
    spelled,
    syntax_tree_of,
)
from splitwiper.splitting.ghosts import Ghostly

_PLAIN = (type(None), type(...), bool, int, str, bytes)
_WEAK: tuple[type, ...] = (weakref.ref, weakref.ProxyType, weakref.CallableProxyType)
_WEAK += (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_ELSEWHERE = (logging.Logger, PurePath, RemovableHandle, *_WEAK)
"""These belong to a process or a machine: their type counts, not their contents."""
_IN_C = (MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType, MemberDescriptorType)
_LABELS = {"num_labels", "_num_labels", "id2label", "label2id"}
"""Attributes of Hugging Face's models about the head, which a federation rebuilds for its own labels."""


def real_class(cls: type) -> type:
    """Return the class that a module had before it was given a role in a half."""
    return next(base for base in cls.__mro__ if base is not Ghostly and Ghostly not in base.__bases__)


def _attributes(value: Any) -> dict[str, Any]:
    """Return an object's attributes, from its dictionary and its slots."""
    held = {str(name): kept for name, kept in getattr(value, "__dict__", {}).items()}
    for cls in type(value).__mro__:
        for name, member in vars(cls).items() if "__slots__" in vars(cls) else ():  # private names as Python keeps them
            if isinstance(member, MemberDescriptorType) and hasattr(value, name):
                held[name] = getattr(value, name)
    return held


class Describer:
    """Digests values; each object is examined once.

    Args:
        modules: digests modules, which consist of more than their attributes.
        names: names of tensors and modules that belong to the model itself, by id.
    """

    def __init__(self, modules: Callable[[Describer, nn.Module], str], names: Mapping[int, str]) -> None:
        self._modules, self._names = modules, names
        self._known: dict[int, tuple[Any, str]] = {}  # holds the object, so that its id is not reused
        self._open: list[int] = []

    def of(self, value: Any) -> str:
        """Return the digest of a value."""
        kind = type(value)
        if kind in _PLAIN:
            return digest(kind.__name__, repr(value))
        if kind is float or kind is complex:
            return digest(kind.__name__, *(part.hex() for part in (complex(value).real, complex(value).imag)))
        if id(value) in self._known:
            return self._known[id(value)][1]
        # An object that is still being digested: the cycle's digest is how far up it leads, which is the same in every
        # process, where an address would not be.
        if id(value) in self._open:
            return digest("cycle", len(self._open) - self._open.index(id(value)))
        self._open.append(id(value))
        try:
            found = self._of_object(value)
        finally:
            self._open.pop()
        self._known[id(value)] = (value, found)
        return found

    def all(self, word: str, *values: Any) -> str:
        """Return the digest of several values under one heading."""
        return digest(word, *map(self.of, values))

    def _alone(self, value: Any) -> str:
        """Return a digest that does not depend on values seen before, to sort by."""
        other = Describer(self._modules, self._names)
        other._open = list(self._open)
        return other.of(value)

    def mapping(self, items: Mapping[str, Any]) -> str:
        """Return the digest of names and their values, independent of their order."""
        return digest("mapping", *(part for name in sorted(items) for part in (name, self.of(items[name]))))

    def _of_object(self, value: Any) -> str:
        if id(value) in self._names:
            return digest("the model's own", self._names[id(value)])
        if isinstance(value, _ELSEWHERE):  # first, because a weak proxy passes for its target
            return self.all("elsewhere", type(value))
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, nn.Module):
            return self._modules(self, value)
        if isinstance(value, FunctionType | BuiltinFunctionType | MethodType | CodeType | ModuleType | CellType):
            return self._of_code(value)
        about = self.all("object", type(value))
        torchs = isinstance(value, torch.dtype | torch.device | torch.memory_format | torch.layout)
        if torchs or type(value).__module__ == "torch._ops":
            return digest(about, str(value))
        if isinstance(value, torch.Generator):  # not its state, which changes with every draw
            return digest(about, value.initial_seed())
        if isinstance(value, torch.jit.ScriptFunction):
            return digest(about, self.script(value))
        if isinstance(value, torch.fx.Graph):
            return digest(about, value.python_code("self").src)
        return digest(about, self._content(value), self.attributes(value))

    # --- objects -------------------------------------------------------------------------------------------

    def _content(self, value: Any) -> str:
        """Return the digest of an object's contents besides its attributes."""
        if isinstance(value, Tensor):
            return self._of_tensor(value)
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            held = array.tolist() if array.dtype.hasobject else array.tobytes()
            return self.all("array", array.dtype.str, array.shape, held)
        if isinstance(value, memoryview):
            return self.all("memory", value.format, value.shape, value.tobytes())
        if isinstance(value, list | tuple):
            return self.all("items", *value)
        if isinstance(value, set | frozenset):
            # Sets have no order that is the same in every process, so digests are sorted; each is computed by itself,
            # since references to values seen before would depend on that order.
            return digest("set", *sorted(map(self._alone, value)))
        if isinstance(value, dict | MappingProxyType):  # in order, because code that iterates sees it
            made = getattr(value, "default_factory", None)
            return self.all("dict", made, *(part for item in value.items() for part in item))
        if isinstance(value, enum.Enum):
            return self.all("enum", value.name, value.value)
        if isinstance(value, property):
            return self.all("property", value.fget, value.fset, value.fdel)
        if isinstance(value, staticmethod | classmethod):
            return self.all("method", value.__func__)
        if isinstance(value, functools.partial):
            return self.all("partial", value.func, value.args, value.keywords)
        if isinstance(value, ContextVar):  # its default: the current value belongs to the caller's context
            try:
                return self.all("context", Context().run(value.get))
            except LookupError:
                return digest("context", value.name)
        if isinstance(value, _IN_C):
            return self.all("in C", value.__objclass__, value.__name__)
        return self._reduced(value)

    def _of_tensor(self, value: Tensor) -> str:
        about = ("tensor", str(value.dtype), *value.shape, value.requires_grad)
        if value.is_meta:  # a state of the other half
            return digest(*about)
        dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
        return digest(*about, state_digest({"": dense.resolve_conj().resolve_neg()}))

    def script(self, function: Any) -> str:
        """Return the digest of a function or method in TorchScript: its graph and the constants in it."""
        graph = function.inlined_graph.copy()
        torch._C._jit_pass_erase_shape_information(graph)  # shapes of the traced example
        graph = torch._C._jit_pass_canonicalize(graph, False)
        text = re.sub(r"___torch_mangle_\d+\.", "", graph.str(False))  # numbered in the order of compilation
        constants = [node for node in graph.findAllNodes("prim::Constant") if node.hasAttribute("value")]
        tensors = [node.t("value") for node in constants if node.kindOf("value") == "t"]  # abridged in the text
        others = [node.ival("value") for node in constants if node.kindOf("value") == "ival"]
        return self.all("script", text, tensors, others)

    def attributes(self, value: Any, *, leave: Iterable[str] = ()) -> str:
        """Return the digest of an object's attributes, except for some names and for cached values."""
        held, left = _attributes(value), {*leave, "_is_hf_initialized"}  # a mark that loading sets on parameters
        if type(value).__module__.startswith("transformers."):
            left |= _LABELS
        if isinstance(value, Ghostly):
            left.add("_role")
        if isinstance(value, Tensor):
            for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                held[kind] = list((getattr(value, kind) or {}).values())
        for cls in type(value).__mro__:
            left.update(name for name in held if isinstance(vars(cls).get(name), functools.cached_property))
        return self.mapping({k: v for k, v in held.items() if k not in left and not is_bookkeeping(k)})

    def _reduced(self, value: Any) -> str:
        """Return the digest of what an object gives to be copied, besides attributes; empty if it cannot be copied."""
        try:
            told = value.__reduce_ex__(4)
        except Exception:  # any error of an object that cannot be copied: only its type counts
            return ""
        if isinstance(told, str):
            return told
        make, args, state, *items = (*told, None, None, None)[:5]
        held = _attributes(value)
        states = state if isinstance(state, tuple) else (state,)  # of slots, too
        rest = []
        for part in states:  # attributes are digested by `attributes`
            rest.append({k: part[k] for k in part if k not in held} if isinstance(part, dict) else part)
        return self.all("reduced", make, args, *rest, *(list(part or ()) for part in items))

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
            return digest("module", self.mapping({k: v for k, v in vars(value).items() if not is_bookkeeping(k)}))
        owner = None if isinstance(value.__self__, ModuleType) else value.__self__
        return digest("builtin", library_name(value.__module__, value.__qualname__), self.of(owner))

    def _of_function(self, value: FunctionType) -> str:
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        if is_own_file(value.__code__.co_filename):
            tree = syntax_tree_of(value.__code__)
            text = self._of_bytecode(value.__code__, value.__doc__) if tree is None else digest(spelled(tree))
            used = self.mapping(references(value))
        else:
            code, module = value.__code__, value.__globals__.get("__name__")
            text, used = library_name(module, code.co_qualname), ""
            if not cells:
                return digest("library", text)
            cells.pop("cache_token", None)  # by which functools.singledispatch caches calls
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
            members[f"field {name}"] = [field.init, field.compare, given]
        meta = None if type(value) is type else type(value)
        return digest("class", value.__qualname__, self.of(meta), self.all("", *value.__bases__), self.mapping(members))

    def _is_written(self, owner: type, name: str, member: Any) -> bool:
        """Return whether a class's member was written by its author, not by Python or generated from its fields."""
        code = getattr(member, "__code__", None)
        if not isinstance(code, CodeType) or not (hasattr(owner, "__dataclass_fields__") or hasattr(owner, "_fields")):
            return not is_bookkeeping(name)
        made = code.co_filename.startswith("<string>") and not code.co_qualname.startswith(owner.__qualname__)
        return not (made and name.startswith("__")) and not is_bookkeeping(name)
