"""Keyed codes: what buckets need to hide anything."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from sklearn.datasets import load_wine

from splitwiper.config import Masking
from splitwiper.masking.modes import expand, mode_for
from splitwiper.masking.sealing import GroupKey
from splitwiper.wire import Label

MASKING = Masking(mode="keyed", buckets=8)


class Rows:
    """Rows as a mode sees them."""

    def __init__(self, values: np.ndarray, labels: np.ndarray) -> None:
        self.values, self.labels = values, tuple(Label("", int(label)) for label in np.unique(labels))
        self.index = labels.astype(np.int64)

    def __len__(self) -> int:
        return len(self.values)

    def inputs(self):
        yield {"x": self.values}


def assigned(values: np.ndarray) -> list[set[int]]:
    """The codes of each label."""
    key = GroupKey.of("a secret of more than enough letters", federation="f")
    held = Rows(values, load_wine().target)
    codebook = expand(held.labels, key, MASKING)
    _, codes = mode_for(MASKING, key).assign(held, codebook)
    return [set(codes[held.index == code].tolist()) for code in range(len(held.labels))]


def test_a_column_that_outweighs_all_others_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "splitwiper"):
        assigned(load_wine().data)
    (told,) = caplog.messages
    assert "hides little here" in told and "one of 8 buckets" in told and "to one scale" in told


def test_columns_of_one_scale_share_codes(caplog: pytest.LogCaptureFixture) -> None:
    values = load_wine().data
    with caplog.at_level(logging.WARNING, "splitwiper"):
        found = assigned((values - values.mean(0)) / values.std(0))
    assert caplog.messages == []
    assert all(len(codes) > 2 for codes in found) and found[0] & found[1]
