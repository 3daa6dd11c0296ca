"""Where a result comes from: the machine, the version and the date."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from splitwiper_lab.sweeps.cells import CellResult


def machine(device: str) -> dict[str, Any]:
    """Return the numerics of this machine, the version and the date."""
    from splitwiper import __version__
    from splitwiper.numerics import fingerprint, pick_device
    from splitwiper.store.tickets import now

    return {"fingerprint": fingerprint(pick_device(device), 0), "version": __version__, "date": now()}


def machines(results: Iterable[CellResult]) -> list[str]:
    """Describe the machines that results come from."""
    found = set()
    for result in results:
        seen = result.made["fingerprint"]
        found.add(f"{seen.get('device', 'cpu')}, torch {seen['torch']}")
    return sorted(found)
