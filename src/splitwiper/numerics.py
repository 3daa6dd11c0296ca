"""Everything besides the data that bit-for-bit equality depends on: the fingerprint, and the context that pins it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path

import numpy as np
import torch

from splitwiper import portable, switches
from splitwiper.errors import ConfigError
from splitwiper.exclusive import borrowed
from splitwiper.patches import patches

NUMERICS = ("native", "portable")
_SWITCHES = re.compile(
    r"(?!MKL_NUM_THREADS)(MKL|ONEDNN|DNNL|ATEN|CUBLAS|NVIDIA_TF32|TORCH_BLAS|TORCH_ALLOW_TF32)_\w+"
    r"|OMP_(DYNAMIC|THREAD_LIMIT|MAX_ACTIVE_LEVELS)|KMP_(ALL_THREADS|\w*THREAD_LIMIT|DYNAMIC_MODE)|OPENBLAS_CORETYPE"
)
"""Environment variables by which a user changes how torch's libraries compute."""
_SHARE = 1 << 15
"""Numbers that torch gives to one thread at least."""

_asked: ContextVar[int] = ContextVar("asked", default=0)
"""The number of threads requested by an enclosing call, such as `verify`; 0 for none."""


def pick_device(name: str) -> torch.device:
    """Return the device that a configuration names, or raise `ConfigError` if it is unknown or absent."""
    try:
        device = torch.device(name)
    except RuntimeError as problem:
        raise ConfigError(f"device {name!r} is not one torch knows; use 'cpu' or 'cuda'.") from problem
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is not supported; use 'cpu' or 'cuda'.")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            seen = f"{count} of them" if count else "no GPU"
            raise ConfigError(
                f"device {name!r} was asked for, but torch sees {seen}; continue where there is one, or start a new "
                "run with device = 'cpu'."
            )
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the fingerprint is taken
    return device


def device_at_hand(name: str) -> torch.device:
    """Return the device that a configuration names, or the CPU if it is absent: for results that need not be exact."""
    try:
        return pick_device(name)
    except ConfigError:
        return torch.device("cpu")


def prepare(*numerics: str) -> None:
    """Prepare what the settings require, before torch computes anything; 'portable' may not be available here."""
    if "portable" in numerics:
        portable.ensure()


@contextmanager
def reproducible(device: torch.device, threads: int, numerics: str = "native") -> Iterator[None]:
    """Pin every setting of torch that a result's bits depend on and a caller may have changed; restore them afterwards.

    These are the number of threads (see `thread_count`) and the switches in `splitwiper.switches`. What cannot be
    pinned is in the fingerprint. With 'portable' numerics the libraries are pinned, too. One thread of a process at a
    time can be in here (see `splitwiper.exclusive`).
    """
    prepare(numerics)  # first: the code below computes, and torch's libraries read their switches only once
    if device.type == "cuda":
        torch.cuda.init()  # so that isolated_rng saves and restores the GPU's generator too
    with (
        switches.pinned(device, portable=numerics == "portable"),
        # a thread's first use of torch starts with the number of threads set last, by any thread
        borrowed(torch.get_num_threads, torch.set_num_threads),
        asking_for(threads or _asked.get()),
    ):
        torch.set_num_threads(thread_count(threads, numerics))
        yield


@contextmanager
def isolated_call() -> Iterator[None]:
    """Run a caller's request whatever its thread has set: see `splitwiper.switches.set_aside`.

    The number of threads stays the same throughout, even if a callback changes it.
    """
    with asking_for(thread_count(0)), switches.set_aside():
        yield


@contextmanager
def asking_for(threads: int) -> Iterator[None]:
    """Make computations inside use this many threads if their settings name no number; nothing is held meanwhile."""
    token = _asked.set(threads)
    try:
        yield
    finally:
        _asked.reset(token)


def still_as_pinned(device: torch.device, numerics: str = "native") -> bool:
    """Return whether everything is still as `reproducible` pinned it: threads that take no turns may change it."""
    return switches.still_pinned(device, portable=numerics == "portable")


