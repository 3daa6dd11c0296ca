"""Tensors in messages: safetensors files in memory, with labels and other strings in their metadata.

Metadata has room for any number of labels; HTTP libraries limit headers to some 100 KB.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from splitwiper.wire.columns import TORCH
from splitwiper.wire.labels import Label

_DIMENSIONS = 16
_LONGEST = 100_000_000
"""Largest header in bytes, safetensors' own limit."""
_LABELS = "labels"


def write_tensors(tensors: Mapping[str, Tensor], labels: tuple[Label, ...], **strings: str) -> bytes:
    """Return a safetensors file with labels and other strings in its metadata."""
    metadata = {_LABELS: json.dumps([label.text for label in labels]), **strings}
    return save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)


def labels_in(metadata: Mapping[str, str]) -> tuple[Label, ...]:
    """Return the labels in a file's metadata."""
    return tuple(Label.parse(text) for text in json.loads(metadata[_LABELS]))


def read_tensors(data: bytearray, *, longest: int = _LONGEST) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file, which share its bytes, and its metadata.

    Raises:
        ValueError: it is not a safetensors file, or its header is longer than ``longest`` bytes.
    """
    # safetensors itself would copy the tensors; and it checks nothing that is not checked here, since all of this
    # comes from another party
    tensors: dict[str, Tensor] = {}
    try:
        size = int.from_bytes(data[:8], "little")
        if not 2 <= size <= min(longest, len(data) - 8):
            raise ValueError(f"its header is said to have {size} bytes")
        header = json.loads(data[8 : 8 + size])
        metadata = {str(name): str(text) for name, text in header.pop("__metadata__", {}).items()}
        for name, entry in header.items():
            tensors[name] = _tensor(data, 8 + size, **entry)
        return tensors, metadata
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, RecursionError) as problem:
        raise ValueError(f"this is not a safetensors file: {str(problem)[:200]}") from problem


def _tensor(data: bytearray, base: int, dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
    start, end = data_offsets
    kind = TORCH[dtype]
    numbers: list[Any] = [start, end, *shape]
    # `type`, since JSON's true and false are integers to `isinstance`
    if set(map(type, numbers)) != {int} or min(numbers) < 0 or len(shape) > _DIMENSIONS:
        raise ValueError("a tensor has an odd shape or place")
    count = math.prod(shape)
    if base + end > len(data) or end - start != count * kind.itemsize:
        raise ValueError("a tensor's bytes are not there, or not as many as its shape has")
    if (base + start) % kind.itemsize:
        raise ValueError("its header is not padded with spaces to a multiple of 8 bytes")
    if not count:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(data, dtype=kind, count=count, offset=base + start).reshape(shape)
