"""What bit-for-bit equality depends on besides the data: the fingerprint, and the context that pins it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager, nullcontext
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
"""Environment variables by which a user makes torch's libraries compute otherwise."""


_asked: ContextVar[int] = ContextVar("asked", default=0)
"""The number of threads that was asked for further out, as `verify` does, for all that is nested; 0 for none."""


def pick_device(name: str) -> torch.device:
    """The device a configuration asks for.

    Raises:
        ConfigError: the device is unknown or absent.
    """
    try:
        device = torch.device(name)
    except RuntimeError as problem:
        raise ConfigError(f"device {name!r} is not one torch knows; use 'cpu' or 'cuda'.") from problem
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is not supported; use 'cpu' or 'cuda'.")
    if device.type == "cuda":
        seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= seen:
            found = f"{seen} of them" if seen else "no GPU"
            raise ConfigError(
                f"device {name!r} was asked for, but torch sees {found}; go on where there is one, or start a new run "
                "with device = 'cpu'."
            )
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the fingerprint is taken, not only after
    return device


def device_at_hand(name: str) -> torch.device:
    """The device a configuration asks for, or the CPU where it is absent: for work whose bits nobody compares."""
    try:
        return pick_device(name)
    except ConfigError:
        return torch.device("cpu")


def prepare(*numerics: str) -> None:
    """Make ready for what settings ask for, before torch computes anything.

    Raises:
        ConfigError: one of them is 'portable', and that cannot be had here (any more).
    """
    if "portable" in numerics:
        portable.ensure()


@contextmanager
def reproducible(device: torch.device, threads: int, numerics: str = "native") -> Iterator[None]:
    """Pin everything of torch that the bits of a result depend on and a caller may have set; restore it afterwards.

    The number of threads (see `thread_count`), and the switches in `splitwiper.switches`. What cannot be pinned is in
    the fingerprint. With 'portable' numerics the libraries are pinned, too. One thread of a process at a time can be
    in here (see `splitwiper.exclusive`).

    Raises:
        ConfigError: as `prepare`.
    """
    prepare(numerics)  # first of all: what follows computes, and torch's libraries read their switches only once
    if device.type == "cuda":
        torch.cuda.init()  # so that isolated_rng saves and restores the GPU's generator too
    with (
        switches.pinned(device),
        portable.pinned() if numerics == "portable" else nullcontext(),
        # a thread that uses torch for the first time starts with the number that was set last, by whichever thread
        borrowed(torch.get_num_threads, torch.set_num_threads),
    ):
        token = _asked.set(threads or _asked.get())
        try:
            torch.set_num_threads(thread_count(threads, numerics))
            yield
        finally:
            _asked.reset(token)


@contextmanager
def isolated_call() -> Iterator[None]:
    """Do what a caller asks for, whatever its thread has set: see `splitwiper.switches.set_aside`.

    The number of threads stays the same throughout, even if a callback sets another one.
    """
    token = _asked.set(thread_count(0))
    try:
        with switches.set_aside():
            yield
    finally:
        _asked.reset(token)


@contextmanager
def asking_for(threads: int) -> Iterator[None]:
    """Have what is computed inside use so many threads where its settings name no number; nothing is held meanwhile."""
    token = _asked.set(threads)
    try:
        yield
    finally:
        _asked.reset(token)


def undisturbed(device: torch.device, numerics: str = "native") -> bool:
    """Whether everything is still as `reproducible` pinned it: threads that take no turns may have changed it."""
    return switches.still_pinned(device, portable=numerics == "portable")


def thread_count(threads: int, numerics: str = "native") -> int:
    """Threads to compute with: as asked, or for 0 as torch is set, but no more than this process may keep busy.

    Portable numerics have one. Within `isolated_call`, how torch is set when it begins is what counts.

    Torch counts the machine's cores; a container may be allowed a few of them, and threads that wait for each other's
    turn are slower than one.
    """
    if numerics == "portable":
        return 1
    return threads or _asked.get() or min(torch.get_num_threads(), _cores())


def _cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores this process may use: those it is bound to, and what its control group is allowed."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
        return min(bound, max(1, round(int(allowed) / int(period))))
    except (OSError, ValueError):  # no control group, or no limit ("max")
        return bound


def fingerprint(device: torch.device, threads: int, numerics: str = "native") -> dict[str, str]:
    """Everything besides the data and the context that the bits of a result depend on.

    Portable numerics name their profile in place of the processor, its instruction set and the switches it sets.

    Raises:
        ConfigError: as `prepare`.
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
        **_added(),
    }


def _added() -> dict[str, str]:
    """What a program has changed of torch, by name: hooks for all modules or optimisers, and functions it replaced."""
    found = {
        f"{hook.__module__}.{getattr(hook, '__qualname__', type(hook).__qualname__)}"
        for space in (import_module("torch.nn.modules.module"), import_module("torch.optim.optimizer"))
        for name, kept in vars(space).items()
        if name.startswith("_global_") and isinstance(kept, dict)
        for hook in kept.values()
        if callable(hook)
    }
    changed = {"hooks": sorted(found), "patches": patches()}
    return {what: " ".join(names) for what, names in changed.items() if names}


def _environment(without: Container[str] = ()) -> str:
    """The variables that are set of those by which a user makes torch's libraries compute otherwise."""
    unused = "OPENBLAS_CORETYPE" if torch.backends.mkl.is_available() else ""  # torch's BLAS is MKL then
    set_here = {k: v for k, v in os.environ.items() if _SWITCHES.fullmatch(k) and k != unused and k not in without}
    return " ".join(f"{name}={value}" for name, value in sorted(set_here.items()))


def _gpu_switches() -> str:
    """What a user may have set that a GPU's results depend on."""
    cuda, matmul = torch.backends.cuda, torch.backends.cuda.matmul
    return " ".join(
        f"{name}={value}"
        for name, value in {
            "cudnn": torch.backends.cudnn.version(),
            "tf32": torch.backends.cudnn.allow_tf32,
            "bf16_reduction": matmul.allow_bf16_reduced_precision_reduction,
            "fp16_reduction": matmul.allow_fp16_reduced_precision_reduction,
            "flash": cuda.flash_sdp_enabled(),
            "efficient": cuda.mem_efficient_sdp_enabled(),
            "math": cuda.math_sdp_enabled(),
        }.items()
    )


def _cpu_model() -> str:
    """The processor by name: libraries choose their kernels by it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor()
