"""Where the time goes: kernels on the GPU by kind, and what the host does meanwhile."""

from __future__ import annotations

import cProfile
import pstats
import re
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

KINDS = (
    ("convolutions and products", r"xmma|gemm|conv|wgrad|dgrad|fprop|cutlass|cublas|nvjet"),
    ("batch norm", r"batch_norm|bn_"),
    ("pooling", r"pool"),
    ("optimiser", r"fused|multi_tensor"),
    ("gathering rows", r"index|gather"),
    ("copies to and from the GPU", r"Memcpy|Memset"),
)
HOST = (
    ("waiting for the GPU", r"synchronize|'item'|'cpu' of|_cuda_"),
    ("hashing and HMACs", r"_hashlib|hmac"),
    ("writing and syncing files", r"fsync|'write' of|'flush'|unlink|rename"),
    ("reading files", r"'read' of|readinto|'take' of"),
    ("the database", r"sqlite3"),
    ("launching work on the GPU", r"torch|graphs.py"),
)


def on_gpu(work: Callable[[], Any]) -> dict[str, Any]:
    """Milliseconds of kernels by kind, the largest first, and the share of the time that the GPU was busy."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        wall = time.perf_counter() - start
    out: dict[str, float] = {}
    for event in seen.key_averages():
        kind = next((kind for kind, names in KINDS if re.search(names, event.key)), "other element-wise work")
        out[kind] = out.get(kind, 0.0) + event.self_device_time_total / 1000
    busy = sum(out.values()) / 1000
    return {"milliseconds": dict(sorted(out.items(), key=lambda item: -item[1])), "busy": busy / wall, "wall": wall}


def on_host(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds of the main thread by kind, the largest first."""
    watch = cProfile.Profile()
    watch.enable()
    work()
    watch.disable()
    out: dict[str, float] = {}
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(watch).stats.items():  # type: ignore[attr-defined]
        kind = next((kind for kind, names in HOST if re.search(names, f"{file} {name}")), "Python")
        out[kind] = out.get(kind, 0.0) + own
    return dict(sorted(out.items(), key=lambda item: -item[1]))


def in_words(costs: dict[str, float], top: int = 4) -> str:
    """The largest costs as shares of all."""
    whole = sum(costs.values())
    return ", ".join(f"{kind} {100 * cost / whole:.0f} %" for kind, cost in list(costs.items())[:top])
