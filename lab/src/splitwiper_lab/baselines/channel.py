"""The channel between clients and server: all named tensors cross it and are counted; nothing else is exchanged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor

from splitwiper_lab.baselines.meters import Meter

Message = dict[str, Tensor]
Tap = Callable[[str, str, Message], Message]
"""Receives each message in transit as (client, "up" or "down", tensors), and returns the tensors to deliver."""
LABEL, GONE = "@label", "@gone"
"""Message keys of the rows' labels, and of the mask of rows to forget."""
_KINDS = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Names of types, in the order in which safetensors writes them."""


class Channel:
    """Counts traffic at the clients' meters, as the bytes of a safetensors message with the same tensors.

    A tap receives every message and may replace it, for example by a decoded copy of its bytes.
    """

    def __init__(self, meters: Mapping[str, Meter], tap: Tap | None = None) -> None:
        self._meters, self._tap = meters, tap

    def up(self, client: str, message: Message) -> Message:
        """Send a message from a client to the server."""
        self._meters[client].up += size(message)
        return self._tap(client, "up", message) if self._tap else message

    def down(self, client: str, message: Message) -> Message:
        """Send the server's answer to a client; this completes a round trip."""
        self._meters[client].down += size(message)
        self._meters[client].round_trips += 1
        return self._tap(client, "down", message) if self._tap else message


def size(message: Mapping[str, Tensor]) -> int:
    """Return the bytes of a safetensors message with these tensors.

    >>> size({"x": torch.zeros(2, 3)})
    96
    """
    order, total = list(_KINDS), 0
    entries = []
    for name, tensor in message.items():
        entries.append((order.index(tensor.dtype), name, tuple(tensor.shape), tensor.nbytes))
        total += tensor.nbytes
    return _header(tuple(sorted(entries))) + total


@lru_cache(maxsize=4096)  # messages of the same shapes are sent in every batch
def _header(entries: tuple[tuple[int, str, tuple[int, ...], int], ...]) -> int:
    """Return the bytes of a safetensors header: tensors sorted by type and name, padded to eight bytes."""
    kinds = list(_KINDS.values())
    start, header = 0, {}
    for kind, name, shape, nbytes in entries:
        header[name] = {"dtype": kinds[kind], "shape": list(shape), "data_offsets": [start, start + nbytes]}
        start += nbytes
    raw = len(json.dumps(header, separators=(",", ":")).encode())
    return 8 + raw + -raw % 8
