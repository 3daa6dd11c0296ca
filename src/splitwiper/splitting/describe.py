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
from itertools import chain
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
# These belong to a process or a machine: their type counts, not their contents.
_ELSEWHERE = (
    logging.Logger,
    PurePath,
    RemovableHandle,
    weakref.ref,
    weakref.ProxyType,
    weakref.CallableProxyType,
    weakref.WeakSet,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
)
_CODE = (FunctionType, BuiltinFunctionType, MethodType, CodeType, ModuleType, CellType)
_IN_C = (MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType, MemberDescriptorType)
_OF_TORCH = (torch.dtype, torch.device, torch.memory_format, torch.layout)
# Attributes of Hugging Face's models about the head, which a federation rebuilds for its own labels.
_LABELS = {"num_labels", "_num_labels", "id2label", "label2id"}


def real_class(cls: type) -> type:
    """Return the class that a module had before it was given a role in a half."""
    return next(base for base in cls.__mro__ if base is not Ghostly and Ghostly not in base.__bases__)


def _attributes(value: Any) -> dict[str, Any]:
    """Return an object's attributes, from its dictionary and its slots."""
    held = {str(name): kept for name, kept in getattr(value, "__dict__", {}).items()}
    for cls in type(value).__mro__:
        if "__slots__" not in vars(cls):
            continue
        for name, member in vars(cls).items():  # not the names in __slots__: Python stores private ones differently
            if isinstance(member, MemberDescriptorType) and hasattr(value, name):
                held[name] = getattr(value, name)
    return held


def _without_bookkeeping(held: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kept for name, kept in held.items() if not is_bookkeeping(name)}


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
        kind = type(value)  # the very type: a subclass of int may compute something else
        if kind in _PLAIN:
            return digest(kind.__name__, repr(value))
        if kind is float or kind is complex:
            number = complex(value)
            return digest(kind.__name__, number.real.hex(), number.imag.hex())
        if id(value) in self._known:
            return self._known[id(value)][1]
        # An object that is still being digested: the cycle's digest is how far up it leads, which is the same in every
        # process, where an address would not be.
        if id(value) in self._open:
            return digest("cycle", len(self._open) - self._open.index(id(value)))
        self._open.append(id(value))
        try:
            result = self._of_object(value)
        finally:
            self._open.pop()
        self._known[id(value)] = (value, result)
        return result

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
        parts: list[str] = []
        for name in sorted(items):
            parts += [name, self.of(items[name])]
        return digest("mapping", *parts)

    def _of_object(self, value: Any) -> str:
        if id(value) in self._names:
            return digest("the model's own", self._names[id(value)])
        if isinstance(value, _ELSEWHERE):  # first, because a weak proxy passes for its target
            return self.all("elsewhere", type(value))
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, nn.Module):
            return self._modules(self, value)
        if isinstance(value, _CODE):
            return self._of_code(value)
        about = self.all("object", type(value))
        if isinstance(value, _OF_TORCH) or type(value).__module__ == "torch._ops":
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
            factory = getattr(value, "default_factory", None)
            return self.all("dict", factory, *chain.from_iterable(value.items()))
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
        # the text abridges tensors, and shows objects by their address
        tensors, others = [], []
        for node in graph.findAllNodes("prim::Constant"):
            if node.hasAttribute("value") and node.kindOf("value") == "t":
                tensors.append(node.t("value"))
            elif node.hasAttribute("value") and node.kindOf("value") == "ival":
                others.append(node.ival("value"))
        return self.all("script", text, tensors, others)

    def attributes(self, value: Any, *, leave: Iterable[str] = ()) -> str:
        """Return the digest of an object's attributes, except for some names and for cached values."""
        held, left = _attributes(value), {*leave, "_is_hf_initialized"}  # a mark that loading sets on parameters
        if type(value).__module__.startswith("transformers."):
            left |= _LABELS
        if isinstance(value, Ghostly):
            left.add("_role")
        if isinstance(value, Tensor):  # kept in C, and not among the attributes
            for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                held[kind] = list((getattr(value, kind) or {}).values())
        for cls in type(value).__mro__:
            for name in held:
                if isinstance(vars(cls).get(name), functools.cached_property):
                    left.add(name)
        counted = _without_bookkeeping(held)
        for name in left:
            counted.pop(name, None)
        return self.mapping(counted)

    def _reduced(self, value: Any) -> str:
        """Return the digest of what an object gives to be copied, besides attributes; empty if it cannot be copied."""
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # any error of an object that cannot be copied: only its type counts
            return ""
        if isinstance(reduced, str):
            return reduced
        # pickle's protocol: a function and its arguments that make the object, then its state, items and pairs, each of
        # which may be missing
        make, args, state, *items = (*reduced, None, None, None)[:5]
        held = _attributes(value)
        rest = []
        for part in state if isinstance(state, tuple) else (state,):  # a pair if the object has slots
            if isinstance(part, dict):  # `attributes` digests the others
                part = {name: kept for name, kept in part.items() if name not in held}
            rest.append(part)
        for iterator in items:
            rest.append(list(iterator or ()))
        return self.all("reduced", make, args, *rest)

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
            return digest("module", self.mapping(_without_bookkeeping(vars(value))))
        owner = None if isinstance(value.__self__, ModuleType) else value.__self__  # the object of a method in C
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
        held = self.mapping(_without_bookkeeping(vars(value)))
        defaults = self.all("defaults", value.__defaults__, value.__kwdefaults__)
        return digest("function", text, used, defaults, self.mapping(cells), held)

    def _of_bytecode(self, code: CodeType, doc: str | None) -> str:
        consts = list(code.co_consts)
        if doc is not None and consts[:1] == [doc]:  # the docstring, which does not count, is the first constant
            del consts[0]
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return self.all("bytecode", code.co_code, code.co_exceptiontable, shape, names, consts)

    def _of_class(self, value: type) -> str:
        value = real_class(value)
        if not is_own_module(value.__module__):
            own = [base for base in value.__mro__[1:] if is_own_module(base.__module__)]
            return self.all("library", library_name(value.__module__, value.__qualname__), *own)
        members = {name: member for name, member in vars(value).items() if self._is_written(value, name, member)}
        fields: dict[str, Any] = vars(value).get("__dataclass_fields__", {})
        for name, field in fields.items():
            given = [v for v in (field.default, field.default_factory) if v is not dataclasses.MISSING]
            members[f"field {name}"] = [field.init, field.compare, given]
        meta = None if type(value) is type else type(value)
        return digest("class", value.__qualname__, self.of(meta), self.all("", *value.__bases__), self.mapping(members))

    def _is_written(self, owner: type, name: str, member: Any) -> bool:
        """Return whether a class's member was written by its author, not by Python or generated from its fields."""
        if is_bookkeeping(name):
            return False
        code = getattr(member, "__code__", None)
        has_fields = hasattr(owner, "__dataclass_fields__") or hasattr(owner, "_fields")
        if not isinstance(code, CodeType) or not has_fields or not name.startswith("__"):
            return True
        # dataclasses and named tuples compile their methods from text, and name them without the class
        return not code.co_filename.startswith("<string>") or code.co_qualname.startswith(owner.__qualname__)
