"""Run a model once and record which operation read and wrote what, inside which module."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from splitwiper.errors import CutError
from splitwiper.splitting.trees import Call, Leaf, Path, map_leaves, named_inputs, same, tensors, with_rows

# These read only a tensor's shape and type: their results do not depend on its values.
_FACTORIES = {
    *("aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::empty_like"),
    *("aten::rand_like", "aten::randn_like", "aten::randint_like"),
    *("aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::new_empty", "aten::new_empty_strided"),
}
# These hand a tensor's values to Python, where they cannot be followed.
_SYNCS = {"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"}
# What can be rebuilt from itself.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_RECURRENT = {"aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::miopen_rnn"}


@dataclass(frozen=True)
class Op:
    """One operation: the storages it read and wrote, and the module call it ran in."""

    name: str
    reads: frozenset[int]
    writes: frozenset[int]
    inplace: frozenset[int]
    frame: int
    flops: int
    random: bool
    sync: bool


@dataclass(frozen=True)
class TracedTensor(Leaf):
    """A tensor as it was seen: its storage, shape and type."""

    key: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Opaque(Leaf):
    """A value that cannot be rebuilt from a description."""

    kind: str


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module: its frame, its caller's frame, the operations it spans, and its output."""

    name: str
    frame: int
    parent: int
    start: int
    stop: int
    output: Any


@dataclass(frozen=True)
class Trace:
    """Everything recorded in one run. ``calls`` are in the order in which they returned."""

    rows: int
    training: bool
    ops: tuple[Op, ...]
    calls: tuple[ModuleCall, ...]
    inputs: dict[str, TracedTensor]
    states: dict[str, int]
    changed: frozenset[str]
    """Buffers that the run changed."""
    unsaved: frozenset[str]
    """Tensors that the run changed and that are in no state dict."""
    output: Any

    @cached_property
    def by_frame(self) -> dict[int, ModuleCall]:
        """The calls by their frames."""
        return {call.frame: call for call in self.calls}

    def module_of(self, frame: int) -> str:
        """Return the name of the module that a frame is a call of; empty for the model's own code."""
        return self.by_frame[frame].name if frame in self.by_frame else ""


