"""The plan of a shard: for every row, its source row and its code. Cover rows hide how many rows there are.

A cover row is a blend of two of the client's own rows that have the same label and code, so that it teaches the server
nothing false. Rows are in an order that reveals nothing without the client's key.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from dataclasses import dataclass

import numpy as np

from splitwiper.config import Masking
from splitwiper.errors import ConfigError
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes import Mode, ModeInputs
from splitwiper.masking.sealing import Draws
from splitwiper.seeding import mac
from splitwiper.wire.columns import Array


@dataclass(frozen=True)
class ShardPlan:
    """The rows of a shard, in order.

    Attributes:
        source: index of the row it comes from, in the order of HMACs.
        other: index of the row it is blended with; −1 for a row that is not a cover row.
        share: the weight of ``source`` in a blend.
        codes: the row's code.
    """

    source: Array
    other: Array
    share: Array
    codes: Array

    def __len__(self) -> int:
        return len(self.source)


def plain(index: Array) -> ShardPlan:
    """Return a plan of every row once, in order, with the index of its label as its code."""
    rows = len(index)
    return ShardPlan(np.arange(rows), np.full(rows, -1), np.ones(rows, np.float32), index)


def planned(held: ModeInputs, codebook: Codebook, mode: Mode, masking: Masking) -> ShardPlan:
    """Plan the shard of a client that hides its labels."""
    source, codes = mode.assign(held, codebook)
    _check_assigned(held, codebook, source, codes)
    # a cover row takes the code of the first of its two rows; both have the same label and code: it is right for both
    extra = np.array(_cover(held, source, codes, masking)).reshape(-1, 3)
    first, second = extra[:, 0].astype(np.int64), extra[:, 1].astype(np.int64)
    plan = ShardPlan(
        np.concatenate([source, source[first]]),
        np.concatenate([np.full(len(source), -1), source[second]]),
        np.concatenate([np.ones(len(source)), extra[:, 2]]).astype(np.float32),
        np.concatenate([codes, codes[first]]),
    )
    order = _order(held, codebook, plan)
    return ShardPlan(plan.source[order], plan.other[order], plan.share[order], plan.codes[order])


def _check_assigned(held: ModeInputs, codebook: Codebook, source: Array, codes: Array) -> None:
    """Refuse what a mode may not do: leave a row out, or send it under a code that is not one of its label's.

    A row under a foreign code would teach the server a false label; a row left out could not be forgotten.

    Raises:
        ConfigError: the mode did either; the message names no label.
    """
    allowed = np.zeros((len(held.labels), codebook.outputs), bool)
    for number, label in enumerate(held.labels):
        allowed[number, list(codebook.of(label))] = True
    inside = source.shape == codes.shape and bool(((codes >= 0) & (codes < codebook.outputs)).all())
    if not inside or not np.array_equal(np.unique(source), np.arange(len(held))):
        raise ConfigError(
            "masking.mode must send every row at least once, under one of the codebook's codes each time."
        )
    if not allowed[held.index[source], codes].all():
        raise ConfigError("masking.mode gave a row a code that is not one of its label's.")


def _order(held: ModeInputs, codebook: Codebook, plan: ShardPlan) -> Array:
    """Order rows by HMACs under a key of only this shard: a row's position reveals nothing of it or other shards."""
    key = mac(held.key, "masking", "order", hashlib.sha256(held.macs.tobytes()).digest(), codebook.id)
    macs = held.macs[plan.source]  # rows of the shard × 32 bytes
    words = []
    for number, row in enumerate(macs):  # with the number, since a row may be sent several times
        words.append(hmac.digest(key, row.tobytes() + number.to_bytes(8, "little"), "sha256"))
    return np.array(sorted(range(len(words)), key=words.__getitem__))


def _cover(held: ModeInputs, source: Array, codes: Array, masking: Masking) -> list[tuple[int, int, float]]:
    """Return the blends to add: positions of two rows among those sent, and the weight of the first."""
    if not (masking.cover or masking.pad):
        return []
    draws = Draws(held.key, "cover", held.macs.tobytes())
    # in the order of codes, so that the draws are taken in the same order whenever the rows are the same
    by_code = {int(code): np.flatnonzero(codes == code) for code in np.unique(codes)}
    least = math.ceil(masking.cover * max(map(len, by_code.values())))
    blends = []
    for rows in by_code.values():
        for _ in range(least - len(rows)):
            first = int(rows[draws.below(len(rows))])
            blends.append(_blend(held, source, rows, first, draws))
    missing = -(len(source) + len(blends)) % masking.pad if masking.pad else 0  # up to the next multiple
    for _ in range(missing):
        first = draws.below(len(source))
        blends.append(_blend(held, source, by_code[int(codes[first])], first, draws))
    return blends


def _blend(held: ModeInputs, source: Array, rows: Array, first: int, draws: Draws) -> tuple[int, int, float]:
    """Pick another row of the same code and label as ``first``, and a weight between 0.3 and 0.7."""
    same = held.index[source[rows]] == held.index[source[first]]
    alike = rows[same & (source[rows] != source[first])]
    alike = alike if len(alike) else rows[same]  # the only row of its code and label is sent once more, unblended
    return first, int(alike[draws.below(len(alike))]), 0.3 + 0.4 * draws.below(1 << 20) / (1 << 20)
