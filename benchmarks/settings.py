"""What a program may have set in torch, NumPy and Python around a call, as contexts that set it and put it back."""

from __future__ import annotations

import gc
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Setting = Callable[[], AbstractContextManager[Any]]


@contextmanager
def switched(read: Callable[[], Any], write: Callable[[Any], object], value: Any) -> Iterator[None]:
    """Have a switch at a value for a while."""
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


class Scaling(TorchFunctionMode):
    """A mode of the caller's that changes what linear layers return."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found * 1.5 if func is nn.functional.linear else found


class Shifting(TorchDispatchMode):
    """A mode of the caller's that changes what matrix products return."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found + 1e-3 if "addmm" in str(func) else found


def _hook(register: Callable[[Any], Any], hook: Any) -> Setting:
    @contextmanager
    def hooked() -> Iterator[None]:
        handle = register(hook)
        try:
            yield
        finally:
            handle.remove()

    return hooked


def _scaled(_module: nn.Module, _given: Any, told: Any) -> Any:
    # enough to change bits; far more, and training would fail for a reason of its own
    return told * 1.01 if isinstance(told, Tensor) and told.is_floating_point() else None


def _rounded() -> AbstractContextManager[Any]:
    """Hooks that keep what backward passes need in half precision."""
    return torch.autograd.graph.saved_tensors_hooks(
        lambda x: x.half().float() if x.is_floating_point() else x, lambda x: x
    )


@contextmanager
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _idle_thread() -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def draw() -> None:
    """Draw from every global generator."""
    torch.rand(3), np.random.rand(3), random.random()  # noqa: S311


_module = torch.nn.modules.module
_sdp = torch.backends.cuda  # its switches hold for the CPU, too


def _switch(read: Callable[[], Any], write: Callable[[Any], object], value: Any) -> Setting:
    return partial(switched, read, write, value)


SETTINGS: Mapping[str, Setting] = {
    "default dtype float64": _switch(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default dtype bfloat16": _switch(torch.get_default_dtype, torch.set_default_dtype, torch.bfloat16),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast switched on": _switch(
        partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu"), True
    ),
    "autocast dtype": _switch(
        partial(torch.get_autocast_dtype, "cpu"), partial(torch.set_autocast_dtype, "cpu"), torch.float16
    ),
    "no autocast cache": _switch(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "default device": _switch(lambda: None, torch.set_default_device, "meta"),
    "device context": lambda: torch.device("meta"),
    "function mode": Scaling,
    "dispatch mode": Shifting,
    "hooks for saved tensors": _rounded,
    "anomaly detection": torch.autograd.detect_anomaly,
    "no flash attention": _switch(_sdp.flash_sdp_enabled, _sdp.enable_flash_sdp, False),
    "no plain attention": _switch(_sdp.math_sdp_enabled, _sdp.enable_math_sdp, False),
    "sums of half precision in attention": _switch(
        _sdp.fp16_bf16_reduction_math_sdp_allowed, _sdp.allow_fp16_bf16_reduction_math_sdp, True
    ),
    "parametrised weights kept": parametrize.cached,
    "no fast path": _switch(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, False),
    "denormals flushed": _switch(lambda: False, torch.set_flush_denormal, True),
    "1 thread": _switch(torch.get_num_threads, torch.set_num_threads, 1),
    "3 threads": _switch(torch.get_num_threads, torch.set_num_threads, 3),
    "matmul precision": _switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "no oneDNN": _switch(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, False),
    "no NNPACK": lambda: torch.backends.nnpack.flags(enabled=False),
    "no cuDNN": lambda: torch.backends.cudnn.flags(enabled=False),
    "deterministic": _switch(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 2),
    "deterministic, warn only": _switch(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1),
    "no threads in backward": lambda: torch.autograd.set_multithreading_enabled(False),
    "global forward hook": _hook(_module.register_module_forward_hook, _scaled),
    "global backward hook": _hook(_module.register_module_full_backward_hook, lambda *_: None),
    "seeded anew": _switch(torch.get_rng_state, torch.set_rng_state, torch.get_rng_state()),
    "NumPy raises": lambda: np.errstate(all="raise"),
    "warnings are errors": _warnings_are_errors,
    "no garbage collection": _no_collection,
    "recursion limit": _switch(sys.getrecursionlimit, sys.setrecursionlimit, 5000),
    "another thread": _idle_thread,
}
"""By name. What is set outside calls is put back when the context ends."""
NOT_COMPARABLE = ("global forward hook", "global backward hook")
"""Those that cannot be pinned: results made under them are in their fingerprint."""
CALLBACKS: Mapping[str, Callable[[], object]] = {
    "callback draws": draw,
    "callback seeds": lambda: torch.manual_seed(1),
    "callback sets the dtype": lambda: torch.set_default_dtype(torch.float64),
    "callback sets threads": lambda: torch.set_num_threads(3),
    "callback allows what is not deterministic": lambda: torch.use_deterministic_algorithms(False),
    "callback switches autocast on": lambda: torch.set_autocast_enabled("cpu", True),
    "callback switches gradients off": lambda: torch.set_grad_enabled(False),
    "callback switches oneDNN off": lambda: torch._C._set_mkldnn_enabled(False),
    "callback flushes denormals": lambda: torch.set_flush_denormal(True),
    "callback sets the device": lambda: torch.set_default_device("meta"),
}
"""What a callback for progress may do at every step."""
ENVIRONMENTS: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "OMP_DYNAMIC": "TRUE",
    "OMP_THREAD_LIMIT": "1",
    "OMP_MAX_ACTIVE_LEVELS": "0",
    "OMP_SCHEDULE": "dynamic",
    "OMP_PROC_BIND": "true",
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "0",
    "GOMP_CPU_AFFINITY": "0",
    "KMP_BLOCKTIME": "0",
    "KMP_AFFINITY": "compact",
    "KMP_DEVICE_THREAD_LIMIT": "1",
    "MKL_NUM_THREADS": "1",
    "MKL_DYNAMIC": "TRUE",
    "MKL_CBWR": "COMPATIBLE",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "ATEN_CPU_CAPABILITY": "default",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "NPY_DISABLE_CPU_FEATURES": "AVX2",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "7",
    "PYTHONOPTIMIZE": "1",
    "PYTHONMALLOC": "debug",
    "PYTHONUTF8": "1",
    "LC_ALL": "tr_TR.UTF-8",
    "TZ": "Asia/Kolkata",
}
"""Variables that are set for a whole process."""
CHOOSES_KERNELS = (
    "OMP_DYNAMIC",
    "OMP_THREAD_LIMIT",
    "OMP_MAX_ACTIVE_LEVELS",
    "KMP_DEVICE_THREAD_LIMIT",
    "MKL_DYNAMIC",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
)
"""Those that nothing can undo once torch is loaded: they are in the fingerprint."""
