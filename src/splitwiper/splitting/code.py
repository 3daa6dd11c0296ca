"""What a piece of code computes, independent of its layout, and what it refers to outside itself.

Code is either the user's own, or that of a library: torch, the standard library, anything in site-packages. The
user's is taken apart. A library's is identified by its name, and by its version if numerics do not record that anyway.
"""

from __future__ import annotations

import ast
import dis
import importlib
import importlib.metadata
import linecache
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

_LIBRARIES = {"site-packages", "dist-packages"}
_STANDARD = Path(sysconfig.get_paths()["stdlib"]).resolve()
_TORCH, _PACKAGE = Path(torch.__file__).resolve().parent, Path(__file__).resolve().parents[1]
_UNVERSIONED = sys.stdlib_module_names | {"torch", "numpy", "splitwiper"}
# Neither annotations nor the way a name is used change what is computed; docstrings are removed separately.
_SILENT = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind"}
_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_KEPT_BY_PYTHON = (
    "abstractmethods annotate annotate_func annotations annotations_cache builtins cached conditional_annotations "
    "dataclass_fields dataclass_params dict doc file firstlineno loader module name objclass orig_bases orig_class "
    "package parameters path qualname slotnames slots spec static_attributes type_params warningregistry weakref"
)
_BOOKKEEPING = frozenset(f"__{name}__" for name in _KEPT_BY_PYTHON.split())
_TREES: dict[tuple[str, CodeType], ast.AST] = {}
_Parsed = tuple[dict[int, list[ast.AST]], frozenset[CodeType]]


def is_bookkeeping(name: str) -> bool:
    """Return whether Python itself maintains a name like ``__module__``; ``__s__`` is a name like any other."""
    return name in _BOOKKEEPING


@cache
def is_own_file(file: str) -> bool:
    """Return whether code from this file is the user's; the networks that come with SplitWiper count as such.

    They do so in every installation, so that an editable one agrees with any other.
    """
    if file.startswith(("<frozen ", "<__array_function__")):
        return False
    if file.startswith("<"):
        return True
    path = Path(file).resolve()
    if path.is_relative_to(_PACKAGE):
        return path.is_relative_to(_PACKAGE / "models")
    if path.is_relative_to(_STANDARD) or path.is_relative_to(_TORCH):
        return False
    return not _LIBRARIES & set(path.parts)


def is_own_module(name: str | None) -> bool:
    """Return whether a module, given by name, is the user's."""
    module = sys.modules.get(name or "")
    file = getattr(module, "__file__", None)
    if file:
        return is_own_file(file)
    return (name or "").partition(".")[0] not in _UNVERSIONED


def library_of(module: str) -> str:
    """Return the distribution that a module comes from, with its version; empty if it comes from none."""
    return _version(module.partition(".")[0]).strip()


def library_name(module: str | None, name: str) -> str:
    """Return the full name of a library's member, with the library's version if numerics do not record it."""
    top = (module or "").partition(".")[0]
    return f"{module}.{name}{'' if top in _UNVERSIONED else _version(top)}"


@cache
def _version(package: str) -> str:
    found = importlib.metadata.packages_distributions().get(package, [])
    return "".join(f" {name} {importlib.metadata.version(name)}" for name in sorted(set(found)))


def versions(modules: Iterable[str]) -> list[str]:
    """Return the installed versions of the libraries that the named modules belong to."""
    libraries = {name.partition(".")[0] for name in modules if not is_own_module(name)} - _UNVERSIONED
    return sorted(filter(None, (_version(library).strip() for library in libraries)))


def syntax_tree_of(code: CodeType) -> ast.AST | None:
    """Return the syntax tree that a function's code was compiled from; None if its source is not available.

    A file that was edited after import is not the source of the running code, which must be what the file compiles
    to. Trees are cached, so that editing the file of a model in use does not make it another network.
    """
    if (known := _TREES.get((code.co_filename, code))) is None and (found := _found(code)) is not None:
        known = _TREES.setdefault((code.co_filename, code), found)
    return known


def _found(code: CodeType) -> ast.AST | None:
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename))
    nodes, codes = _parsed(source, code.co_filename)
    if code not in codes:
        return None
    found = [node for node in nodes.get(code.co_firstlineno, []) if _fits(node, code)]
    return min(found, key=_span) if found else None


@cache
def _parsed(source: str, file: str) -> _Parsed:
    try:
        tree = ast.parse(source)
        codes = frozenset(nested(compile(source, file, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return {}, frozenset()
    nodes: dict[int, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            decorators = getattr(node, "decorator_list", [])
            nodes.setdefault(min([node.lineno, *(d.lineno for d in decorators)]), []).append(node)
    return nodes, codes


def _fits(node: ast.AST, code: CodeType) -> bool:
    if not isinstance(node, ast.Lambda):
        return getattr(node, "name", "") == code.co_name
    # Several lambdas may share a line: the right one contains all positions of the code.
    first, last = (node.body.lineno, node.body.col_offset), (node.body.end_lineno, node.body.end_col_offset)
    places = [p for p in code.co_positions() if None not in p and (p[2], p[3]) != (0, 0)]
    inside = [(p[0], p[2]) >= first and (p[1], p[3]) <= last for p in places]
    return code.co_name == "<lambda>" and all(inside)


def _span(node: Any) -> tuple[int, int]:
    return node.end_lineno - node.lineno, node.end_col_offset - node.col_offset


def nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and all those inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from nested(inner)


def spelled(node: Any) -> str:
    """Return a syntax tree as text, equal for all versions of Python: no positions, docstrings or empty fields."""
    if isinstance(node, list):
        return f"[{', '.join(map(spelled, node))}]"
    if not isinstance(node, ast.AST):
        return f"{type(node).__name__} {node!r}"
    fields = {k: v for k, v in ast.iter_fields(node) if k not in _SILENT and v is not None and v != []}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
        fields["body"] = node.body[1:]
    return f"{type(node).__name__}({', '.join(f'{k}={spelled(v)}' for k, v in sorted(fields.items()))})"


def references(function: FunctionType) -> dict[str, Any]:
    """Return what a function's code refers to by name in its module, or imports, with the present values."""
    found: dict[str, Any] = {}
    # Bytecode and not the syntax tree: it says which names are global after all scopes are resolved.
    for code in nested(function.__code__):
        steps = [step for step in dis.get_instructions(code) if step.opname not in ("EXTENDED_ARG", "CACHE")]
        for place, step in enumerate(steps):
            name = step.argval
            if step.opname in _LOADS and name in function.__globals__ and not is_bookkeeping(name):
                value = function.__globals__[name]
                for following in steps[place + 1 :]:  # of a user's module, only the members in use count
                    inside = following.opname in _ATTRIBUTES and isinstance(value, ModuleType)
                    if not inside or not is_own_module(value.__name__) or not hasattr(value, following.argval):
                        break
                    name, value = f"{name}.{following.argval}", getattr(value, following.argval)
                found[name] = value
            elif step.opname == "IMPORT_NAME":  # the two instructions before it load the level and the imported names
                level, wanted = steps[place - 2].argval, steps[place - 1].argval
                found |= _imported("." * level + name, wanted or (), function.__globals__.get("__package__"))
    return found


def _imported(name: str, wanted: tuple[str, ...], package: str | None) -> dict[str, Any]:
    try:
        module = importlib.import_module(name, package)
    except ImportError:  # code that would fail here has no more meaning than its text
        return {}
    if not wanted or not is_own_module(module.__name__):
        return {name: module}
    return {f"{name}.{part}": getattr(module, part, None) for part in wanted}
