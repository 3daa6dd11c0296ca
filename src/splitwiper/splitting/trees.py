"""Nested inputs and outputs: walking them, naming their leaves, and calling modules with them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

from splitwiper.errors import DataError, InputError

Path = tuple[str, ...]
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Leaf:
    """Base of dataclasses that stand for a tensor: never traversed."""


def map_leaves(change: Callable[[Path, Any], Any], tree: Any, path: Path = ()) -> Any:
    """Copy a tree with every leaf replaced by ``change(path, leaf)``.

    Tuples, named tuples, lists, mappings and dataclasses are traversed and keep their class; anything else is a
    leaf.

    >>> map_leaves(lambda path, leaf: leaf + 1, {"a": (1, 2)})
    {'a': (2, 3)}
    """
    if isinstance(tree, Tensor | Leaf | torch.Size | type):
        return change(path, tree)
    if isinstance(tree, tuple | list):
        parts = [map_leaves(change, part, (*path, str(i))) for i, part in enumerate(tree)]
        return tree._make(parts) if hasattr(tree, "_make") else type(tree)(parts)
    if isinstance(tree, MutableMapping):
        items = {key: map_leaves(change, tree[key], (*path, str(key))) for key in tree}
        if dataclasses.is_dataclass(type(tree)):  # such a mapping validates its fields
            return type(tree)(**items)
        clone = copy.copy(tree)
        clone.update(items)
        return clone
    if dataclasses.is_dataclass(tree):
        record: Any = copy.copy(tree)
        for field in dataclasses.fields(tree):
            value = map_leaves(change, getattr(tree, field.name), (*path, field.name))
            object.__setattr__(record, field.name, value)  # frozen dataclasses too
        return record
    return change(path, tree)


def leaves(tree: Any) -> list[tuple[Path, Any]]:
    """Return every leaf of a tree with its path, in order."""
    listed: list[tuple[Path, Any]] = []
    map_leaves(lambda path, leaf: listed.append((path, leaf)), tree)
    return listed


def tensors(tree: Any) -> list[Tensor]:
    """Return the tensors among the leaves of a tree, in order."""
    return [leaf for _, leaf in leaves(tree) if isinstance(leaf, Tensor)]


def as_call(inputs: Any) -> Call:
    """Return positional and keyword arguments from a tensor, a tuple of arguments or a mapping of keywords."""
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, tuple):
        return inputs, {}
    if isinstance(inputs, Mapping):
        return (), {str(key): value for key, value in inputs.items()}
    raise InputError(
        f"inputs are a tensor, a tuple of positional arguments or a dict of keyword arguments, "
        f"not {type(inputs).__name__}"
    )


def call_with(module: Callable[..., Any], inputs: Any) -> Any:
    """Call ``module`` with a tensor, a tuple of positional arguments or a dict of keyword arguments.

    Example:
        >>> call_with(nn.Flatten(), torch.zeros(2, 3, 4)).shape
        torch.Size([2, 12])
    """
    args, kwargs = as_call(inputs)
    return module(*args, **kwargs)


def bound(model: nn.Module, call: Call) -> inspect.BoundArguments:
    """Return the call's arguments under the parameter names of the model's ``forward``."""
    try:
        return inspect.signature(model.forward).bind(*call[0], **call[1])
    except TypeError as error:
        raise InputError(f"these inputs do not fit {type(model).__name__}.forward: {error}") from None


def named_inputs(model: nn.Module, call: Call) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors among a call's arguments by parameter name; nested ones as ``name.key``."""
    arguments = bound(model, call)
    for name, value in arguments.arguments.items():
        is_rest = arguments.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        for path, leaf in leaves(value):
            if isinstance(leaf, Tensor):
                yield ".".join(path if is_rest else (name, *path)), leaf  # what is in ``**kwargs`` has its own name


def with_rows(call: Call, rows: int) -> Call:
    """Return the same call on fresh copies of its tensors, repeated or cut to ``rows`` rows."""

    def take(path: Path, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if leaf.ndim == 0 or leaf.shape[0] == 0:
            raise DataError(
                f"the example's tensor {'.'.join(path)!r} has shape {tuple(leaf.shape)}; every tensor of an "
                "example has its rows in dimension 0, at least one"
            )
        index = torch.arange(rows, device=leaf.device) % leaf.shape[0]
        return leaf.detach().index_select(0, index)

    args, kwargs = map_leaves(take, call)
    return args, kwargs


def same(a: Any, b: Any) -> bool:
    """Return whether two nested values hold the same bits, NaN included.

    >>> same({"a": torch.tensor([float("nan")])}, {"a": torch.tensor([float("nan")])})
    True
    """
    left, right = leaves(a), leaves(b)
    if len(left) != len(right):
        return False
    for (path, leaf), (other_path, other) in zip(left, right, strict=True):
        if path != other_path or not _same_leaf(leaf, other):
            return False
    return True


def _same_leaf(a: Any, b: Any) -> bool:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        # of other kinds of objects, each run of a model makes its own, and few know when they are equal
        return type(a) is type(b) and (a is b or not isinstance(a, int | float | str) or bool(a == b))
    if a.shape != b.shape or a.dtype != b.dtype or a.is_nested or b.is_nested:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())  # NaN is the only number that differs from itself
