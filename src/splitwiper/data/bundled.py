"""Data sets that come with scikit-learn: no download, no network."""

from __future__ import annotations

import numpy as np

from splitwiper.data.published import DataSet

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TITLES = {
    "digits": "written digits 1×8×8",
    "wine": "13 measures of wines",
    "breast_cancer": "30 measures of tumours",
    "iris": "4 measures of flowers",
}


def table(name: str) -> DataSet:
    """A set of `TITLES`: digits in [0, 1], the others as measured; a fixed stratified quarter is held out for tests."""
    import sklearn.datasets
    from sklearn.model_selection import train_test_split

    raw = getattr(sklearn.datasets, f"load_{name}")()
    inputs = (raw.images[:, None] / 16 if name == "digits" else raw.data).astype(np.float32)
    labels = WORDS if name == "digits" else tuple(map(str, raw.target_names))
    named = np.array(labels)[raw.target]
    train, held = train_test_split(np.arange(len(named)), test_size=0.25, random_state=0, stratify=named)
    return DataSet(name, (inputs[train], named[train]), (inputs[held], named[held]), labels)
