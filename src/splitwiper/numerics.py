"""What bit-for-bit equality depends on besides the data: the fingerprint, and the context that pins it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from splitwiper.errors import ConfigError

_SWITCHES = re.compile(r"(?!MKL_NUM_THREADS)(MKL|ONEDNN|DNNL|ATEN|CUBLAS|NVIDIA_TF32)_\w+")
"""Environment variables by which a user makes torch's libraries compute otherwise."""


def pick_device(name: str) -> torch.device:
    """The device a configuration asks for.

    Raises:
        ConfigError: the device is unknown or absent.
    """
    try:
        device = torch.device(name)
    except RuntimeError as problem:
        raise ConfigError(f"device {name!r} is not one torch knows; use 'cpu' or 'cuda'.") from problem
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} was asked for, but torch sees no GPU; set device = 'cpu'.")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is not supported; use 'cpu' or 'cuda'.")
    return device


@contextmanager
def reproducible(device: torch.device, threads: int) -> Iterator[None]:
    """Pin everything of torch that the bits of a result depend on and a caller may have set; restore it afterwards.

    Deterministic algorithms, the number of threads (0: as torch is set), the default dtype, no autocast, no inference
    mode. What cannot be pinned is in the fingerprint.
    """
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
        torch.get_num_threads(),
        torch.get_default_dtype(),
    )
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.cuda.init()  # so that isolated_rng saves and restores the GPU's generator too
    try:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        torch.set_default_dtype(torch.float32)
        if threads:
            torch.set_num_threads(threads)
        with (
            torch.autocast(device.type, enabled=False),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = before[2]
        torch.set_num_threads(before[3])
        torch.set_default_dtype(before[4])


def fingerprint(device: torch.device, threads: int) -> dict[str, str]:
    """Everything besides the data and the context that the bits of a result depend on."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": f"{device.type} {gpu}".strip(),
        "cuda": torch.version.cuda or "none",
        "machine": f"{platform.machine()} {_cpu_model()}".strip(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "threads": str(threads or torch.get_num_threads()),
        "world_size": "1",
        "deterministic": "true",
        "mkldnn": str(torch.backends.mkldnn.is_available() and getattr(torch.backends.mkldnn, "enabled", True)).lower(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "environment": " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if _SWITCHES.fullmatch(k)),
    }


def _cpu_model() -> str:
    """The processor by name: libraries choose their kernels by it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor()
