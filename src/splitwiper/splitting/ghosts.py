"""Modules that can be replayed: absent states and skipped calls answer with ghosts.

A half is a copy of the model in which some modules get a class of their own, derived from their previous one. Hooks
would do as well, but they disable torch's fast paths and are visible to the user. Outside a half's forward pass, these
modules behave as before.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from splitwiper.errors import CutError
from splitwiper.splitting.specs import Ghost, Received
from splitwiper.splitting.trace import states_of
from splitwiper.splitting.trees import Path, map_leaves


class Reached(BaseException):
    """Raised when the client half has computed the cut; not an Exception, so that no model catches it."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output


@dataclass
class Role:
    """A module's role in a half: the states it lacks, the outputs it replays, and whether it is the cut."""

    name: str
    absent: dict[str, Ghost] = field(default_factory=dict)
    replies: tuple[Any, ...] = ()
    cut: bool = False


class Running(Protocol):
    """One forward pass of a half."""

    def ghost(self, ghost: Ghost) -> Tensor:
        """Return a tensor with the ghost's shape and type."""

    def call(self, role: Role, plain: Any, args: Any, kwargs: Any) -> Any:
        """Answer for a module, or call it."""


# Per thread and per task, so that halves can run in parallel.
RUN: ContextVar[Running | None] = ContextVar("splitwiper_run", default=None)