def thread_count(threads: int, numerics: str = "native") -> int:
    """Return the number of threads to compute with: as given, or for 0 torch's setting, limited to the available cores.

    Portable numerics use one. Within `isolated_call`, torch's setting at its beginning counts.

    Torch counts the machine's cores, but a container may be limited to a few, and threads that wait for each other's
    turn are slower than one.
    """
    if numerics == "portable":
        return 1
    return threads or _asked.get() or min(torch.get_num_threads(), _cores())


def _cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the number of cores this process may use: by its affinity and its control group's quota."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
        return min(bound, max(1, round(int(allowed) / int(period))))
    except (OSError, ValueError):  # no control group, or no limit ("max")
        return bound


def fingerprint(device: torch.device, threads: int, numerics: str = "native") -> dict[str, str]:
    """Return everything besides the data and the context that a result's bits depend on.

    Portable numerics name their profile in place of the processor, its instruction set and the switches it sets.
    """
    if numerics == "portable":
        portable.ensure()
        return {
            "numerics": portable.PROFILE,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "libm": portable.libm(),
            "device": "cpu",
            "threads": "1",
            "world_size": "1",
            "deterministic": "true",
            "environment": _environment(without=portable.SWITCHES),
            **_added(),
        }
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": f"{device.type} {gpu}".strip(),
        "cuda": torch.version.cuda or "none",
        "machine": f"{platform.machine()} {_cpu_model()}".strip(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "threads": str(thread_count(threads)),
        "world_size": "1",
        "deterministic": "true",
        "mkldnn": str(torch.backends.mkldnn.is_available()).lower(),
        "matmul_precision": torch.get_float32_matmul_precision() if gpu else "highest",
        "gpu_switches": _gpu_switches() if gpu else "none",
        "environment": _environment(),
        **({"denormals": "zero in some threads"} if _flushed(thread_count(threads)) else {}),
        **_added(),
    }


def _flushed(threads: int) -> bool:
    """Return whether threads that torch computes with, besides this one, make denormal numbers zero.

    They keep what the thread that started them had set then, and nothing can change it.
    """
    if threads == 1:
        return False
    with borrowed(torch.get_num_threads, torch.set_num_threads), switches.set_aside():
        torch.set_num_threads(threads)
        # the bits of the integer 1 are the smallest denormal number; there are enough of them for every thread
        smallest = torch.ones(threads * _SHARE, dtype=torch.int32).view(torch.float32)
        return not bool((smallest * 1.0).view(torch.int32).all())


def _added() -> dict[str, str]:
    """Return what a program has changed in torch, by name: global hooks of modules or optimisers, and patches."""
    hooks: set[str] = set()
    for module in (import_module("torch.nn.modules.module"), import_module("torch.optim.optimizer")):
        for name, kept in vars(module).items():
            if not name.startswith("_global_") or not isinstance(kept, dict):
                continue
            for hook in filter(callable, kept.values()):
                hooks.add(f"{hook.__module__}.{getattr(hook, '__qualname__', type(hook).__qualname__)}")
    added: dict[str, str] = {}
    for kind, names in (("hooks", sorted(hooks)), ("patches", patches())):
        if names:  # left out if empty, as in fingerprints of older versions
            added[kind] = " ".join(names)
    return added


def _environment(without: Container[str] = ()) -> str:
    """Return the variables in use by which a user changes how torch's libraries compute."""
    unused = "OPENBLAS_CORETYPE" if torch.backends.mkl.is_available() else ""  # torch's BLAS is MKL then
    used = []
    for name, value in sorted(os.environ.items()):
        if _SWITCHES.fullmatch(name) and name != unused and name not in without:
            used.append(f"{name}={value}")
    return " ".join(used)


def _gpu_switches() -> str:
    """Return the user's settings that a GPU's results depend on."""
    cuda, matmul = torch.backends.cuda, torch.backends.cuda.matmul
    values = {
        "cudnn": torch.backends.cudnn.version(),
        "tf32": torch.backends.cudnn.allow_tf32,
        "bf16_reduction": matmul.allow_bf16_reduced_precision_reduction,
        "fp16_reduction": matmul.allow_fp16_reduced_precision_reduction,
        "flash": cuda.flash_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }
    return " ".join(f"{name}={value}" for name, value in values.items())


def _cpu_model() -> str:
    """Return the processor's name: libraries choose their kernels by it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor()
