"""Memory that training from the cache on disk takes, and whether a cache of four times the memory limit still trains.

Both in processes of their own. Anonymous memory (``RssAnon``: what cannot be given back by dropping pages of files) is
sampled while an epoch runs, and its peak is counted from where it stood after imports. The limit is ``RLIMIT_DATA``,
set after imports, and includes what Python and torch hold already; that it bites is tried at the end.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Check, Result, in_child, peak_memory, status_bytes
from benchmarks.rows import COLUMN, Narrow, open_cache, train, write_cache
from splitwiper.config import ServerConfig

ALLOWED = 300_000_000
TIMES = 4
_SPARE = 512 << 20
_GIB = 1 << 30


def missing(*, quick: bool = False) -> str:
    """It reads ``/proc``."""
    return "" if sys.platform == "linux" else "it needs Linux"


def run(*, quick: bool) -> Iterator[Result]:
    """Measure the peak, then train under a limit."""
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
        size = _written(Path(folder), 16_000_000 if quick else 1_200_000_000)
        values = in_child("memory", folder=folder, cap=0)
        allowed = ALLOWED + values["model_bytes"]
        yield Result(
            parameters={"cache_bytes": size, "shards": 5, "batch": 256},
            values=values,
            checks=[
                Check(
                    f"anonymous memory while training from a {size / 1e9:.1f} GB cache, above that after imports",
                    f"≤ {ALLOWED / 1e6:.0f} MB + model ({values['model_bytes'] / 1e6:.2f} MB)",
                    f"{values['peak_bytes'] / 1e6:.0f} MB",
                    values["peak_bytes"] <= allowed,
                )
            ],
        )
    with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
        cap = max(_GIB, in_child("memory", folder="", cap=0)["data_after_imports"] + _SPARE)
        size = _written(Path(folder), 16_000_000 if quick else TIMES * cap)
        values = in_child("memory", folder=folder, cap=cap)
        yield Result(
            parameters={"cap_bytes": cap, "cache_bytes": size, "written": "every byte, block by block; not sparse"},
            values=values,
            checks=[
                Check(
                    f"a cache of {size / cap:.1f} × the limit on memory ({cap / 1e9:.2f} GB, torch's own "
                    f"{values['data_after_imports'] / 1e9:.2f} GB included) trains",
                    f"{TIMES} ×, and the limit bites",
                    "trained" + (", and the limit bites" if values["limit_bites"] else ", but the limit does not bite"),
                    bool(values["limit_bites"]) and size >= 0.99 * TIMES * cap,
                )
            ],
        )


def child(*, folder: str, cap: int) -> dict[str, Any]:
    """Train one epoch, under a limit if there is one."""
    import resource

    net, start = Narrow(), status_bytes("RssAnon")
    out: dict[str, Any] = {
        "data_after_imports": status_bytes("VmData"),
        "model_bytes": sum(t.nbytes for t in net.state_dict().values()),
    }
    if not folder:
        return out
    if cap:
        resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
    with peak_memory() as peak:
        train(net, open_cache(Path(folder)), ServerConfig(batch=256, lr=0.01))
    return out | {"peak_bytes": peak[0] - start, "samples": peak[1], "limit_bites": _bites(cap) if cap else None}


def _written(folder: Path, size: int) -> int:
    return write_cache(folder, size, shards=5) * COLUMN.width


def _bites(cap: int) -> bool:
    """Whether as much memory as the limit is refused."""
    try:
        np.ones(cap, np.uint8)
    except MemoryError:
        return True
    return False