class Ghostly(nn.Module):
    """Mixed into the class of a module that has a role."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Play the module's role while a half runs; otherwise call it."""
        run, role = RUN.get(), self.__dict__.get("_role")
        if run is None or role is None:
            return super().__call__(*args, **kwargs)
        return run.call(role, super().__call__, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        role = self.__dict__.get("_role")
        if role is None or name not in role.absent:
            return super().__getattr__(name)
        run = RUN.get()
        if run is None:
            raise AttributeError(f"{name!r} of module {role.name!r} belongs to the other half")
        return run.ghost(role.absent[name])

    def __setattr__(self, name: str, value: Any) -> None:
        role = self.__dict__.get("_role")
        if role is None or name not in role.absent:  # `self.count = self.count + 1` on a ghost leaves no trace
            super().__setattr__(name, value)

    def extra_repr(self) -> str:
        """Return the module's description; some modules read states that this half lacks."""
        try:
            return super().extra_repr()
        except AttributeError:
            return "held by the other half"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        # Some modules (batch norm) read their own states while loading. If all of them are absent, there is nothing to
        # load, and any key given for them is unexpected.
        role = self.__dict__.get("_role")
        if role is None or not role.absent or self._parameters or self._buffers:
            super()._load_from_state_dict(state_dict, prefix, *rest)
            return
        unexpected = rest[3]
        unexpected += [key for key in state_dict if key.startswith(prefix) and "." not in key[len(prefix) :]]


class _Numbers:
    """The single number behind every ghost of a type: expanded, a ghost takes no memory whatever its shape."""

    def __init__(self, device: torch.device, fill: float) -> None:
        self._device, self._fill = device, fill
        self._made: dict[torch.dtype, Tensor] = {}

    def expanded(self, shape: tuple[int, ...], dtype: torch.dtype, requires_grad: bool) -> Tensor:
        number = self._made.get(dtype)
        if number is None:
            known = dtype.is_floating_point or dtype.is_complex or self._fill == self._fill
            fill = self._fill if known else 0  # an integer cannot be NaN
            number = self._made[dtype] = torch.full((), fill, dtype=dtype, device=self._device)
        tensor = number.expand(shape)
        return tensor.requires_grad_() if requires_grad else tensor


class ClientRun:
    """Runs the model up to the cut."""

    def __init__(self, device: torch.device, fill: float) -> None:
        self._numbers = _Numbers(device, fill)

    def ghost(self, ghost: Ghost) -> Tensor:
        """Return a tensor with the ghost's shape and type."""
        return self._numbers.expanded(ghost.shape(0), ghost.dtype, ghost.requires_grad)

    def call(self, role: Role, plain: Any, args: Any, kwargs: Any) -> Any:
        """Call the module; stop after the cut."""
        output = plain(*args, **kwargs)
        if role.cut:
            raise Reached(output)
        return output


class ServerRun:
    """Replays everything before the cut with ghosts, and computes everything after it."""

    def __init__(
        self,
        received: Mapping[str, Tensor],
        output: Any,
        *,
        rows: int,
        fill: float,
        dense: bool,
        rewind: bool,
        cast: Mapping[torch.dtype, torch.dtype],
    ) -> None:
        first = next(iter(received.values()))
        self.past = False
        self._received, self._output, self._cast = received, output, cast
        self._rows, self._dense, self._numbers = rows, dense, _Numbers(first.device, fill)
        self._counts: dict[str, int] = {}
        self._generators = _generators(first.device) if rewind else []
        self._states = list(map(torch.Generator.get_state, self._generators))

    def ghost(self, ghost: Ghost) -> Tensor:
        """Return a tensor with the ghost's shape and type."""
        dtype = self._cast.get(ghost.dtype, ghost.dtype)
        tensor = self._numbers.expanded(ghost.shape(self._rows), dtype, ghost.requires_grad)
        return tensor.clone(memory_format=torch.contiguous_format) if self._dense else tensor

    def filled(self, template: Any) -> Any:
        """Return the template with received tensors and ghosts filled in."""
        return map_leaves(self._leaf, template)

    def _leaf(self, path: Path, leaf: Any) -> Any:
        if isinstance(leaf, Ghost):
            return self.ghost(leaf)
        return self._received[leaf.name] if isinstance(leaf, Received) else leaf

    def call(self, role: Role, plain: Any, args: Any, kwargs: Any) -> Any:
        """Return a ghost before the cut, the received tensors at the cut, and the module's own output after it."""
        if role.cut:
            self.past = True
            # What the code around the cut drew on the way here, the client half has drawn too: with the generators as
            # they were, what follows draws what it would draw in a training that begins behind the cut.
            for generator, state in zip(self._generators, self._states, strict=True):
                generator.set_state(state)
            return self.filled(self._output)
        if self.past or not role.replies:
            return plain(*args, **kwargs)
        # by the number of the call, since a module that is called several times may return different shapes
        count = self._counts[role.name] = self._counts.get(role.name, 0) + 1
        return self.filled(role.replies[min(count, len(role.replies)) - 1])


def _generators(device: torch.device) -> list[torch.Generator]:
    cuda = [torch.cuda.default_generators[device.index or 0]] if device.type == "cuda" else []
    return [torch.default_generator, *cuda]


def haunt(
    model: nn.Module,
    *,
    at: str,
    absent: Iterable[str],
    constant: Iterable[str] = (),
    replies: Mapping[str, tuple[Any, ...]] | None = None,
) -> nn.Module:
    """Copy ``model`` without the states in ``absent``; the modules concerned play their roles.

    Args:
        model: The model to copy.
        at: The cut module.
        absent: States that the copy must not hold.
        constant: Buffers that it holds without owning them: they stay out of its state dict.
        replies: The outputs that modules before the cut replay.

    Raises:
        CutError: A module's class cannot be subclassed, such as that of a scripted module.
    """
    states = states_of(model)
    # `deepcopy` looks an object up in the memo before it copies it.
    # Listed in the memo beforehand, an absent state is not copied, wherever the model refers to it.
    memo = {id(states[name]): torch.empty_like(states[name], device="meta") for name in absent}
    core = copy.deepcopy(model, memo)
    modules = dict(core.named_modules(remove_duplicate=False))
    roles: dict[nn.Module, Role] = {modules[at]: Role(at, cut=True)}  # by module: it may have several names
    for name, outputs in (replies or {}).items():
        roles.setdefault(modules[name], Role(name)).replies = outputs
    for name in absent:
        owner, _, leaf = name.rpartition(".")
        state, module = states[name], modules[owner]
        role = roles.setdefault(module, Role(owner))
        role.absent[leaf] = Ghost(tuple((size, 0) for size in state.shape), state.dtype, state.requires_grad)
        module._parameters.pop(leaf, None)
        module._buffers.pop(leaf, None)
        module._non_persistent_buffers_set.discard(leaf)
    for name in constant:
        owner, _, leaf = name.rpartition(".")
        modules[owner]._non_persistent_buffers_set.add(leaf)
    _give(roles)
    return core


def _give(roles: Mapping[nn.Module, Role]) -> None:
    """Give modules their roles: each gets a class of its own, derived from its previous one."""
    classes: dict[type, type] = {}  # modules of one class still have one class afterwards
    for module, role in roles.items():
        base = type(module)
        if base not in classes:
            classes[base] = type(base.__name__, (Ghostly, base), {"__module__": base.__module__})
        try:
            module.__class__ = classes[base]
        except TypeError as error:
            raise CutError(f"{role.name!r}, a {base.__name__}, cannot be replayed: {error}") from error
        module.__dict__["_role"] = role
