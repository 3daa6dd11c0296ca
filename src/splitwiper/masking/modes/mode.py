"""What every mode does: give rows codes, and turn chances of codes back into chances of labels."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from splitwiper.masking.codebook import Codebook
from splitwiper.seeding import mac
from splitwiper.wire import Label
from splitwiper.wire.columns import Array


@dataclass(frozen=True)
class Held:
    """A client's surviving rows, as a mode sees them: in the order of their HMACs.

    Attributes:
        labels: the table that ``index`` points into.
        index: each row's label.
        macs: each row's HMAC, n × 32 bytes.
        key: the client's own.
        inputs: the rows' inputs, in blocks.
        features: a few numbers for each row, computed from its activations.
    """

    labels: tuple[Label, ...]
    index: Array
    macs: Array
    key: bytes
    inputs: Callable[[], Iterator[Mapping[str, Array]]]
    features: Callable[[], Array]

    def __len__(self) -> int:
        return len(self.index)

    def draws(self, purpose: str) -> Array:
        """A secret 64-bit number for every row: a function of its content, the client's key and the purpose alone."""
        key = mac(self.key, "masking", purpose)
        raw = b"".join(hmac.digest(key, row.tobytes(), "sha256")[:8] for row in self.macs)
        return np.frombuffer(raw, "<u8")


class Mode(Protocol):
    """A way to hide labels."""

    def assign(self, held: Held, book: Codebook) -> tuple[Array, Array]:
        """What is sent: for every row of the shard, the row it comes from, and its code."""
        ...

    def unmask(self, chances: Tensor, inputs: Mapping[str, Array], book: Codebook) -> Tensor:
        """Chances of labels (n × Q, in the order of ``book.labels``) from the server's chances of codes (n × E)."""
        ...


def summed(chances: Tensor, book: Codebook) -> Tensor:
    """A label's chances as the sum over its codes: right where a code stands for one label."""
    return torch.stack([chances[:, list(book.of(label))].sum(dim=1) for label in book.labels], dim=1)


def one_of(codes: Mapping[Label, tuple[int, ...]], held: Held, choice: Array) -> Array:
    """For every row the code of its label that ``choice`` (any numbers) points to."""
    table = [np.array(codes[label], np.int32) for label in held.labels]
    counts = np.array([len(row) for row in table], np.uint64)
    wide = np.zeros((len(table), int(counts.max())), np.int32)
    for number, row in enumerate(table):
        wide[number, : len(row)] = row
    place = (choice.astype(np.uint64) % counts[held.index]).astype(np.int64)
    return wide[held.index, place]


def codes_of(held: Held, book: Codebook) -> dict[Label, tuple[int, ...]]:
    """The codes of the labels held.

    Raises:
        DataError: a label was not agreed on.
    """
    return {label: book.of(label) for label in held.labels}
