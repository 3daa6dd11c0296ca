"""Weights on disk: safetensors, written atomically and checked when read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from splitwiper.errors import CorruptError
from splitwiper.reading import read_bytes
from splitwiper.seeding import state_digest
from splitwiper.store import files


def save_state(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors atomically."""
    files.write_bytes(path, as_bytes(state, metadata))


def as_bytes(state: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a file of tensors; tensors that share storage in memory are written separately."""
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    return safetensors.torch.save(plain, dict(metadata) if metadata else None)


def load_state(
    path: Path, expected: str | None = None, *, remedy: str = "restore it from a backup"
) -> dict[str, Tensor]:
    """Read tensors, and check their digest if one is given; see `read_state`."""
    return read_state(path, expected, remedy=remedy)[0]


def read_state(
    path: Path, expected: str | None = None, *, remedy: str = "restore it from a backup"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and the metadata in the file's header, and check their digest if one is given.

    Raises:
        CorruptError: the file is missing, truncated, a link, or not what was written.
    """
    try:
        data = read_bytes(path, links=False)
        state = safetensors.torch.load(data)
        # `load` drops the metadata. It is in the JSON header, which follows eight bytes with its length.
        length = int.from_bytes(data[:8], "little")
        metadata = dict(json.loads(data[8 : 8 + length]).get("__metadata__") or {})
    except (OSError, ValueError, RecursionError, safetensors.SafetensorError) as problem:
        raise CorruptError(f"{path} cannot be read ({problem}): {remedy}.") from problem
    if expected is not None and state_digest(state, metadata) != expected:
        raise CorruptError(f"{path} is not what was written: {remedy}.")
    return state, metadata
