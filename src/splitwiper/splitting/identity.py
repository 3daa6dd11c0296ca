"""The identity of a network: a digest of everything that decides what it computes, except for its weights.

Weights have digests of their own. This is about code and constants: a network with another number of heads, another
constant or another ``forward`` prints the same and has the same weights, but is another network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from splitwiper.errors import InputError
from splitwiper.seeding import digest
from splitwiper.splitting.code import versions
from splitwiper.splitting.describe import Describer
from splitwiper.splitting.halves import ClientAdapter, ClientHalf, ServerHalf
from splitwiper.splitting.plan import CutPlan

_KEPT = set(vars(nn.Module()))
"""Attributes of every module: states, children and hooks are examined separately, the mode does not count."""
_HOOKS = sorted(name for name in _KEPT if name.endswith("_hooks"))


def identity(module: nn.Module) -> str:
    """Return a digest of what a module computes, whatever its weights: its code, constants, hooks and structure.

    The user's code counts with everything it refers to, but not its layout or location. Library code counts by name
    and the library's version; torch and NumPy count by name only, since the numeric
    fingerprint has their versions. For a half, the modules that it executes and the cut count; the number of outputs
    does not, because a federation rebuilds the head for the labels it has.

    Notes:
        These are not seen, so a network should not compute with them: names that code looks up at run time
        (``globals()``, ``eval``, ``getattr`` on a library), annotations and docstrings; paths and loggers; targets of
        weak references only; the position of a generator function's iterator, or its arguments; a value
        assigned over a ``functools.cached_property``; and what an object in C does not provide when it is copied.
        Functions and layers of torch that a program replaced are in the numeric fingerprint (`splitwiper.patches`).
        Conversely, whatever a forward pass leaves in an attribute or in a global that its code reads (a table of
        results, a counter, an iterator that has moved on) makes another network. Results cached by ``functools``
        (``cache``, ``cached_property``, ``singledispatch``) do not.

    Args:
        module: any module, or a half.

    Raises:
        InputError: its constants are nested too deeply to follow.

    Example:
        >>> heads = [identity(nn.MultiheadAttention(8, number)) for number in (2, 2, 4)]
        >>> heads[0] == heads[1], heads[0] == heads[2]
        (True, False)
    """
    try:
        if isinstance(module, ClientAdapter):
            renaming = _network(nn.Module(), extra=[module._boundary, module._names])
            return digest("adapter", renaming, identity(module._core))
        if isinstance(module, ClientHalf):
            plan = module._plan
            extra = _sorted("client", plan.at, plan.boundary, plan.picks, plan.sides)
            return _network(module._core, idle=_idle(plan.before, plan.after), extra=extra)
        if isinstance(module, ServerHalf):
            plan = module._plan
            idle = _idle(plan.after, plan.before)
            return _network(module._core, idle=idle, head=module.output_layer_name, extra=_replayed(plan))
        return _network(module)
    except RecursionError as problem:
        raise InputError(
            f"the objects that {type(module).__name__} holds are nested too deeply to determine what it computes: "
            "remove objects from the module that it does not compute with."
        ) from problem


def code_identity(value: Any) -> str:
    """Return a digest of what a function, a class or an object computes, by the rules of `identity`."""
    return Describer(_loose, {}).of(value)


def libraries(module: nn.Module) -> str:
    """Return a remark about the libraries that a network's classes come from, to end "or a library it comes from"."""
    classes = chain.from_iterable(type(part).__mro__ for part in module.modules())
    installed = versions(cls.__module__ for cls in classes)
    return f" ({', '.join(installed)} {'is' if len(installed) == 1 else 'are'} installed here)" if installed else ""


def _replayed(plan: CutPlan) -> list[Any]:
    """Return everything besides the modules that the server half's replay depends on."""
    parts = [plan.at, plan.head, plan.boundary, plan.picks, plan.sides, plan.inputs, plan.output, plan.replies]
    return _sorted("server", *parts, plan.replaced, plan.dense, plan.rewind)


def _sorted(*parts: Any) -> list[Any]:
    """Return a plan's parts with sorted tables: they are filled in the order of sets, which varies by process."""
    return [sorted(part.items()) if isinstance(part, dict) else part for part in parts]


def _idle(here: frozenset[str], there: frozenset[str]) -> Callable[[str], bool]:
    """Return a test of whether a half never runs a module."""

    def idle(name: str) -> bool:
        # a module that is never called, as a list of layers is not, goes with the module around it
        while name and name not in here | there:
            name = name.rpartition(".")[0]
        return bool(name) and name not in here

    return idle


def _never(_name: str) -> bool:
    return False


