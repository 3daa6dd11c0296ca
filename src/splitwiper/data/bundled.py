"""Data sets that come with scikit-learn: no download, no network."""

from __future__ import annotations

from typing import Any

import numpy as np

from splitwiper.data.partition import overlapping

Array = np.ndarray[Any, np.dtype[Any]]
Split = dict[str, tuple[Array, Array]]
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digits(
    *, clients: tuple[str, ...], exclusive: str, owner: str, seed: int, test: float = 0.25
) -> tuple[Split, Split]:
    """Scikit-learn's 1,797 handwritten digits (8×8), labelled in words, divided over clients.

    Returns:
        Training and test sets by client, each ``(images 1×8×8 in [0, 1], names)``.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    raw = load_digits()
    images = (raw.images[:, None] / 16).astype(np.float32)
    names = np.array(WORDS)[raw.target]
    train, held = train_test_split(np.arange(len(names)), test_size=test, random_state=0, stratify=names)
    parts = overlapping(names[train], names[held], clients=clients, exclusive=exclusive, owner=owner, seed=seed)
    learn, check = (
        {name: (images[rows[mine]], names[rows[mine]]) for name, mine in part.items()}
        for rows, part in zip((train, held), parts, strict=True)
    )
    return learn, check
