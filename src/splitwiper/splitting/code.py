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
_BOOKKEEPING = frozenset(map("__{}__".format, _KEPT_BY_PYTHON.split()))
_TREES: dict[tuple[str, CodeType], ast.AST] = {}
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


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
    if file.startswith("<"):  # typed in, or compiled from text
        return True
    path = Path(file).resolve()
    if path.is_relative_to(_PACKAGE):
        return path.is_relative_to(_PACKAGE / "models")
    # torch is named besides site-packages, because it may be built in a folder of its own
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
    names = importlib.metadata.packages_distributions().get(package, [])
    return "".join(f" {name} {importlib.metadata.version(name)}" for name in sorted(set(names)))


def versions(modules: Iterable[str]) -> list[str]:
    """Return the installed versions of the libraries that the named modules belong to."""
    installed: set[str] = set()
    for module in modules:
        library = module.partition(".")[0]
        if not is_own_module(module) and library not in _UNVERSIONED:
            installed.add(_version(library).strip())
    return sorted(installed - {""})


def syntax_tree_of(code: CodeType) -> ast.AST | None:
    """Return the syntax tree that a function's code was compiled from; None if its source is not available.

    A file that was edited after import is not the source of the running code, which must be what the file compiles
    to. Trees are cached, so that editing the file of a model in use does not make it another network.
    """
    key = code.co_filename, code
    if key not in _TREES and (tree := _find_tree(code)) is not None:
        _TREES.setdefault(key, tree)  # another thread may have been faster: all get the same tree
    return _TREES.get(key)


def _find_tree(code: CodeType) -> ast.AST | None:
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename))
    functions, codes = _parsed(source, code.co_filename)
    if code not in codes:  # codes compare by content: the file no longer compiles to this one
        return None
    matching = [node for node in functions.get(code.co_firstlineno, []) if _fits(node, code)]
    return min(matching, key=_span, default=None)  # of lambdas inside each other, the innermost


@cache
def _parsed(source: str, file: str) -> tuple[dict[int, list[_Function]], frozenset[CodeType]]:
    """Return a file's functions by their first line, as code objects count it, and its code objects."""
    try:
        tree = ast.parse(source)
        codes = frozenset(nested(compile(source, file, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return {}, frozenset()
    functions: dict[int, list[_Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            first = node.lineno
            for decorator in getattr(node, "decorator_list", []):  # a code object begins at its first decorator
                first = min(first, decorator.lineno)
            functions.setdefault(first, []).append(node)
    return functions, codes


def _fits(node: _Function, code: CodeType) -> bool:
    """Return whether a function that begins on the right line is the one that a code object was compiled from."""
    if not isinstance(node, ast.Lambda):
        return node.name == code.co_name
    if code.co_name != "<lambda>":
        return False
    # Several lambdas may share a line: the right one contains all positions of the code. Some instructions have no
    # position, or the empty one.
    begin, end = (node.body.lineno, node.body.col_offset), (node.body.end_lineno, node.body.end_col_offset)
    for line, end_line, column, end_column in code.co_positions():
        known = None not in (line, end_line, column, end_column) and (column, end_column) != (0, 0)
        if known and not ((line, column) >= begin and (end_line, end_column) <= end):
            return False
    return True


def _span(node: _Function) -> tuple[int, int]:
    """Return how far a lambda reaches, in lines and columns."""
    return (node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset


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
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
        fields["body"] = node.body[1:]
    texts = []
    for name, value in sorted(fields.items()):
        # empty fields are left out, because newer versions of Python have more fields
        is_empty = (value is None or value == []) and name != "body"
        if name not in _SILENT and not is_empty:
            texts.append(f"{name}={spelled(value)}")
    return f"{type(node).__name__}({', '.join(texts)})"


def references(function: FunctionType) -> dict[str, Any]:
    """Return what a function's code refers to by name in its module, or imports, with the present values."""
    referred: dict[str, Any] = {}
    # Bytecode and not the syntax tree: it says which names are global after all scopes are resolved.
    for code in nested(function.__code__):
        steps = [step for step in dis.get_instructions(code) if step.opname not in ("EXTENDED_ARG", "CACHE")]
        for number, step in enumerate(steps):
            name = step.argval
            if step.opname in _LOADS and name in function.__globals__ and not is_bookkeeping(name):
                name, value = _member(name, function.__globals__[name], steps[number + 1 :])
                referred[name] = value
            elif step.opname == "IMPORT_NAME":  # the two instructions before it load the level and the imported names
                level, wanted = steps[number - 2].argval, steps[number - 1].argval
                referred |= _imported("." * level + name, wanted or (), function.__globals__.get("__package__"))
    return referred


def _member(name: str, value: Any, following: Iterable[dis.Instruction]) -> tuple[str, Any]:
    """Follow attributes from one of the user's own modules, of which only the members in use count."""
    for step in following:
        inside = step.opname in _ATTRIBUTES and isinstance(value, ModuleType)
        if not inside or not is_own_module(value.__name__) or not hasattr(value, step.argval):
            break
        name, value = f"{name}.{step.argval}", getattr(value, step.argval)
    return name, value


def _imported(name: str, wanted: tuple[str, ...], package: str | None) -> dict[str, Any]:
    try:
        module = importlib.import_module(name, package)
    except ImportError:  # code that would fail here has no more meaning than its text
        return {}
    if not wanted or not is_own_module(module.__name__):
        return {name: module}
    return {f"{name}.{part}": getattr(module, part, None) for part in wanted}
