"""Data sets that come with scikit-learn and need no download."""

from __future__ import annotations

from itertools import compress

import numpy as np

from splitwiper_lab.datasets.published import DataSet

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TITLES = {
    "digits": "written digits 1×8×8",
    "wine": "13 measures of wines",
    "breast_cancer": "30 measures of tumours",
    "iris": "4 measures of flowers",
    "descriptions": "texts about data sets",
}
_DESCRIBED = ("iris", "wine", "breast_cancer", "diabetes", "digits")
_WORDS = 6
"""Words per text."""


def table(name: str) -> DataSet:
    """Load a set of `TITLES`: digits in [0, 1], the others as measured; a fixed stratified quarter is for tests."""
    import sklearn.datasets
    from sklearn.model_selection import train_test_split

    if name == "descriptions":
        return _descriptions()
    raw = getattr(sklearn.datasets, f"load_{name}")()
    inputs = (raw.images[:, None] / 16 if name == "digits" else raw.data).astype(np.float32)
    labels = WORDS if name == "digits" else tuple(map(str, raw.target_names))
    named = np.array(labels)[raw.target]
    train, held = train_test_split(np.arange(len(named)), test_size=0.25, random_state=0, stratify=named)
    return DataSet(name, (inputs[train], named[train]), (inputs[held], named[held]), labels)


def _descriptions() -> DataSet:
    """Split scikit-learn's descriptions of its data sets into rows of a few words; every fourth is a test row."""
    import sklearn.datasets

    texts: list[str] = []
    labels: list[str] = []
    for name in _DESCRIBED:
        words = getattr(sklearn.datasets, f"load_{name}")().DESCR.split()
        for start in range(0, len(words), _WORDS):
            texts.append(" ".join(words[start : start + _WORDS]))
            labels.append(name)
    held = np.arange(len(texts)) % 4 == 3
    train, test = list(compress(texts, ~held)), list(compress(texts, held))
    return DataSet("descriptions", (train, np.array(labels)[~held]), (test, np.array(labels)[held]), _DESCRIBED)