def states_of(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name, tied names included, in the order of registration."""
    states: dict[str, Tensor] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, value in (*module._parameters.items(), *module._buffers.items()):
            if value is not None:
                states[f"{prefix}.{name}" if prefix else name] = value
    return states


def _unsaved(model: nn.Module) -> dict[str, Tensor]:
    """Return tensors of modules that are not in their state dict: non-persistent buffers, and plain attributes."""
    tensors: dict[str, Tensor] = {}
    for prefix, module in model.named_modules():
        outside = dict(vars(module))
        for name in module._non_persistent_buffers_set:
            outside[name] = module._buffers[name]
        for name, value in outside.items():
            if isinstance(value, Tensor):
                tensors[f"{prefix}.{name}" if prefix else name] = value
    return tensors


@contextmanager
def isolated(seed: int, devices: list[torch.device]) -> Iterator[None]:
    """Seed the generators inside, and restore them afterwards."""
    cuda = sorted({device.index or 0 for device in devices if device.type == "cuda"})
    with torch.random.fork_rng(devices=cuda):
        # torch.manual_seed would also touch the generators of devices that nothing here uses.
        torch.default_generator.manual_seed(seed)
        for index in cuda:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


def devices_of(model: nn.Module, call: Call) -> list[torch.device]:
    """Return the devices of the model's state and inputs."""
    return list({tensor.device for tensor in (*states_of(model).values(), *tensors(call))})


class _Recorder(TorchDispatchMode):
    """Follows storages, not tensors, so that views and in-place changes need no special care."""

    def __init__(self) -> None:
        start: Any = super().__init__  # torch gives it no types
        start()
        self.ops: list[Op] = []
        self.calls: list[ModuleCall] = []
        self.stack: list[tuple[int, str, int]] = []  # frame, module name, first operation
        self.frames = 0
        self._alive: list[Tensor] = []  # keeps storages, because a freed one's address would be reused

    def key(self, tensor: Tensor) -> int:
        self._alive.append(tensor)
        try:
            return int(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):  # sparse and nested tensors have no storage
            return id(tensor)

    def describe(self, tree: Any) -> Any:
        return map_leaves(self._describe, tree)

    def _describe(self, path: Path, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            if leaf.is_nested or leaf.layout is not torch.strided:
                return Opaque("a nested tensor" if leaf.is_nested else f"a {leaf.layout} tensor")
            return TracedTensor(self.key(leaf), tuple(leaf.shape), leaf.dtype)
        return leaf if isinstance(leaf, _PLAIN) else Opaque(f"a {type(leaf).__name__}")

    def enter(self, name: str) -> None:
        self.frames += 1
        self.stack.append((self.frames, name, len(self.ops)))

    def leave(self, output: Any) -> None:
        frame, name, start = self.stack.pop()
        parent = self.stack[-1][0] if self.stack else 0
        self.calls.append(ModuleCall(name, frame, parent, start, len(self.ops), self.describe(output)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name
        changed = []
        for number, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:  # as in `add_` or ``out=``
                changed.append(args[number] if number < len(args) else kwargs.get(argument.name))
        inplace = self._keys(changed)
        self.ops.append(
            Op(
                name,
                reads=frozenset() if name in _FACTORIES else self._keys([*args, *kwargs.values()]),
                # views need no rule of their own: they have the storage of what they are views of
                writes=self._keys(out) | inplace,
                inplace=inplace,
                frame=self.stack[-1][0] if self.stack else 0,
                flops=_flops(func, name, args, kwargs, out),
                random=torch.Tag.nondeterministic_seeded in func.tags,
                sync=name in _SYNCS,
            )
        )
        return out

    def _keys(self, tree: Any) -> frozenset[int]:
        return frozenset(map(self.key, tensors(tree)))


def _flops(func: Any, name: str, args: Any, kwargs: Any, out: Any) -> int:
    """Count multiplications and additions of one operation; torch's registry lacks recurrent kernels."""
    formula = flop_registry.get(func._overloadpacket)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=out))
    if name == "aten::_scaled_dot_product_flash_attention_for_cpu":
        query, key, value = args[0].shape, args[1].shape, args[2].shape  # batch × heads × tokens × features
        return int(2 * query[:-1].numel() * key[-2] * (query[-1] + value[-1]))
    if name in _RECURRENT:
        weights = args[1:3] if name == "aten::mkldnn_rnn_layer" else args[1]
        steps = args[0].shape[:2].numel()  # every weight is used in each step of each sequence; biases are not counted
        return int(2 * steps * sum(weight.numel() for weight in weights if weight.ndim == 2))
    return 0


def _copied(model: nn.Module) -> nn.Module:
    """Copy the model, or say why that is impossible."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise CutError(f"module {name!r} is scripted, which hides its code; pass the module it was made from")
    for name, value in states_of(model).items():
        if nn.parameter.is_lazy(value):
            raise CutError(f"{name!r} is not initialised yet; run the model once on some rows before cutting it")
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        raise CutError(f"the model cannot be copied: {error}") from error


def trace(model: nn.Module, call: Call, *, rows: int, training: bool) -> Trace:
    """Run a copy of ``model`` on ``rows`` rows and record it.

    Raises:
        CutError: The model cannot be copied, or does not run on this many rows.
    """
    probe = _copied(model).train(training)
    recorder = _Recorder()
    for name, module in probe.named_modules():
        module.register_forward_pre_hook(lambda _m, _a, name=name: recorder.enter(name), prepend=True)
        module.register_forward_hook(lambda _m, _a, out: recorder.leave(out))
    call = with_rows(call, rows)
    inputs = {name: recorder._describe((), leaf) for name, leaf in named_inputs(probe, call)}
    states = {name: recorder.key(value) for name, value in states_of(probe).items()}
    with isolated(0, devices_of(probe, call)), torch.set_grad_enabled(training):
        try:
            with recorder:
                output = probe(*call[0], **call[1])
        except Exception as error:
            mode = "training" if training else "evaluation"
            raise CutError(
                f"the model does not run on {rows} rows of the example in {mode} mode "
                f"({type(error).__name__}: {error}); it must accept any number of rows"
            ) from error
    return Trace(
        rows,
        training,
        ops=tuple(recorder.ops),
        calls=tuple(recorder.calls),
        inputs=inputs,
        states=states,
        changed=_differing(
            dict(probe.named_buffers(remove_duplicate=False)), dict(model.named_buffers(remove_duplicate=False))
        ),
        unsaved=_differing(_unsaved(model), _unsaved(probe)),
        output=recorder.describe(output),
    )


def _differing(tensors: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the names of tensors that are not the same among the others."""
    return frozenset(name for name, tensor in tensors.items() if not same(tensor, others.get(name)))