def _network(
    core: nn.Module, *, idle: Callable[[str], bool] = _never, head: str | None = None, extra: Any = None
) -> str:
    """Return the digest of a module with all its children and states.

    Args:
        core: the module.
        idle: whether a child, by name, belongs to the other half: only that it is there counts.
        head: the output layer, of which the number of outputs does not count.
        extra: anything else that counts.
    """
    modules = dict(core.named_modules(remove_duplicate=False))
    states = []
    for state in _states(modules):
        if head is None or not state[0].startswith(f"{head}."):
            states.append(state)
    # The first name of each module and state. Where an attribute refers to one of them, its name is digested, and not
    # its contents: weights do not count, and a module is digested once, under its own name.
    names: dict[int, str] = {}
    for name, module in modules.items():
        names.setdefault(id(module), f"module {name}")
    for name, tensor, kept in states:
        if kept:
            names.setdefault(id(tensor), f"state {name}")
    describer = Describer(_loose, names)
    parts = [describer.of(extra)]
    for name, module in modules.items():
        if names[id(module)] != f"module {name}":  # the same module under a second name
            parts.append(digest(name, "is", names[id(module)]))
        elif name == head:  # replaced by a plain layer, with as many outputs as there are labels
            layer: Any = module
            parts.append(digest(name, layer.in_features, layer.bias is not None, str(layer.weight.dtype)))
        else:
            parts.append(digest(name, "elsewhere" if idle(name) else _alone(describer, module)))
    # Weights count by name, shape and dtype only; constants by their values. Two names for one memory location are
    # tied, which is part of what the network computes in training: both get the first one's name.
    places: dict[Any, str] = {}
    for name, tensor, kept in states:
        kind = describer.of(type(tensor)), describer.attributes(tensor)
        about = (name, *kind, str(tensor.dtype), tensor.requires_grad, kept)
        shape = ("lazy",) if is_lazy(tensor) else tuple(tensor.shape)
        value = "" if kept else describer.of(tensor)
        parts.append(digest(*about, *shape, places.setdefault(_place(tensor), name), value))
    return digest("network", *parts)


def _states(modules: dict[str, nn.Module]) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield parameters and buffers under all their names, and whether they are saved with the weights."""
    for name, module in modules.items():
        prefix = f"{name}." if name else ""
        for leaf, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                yield prefix + leaf, tensor, leaf not in module._non_persistent_buffers_set


def _place(tensor: Tensor) -> Any:
    """Return the memory location of a tensor's numbers: two names for one location are one weight."""
    # these have no address of their own: torch gives all empty tensors the same one, and the others none
    if is_lazy(tensor) or tensor.is_meta or tensor.layout != torch.strided or not tensor.numel():
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _alone(describer: Describer, module: nn.Module) -> str:
    """Return the digest of a module without its states and children: its class, attributes and hooks."""
    if isinstance(module, torch.jit.ScriptModule):
        return _script(describer, module)
    if "_orig_mod" in module._modules and type(module).__module__.startswith("torch._dynamo"):
        return digest("compiled")  # the module inside is digested itself
    hooks = []
    for name in _HOOKS:
        for key, hook in getattr(module, name).items():
            # torch keeps beside the hooks which of them take keywords, say: attributes with the same beginning
            marks = [other for other in _KEPT if other.startswith(f"{name}_") and key in getattr(module, other)]
            hooks.append([name, hook, sorted(marks)])
    return digest("module", describer.of(type(module)), describer.attributes(module, leave=_KEPT), describer.of(hooks))


def _script(describer: Describer, module: torch.jit.ScriptModule) -> str:
    """Return the digest of a module in TorchScript: its methods and hooks, and the attributes that these read."""
    core: Any = module._c
    methods = list(map(core._get_method, sorted(core._method_names())))
    held = {}
    for method in methods:
        graph = method.inlined_graph  # has a name here, because its nodes live no longer than it does
        for node in graph.findAllNodes("prim::GetAttr"):
            name = node.s("name")
            # states and children are digested under their own names, and the mode does not count
            registered = name in module._parameters or name in module._buffers or name in module._modules
            if name != "training" and not registered and core.hasattr(name):
                held[name] = core.getattr(name)
    hooks = []
    for kind in (core._get_forward_pre_hooks(), core._get_forward_hooks()):
        hooks.append(list(map(describer.script, kind)))
    code = describer.of([list(map(describer.script, methods)), hooks])
    return digest("script", code, describer.mapping(held))


def _registered(module: nn.Module) -> list[list[tuple[str, Any]]]:
    """Return the parameters, buffers and children of a module, by name."""
    return [list(kind.items()) for kind in (module._parameters, module._buffers, module._modules)]


def _loose(describer: Describer, module: nn.Module) -> str:
    """Return the digest of a module that is held without being registered: its weights are constants."""
    return digest("loose", _alone(describer, module), describer.of(_registered(module)))
