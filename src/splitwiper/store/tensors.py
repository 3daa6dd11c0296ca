"""Weights on disk: safetensors, written atomically, checked when read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from splitwiper.errors import CorruptError
from splitwiper.seeding import state_digest
from splitwiper.store import files


def save_state(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors atomically; what shares storage in memory is written apart."""
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    files.write_bytes(path, safetensors.torch.save(plain, dict(metadata) if metadata else None))


def load_state(
    path: Path, expected: str | None = None, *, remedy: str = "restore it from a backup"
) -> dict[str, Tensor]:
    """Read tensors and, where a digest is given, check it.

    Raises:
        CorruptError: the file is gone, cut short, or not what was written.
    """
    try:
        state = safetensors.torch.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as problem:
        raise CorruptError(f"{path} cannot be read ({problem}): {remedy}.") from problem
    if expected is not None and state_digest(state) != expected:
        raise CorruptError(f"{path} is not what was written: {remedy}.")
    return state
