"""The interface of every mode: give rows codes, and turn chances of codes back into chances of labels."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from splitwiper.masking.codebook import Codebook
from splitwiper.masking.sealing import Draws
from splitwiper.seeding import mac
from splitwiper.wire import Label
from splitwiper.wire.columns import Array


@dataclass(frozen=True)
class ModeInputs:
    """A client's surviving rows as a mode sees them, in the order of their HMACs.

    Attributes:
        labels: the table that ``index`` points into.
        index: each row's label, as an index.
        macs: each row's HMAC, n × 32 bytes.
        key: the client's own key.
        inputs: yields the rows' inputs, in blocks.
        features: computes a few numbers for each row from its activations.
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
        """Return a secret 64-bit number per row, a function of only its content, the client's key and the purpose."""
        key = mac(self.key, "masking", purpose)
        raw = b"".join(hmac.digest(key, row.tobytes(), "sha256")[:8] for row in self.macs)
        return np.frombuffer(raw, "<u8")


class Mode(Protocol):
    """A way to hide labels. `docs/how-to/extend.md` shows how to write one.

    A mode from outside is a class, made with ``secret=`` and the settings in ``mode_args``. The secret is a key that
    the clients of a group share and the server does not have; it changes with the codebook's version.

    What exactness requires: every method is a function of only its arguments, the secret and the settings. What is
    drawn comes from ``draws``, from `ModeInputs.draws` or from a `Draws` under the client's key. What is fitted is
    fitted in `assign`, which gets the survivors, and is not kept: `unmask` must do without it.

    What hiding requires: nothing of a mode reaches the server besides the codes that rows are sent under. No method may
    send, store or log anything about labels.
    """

    def expand(self, labels: Sequence[Label], draws: Draws) -> tuple[int, dict[Label, tuple[int, ...]]]:
        """Return E, the number of codes, and each label's codes: at least one, from 0 to E − 1.

        ``draws`` gives every client of the group the same numbers; there is one codebook for all.
        """
        ...

    def assign(self, held: ModeInputs, codebook: Codebook) -> tuple[Array, Array]:
        """Return, for every row of the shard, the index of its source row, and its code.

        Every source row is sent at least once, and only under codes of its own label.
        """
        ...

    def unmask(self, chances: Tensor, inputs: Mapping[str, Array], codebook: Codebook) -> Tensor:
        """Return chances of labels (n × Q, as in ``codebook.labels``) from the server's chances of codes (n × E).

        ``inputs`` are the rows' inputs by name, n × the shape of a row each.
        """
        ...


class ExpandingMode:
    """Gives each label γ codes of its own, a number drawn from a range. What all modes of the paper's kind share."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def expand(self, labels: Sequence[Label], draws: Draws) -> tuple[int, dict[Label, tuple[int, ...]]]:
        """Repeat each label γ times and shuffle; a label's codes are the positions of its copies."""
        copies: list[Label] = []
        for label in labels:
            copies += [label] * (self._least + draws.below(self._most - self._least + 1))
        places: dict[Label, tuple[int, ...]] = dict.fromkeys(labels, ())
        for code, label in enumerate(draws.shuffled(copies)):
            places[label] += (code,)
        return len(copies), places

    def unmask(self, chances: Tensor, inputs: Mapping[str, Array], codebook: Codebook) -> Tensor:
        """Sum each label's chances over its codes: correct where a code stands for one label."""
        columns = []  # n each
        for label in codebook.labels:
            columns.append(chances[:, list(codebook.of(label))].sum(dim=1))
        return torch.stack(columns, dim=1)


def one_of(codes: Mapping[Label, tuple[int, ...]], held: ModeInputs, choice: Array) -> Array:
    """Return one code of each row's label, selected by ``choice`` (any numbers) modulo the number of codes."""
    rows = [codes[label] for label in held.labels]
    counts = np.array(list(map(len, rows)), np.uint64)  # unsigned, as choices are: a mixture would become float64
    table = np.zeros((len(rows), int(counts.max())), np.int32)  # labels × most codes; behind a row's end it is unused
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    chosen = (choice.astype(np.uint64) % counts[held.index]).astype(np.int64)
    return table[held.index, chosen]


def codes_of(held: ModeInputs, codebook: Codebook) -> dict[Label, tuple[int, ...]]:
    """Return the codes of the client's labels.

    Raises:
        DataError: a label was not agreed on.
    """
    return {label: codebook.of(label) for label in held.labels}
