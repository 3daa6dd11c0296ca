"""Set torch's switches as training needs them, whatever the caller set, and restore them afterwards.

Some switches belong to the whole process and are held through `exclusive`; others belong to the thread that sets them.
What cannot be switched at any time (environment variables, hooks for all modules) is in the fingerprint instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parametrize

from splitwiper.exclusive import borrowed

_default_device: Any = torch._GLOBAL_DEVICE_CONTEXT  # one per thread
_DENORMAL = 5e-324
_DETERMINISTIC = 2
"""The debug mode in which operations without a deterministic algorithm are errors."""


@dataclass(frozen=True)
class Switch:
    """One switch of the process: how to read and set it, and its value in training."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    pinned: Any


def _attribute(holder: Any, name: str, pinned: Any) -> Switch:
    return Switch(lambda: getattr(holder, name), lambda value: setattr(holder, name, value), pinned)


def _everywhere() -> list[Switch]:
    """Return switches that results depend on, whatever the device."""
    einsum = torch.backends.opt_einsum
    usual = einsum.is_available()
    return [
        Switch(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, _DETERMINISTIC),
        # would cost a pass over memory for every new tensor
        _attribute(torch.utils.deterministic, "fill_uninitialized_memory", False),
        _attribute(torch.backends.cudnn, "benchmark", False),
        _attribute(torch.backends.cudnn, "enabled", True),
        _attribute(einsum, "enabled", usual),
        _attribute(einsum, "strategy", "auto" if usual else None),
        Switch(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        Switch(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, True),
        Switch(_anomaly, lambda mode: torch.autograd.set_detect_anomaly(*mode), (False, True)),
        # of half-precision attention, on any device
        Switch(
            torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
            torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp,
            False,
        ),
    ]


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _on_cpu(*, portable: bool) -> list[Switch]:
    """Return switches of the CPU's kernels; a GPU has others, which are in its fingerprint."""
    # oneDNN, NNPACK and fast attention choose kernels by the processor: portable numerics do without
    native = not portable
    attention = torch.backends.cuda  # these switches hold for the CPU, too
    switches = [
        Switch(attention.flash_sdp_enabled, attention.enable_flash_sdp, native),
        Switch(attention.math_sdp_enabled, attention.enable_math_sdp, True),
        Switch(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, native),
        Switch(torch._C._get_mkldnn_deterministic, torch._C._set_mkldnn_deterministic, False),
        Switch(torch._C._get_nnpack_enabled, torch._C._set_nnpack_enabled, native),
    ]
    if not hasattr(torch._C, "_get_fp32_precision_getter"):  # before torch 2.9
        return [*switches, Switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")]
    return [*switches, *(_precision(work) for work in ("matmul", "conv", "rnn"))]


def _precision(work: str) -> Switch:
    """Return the switch for oneDNN's precision with float32, for one kind of work.

    If a kind of work has no precision of its own, it reads as the general one. It is then restored to having none, so
    that a general precision that the caller sets afterwards applies to it.
    """

    def write(value: str) -> None:
        general = torch._C._get_fp32_precision_getter("mkldnn", "all")
        torch._C._set_fp32_precision_setter("mkldnn", work, "none" if value == general else value)

    return Switch(lambda: torch._C._get_fp32_precision_getter("mkldnn", work), write, "ieee")


def _switches(device: torch.device, *, portable: bool) -> list[Switch]:
    return _everywhere() + (_on_cpu(portable=portable) if device.type == "cpu" else [])


def still_pinned(device: torch.device, *, portable: bool = False) -> bool:
    """Return whether the process's switches are where `pinned` put them; another thread may have changed them."""
    switches = _switches(device, portable=portable)
    return not parametrize._cache_enabled and all(switch.read() == switch.pinned for switch in switches)


@contextmanager
def pinned(device: torch.device, *, portable: bool = False) -> Iterator[None]:
    """Set all switches as training needs them, with native or portable numerics, and restore them afterwards."""
    switches = _switches(device, portable=portable)

    def read() -> list[Any]:
        return [switch.read() for switch in switches]

    def write(values: list[Any]) -> None:
        for switch, value, now in zip(switches, values, read(), strict=True):
            if value != now:
                switch.write(value)

    with borrowed(read, write), _parametrisations_computed(), set_aside():
        write([switch.pinned for switch in switches])
        with _no_autocast("cuda", torch.float16) if device.type == "cuda" else nullcontext():
            yield


class _Uncached:
    """How many uses of `parametrize.cached()` do not count at present: inside it, weights stay as before training.

    torch counts them for the whole process. Other threads may enter and leave it meanwhile, so the count is not
    restored to what it was, but increased by what it was decreased by.
    """

    count = 0

    @classmethod
    def set(cls, count: int) -> None:
        """Leave so many out of torch's count."""
        parametrize._cache_enabled += cls.count - count
        cls.count = count


@contextmanager
def _parametrisations_computed() -> Iterator[None]:
    with borrowed(lambda: _Uncached.count, _Uncached.set):
        _Uncached.set(_Uncached.count + parametrize._cache_enabled)
        yield


@contextmanager
def set_aside() -> Iterator[None]:
    """Disable what the caller's thread has set in torch and NumPy; other threads are not affected.

    This covers autocast, inference mode, disabled gradients, a default device, modes that intercept calls or
    operations, hooks for tensors saved for backward passes, NumPy's handling of overflows, and whether denormal numbers
    become zero, in rows as in training.
    """
    with (
        _no_modes(),
        _no_saved_tensor_hooks(),
        np.errstate(all="ignore"),
        _no_autocast("cpu", torch.bfloat16),
        torch.inference_mode(False),
        torch.enable_grad(),
        _denormals_kept(),
    ):
        yield


def _no_autocast(device: str, dtype: torch.dtype) -> torch.autocast:
    """Switch autocast off; a network that switches it on itself finds torch's usual dtype.

    It finds no cache: torch empties it where autocast ends, and here that is at the end of a call, so that weights that
    were cast before a step would still be used after it.
    """
    return torch.autocast(device, dtype=dtype, enabled=False, cache_enabled=False)


@contextmanager
def _no_modes() -> Iterator[None]:
    # Stacks are touched only if something is on them: torch uses faster kernels if there never was.
    default, functions = getattr(_default_device, "device_context", None), _pop_functions()
    if functions:
        _default_device.device_context = None
    try:
        with ExitStack() as stack:
            if torch._C._len_torch_dispatch_stack():
                from torch.utils._python_dispatch import _disable_current_modes  # slow to import

                stack.enter_context(_disable_current_modes())
            yield
    finally:
        if functions:
            _pop_functions()  # what a callback set as default device
            for mode in reversed(functions):
                torch._C._push_on_torch_function_stack(mode)
            _default_device.device_context = default


def _pop_functions() -> list[Any]:
    """Pop the modes that intercept calls, including the default device; the innermost first."""
    return [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]


@contextmanager
def _no_saved_tensor_hooks() -> Iterator[None]:
    autograd = torch._C._autograd
    hooks = []
    while (top := autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(pack, unpack)


@contextmanager
def _denormals_kept() -> Iterator[None]:
    flushed = _flushes()
    if flushed:
        torch.set_flush_denormal(False)
    try:
        yield
    finally:
        if _flushes() != flushed:
            torch.set_flush_denormal(flushed)


def _flushes() -> bool:
    """Whether this thread makes denormal numbers zero; found without torch, which is asked before it may compute."""
    # results that are denormal, and arguments that are: processors have a mode for each
    return sys.float_info.min / 2 == 0 or 2 * _DENORMAL == 0
