"""Models that learn by heart, an unlearning of theirs, and shadows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch.nn import functional

from splitwiper.seeding import Stream, isolated_rng
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.membership import Answers, Inputs, Model, ModelPair, Sample

STEPS = 80


def train(inputs: Inputs, labels: Sequence[Label], seed: int) -> tuple[Answers, Sequence[Label]]:
    """A small net, trained until it knows its rows by heart."""
    assert isinstance(inputs, np.ndarray)
    table = sorted(set(labels), key=str)
    codes = torch.tensor([table.index(label) for label in labels])
    with isolated_rng(Stream(seed, "shadowed")):
        net = torch.nn.Sequential(
            torch.nn.Linear(inputs.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, len(table))
        )
    x, optimiser = torch.from_numpy(inputs), torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(STEPS):
        optimiser.zero_grad()
        functional.cross_entropy(net(x), codes).backward()
        optimiser.step()

    def answers(asked: Inputs) -> Array:
        with torch.no_grad():
            return net(torch.as_tensor(asked)).softmax(1).numpy()

    return answers, table


def made(rows: Sample, seed: int = 1) -> Model:
    return Model(*train(rows.inputs, rows.labels, seed))


def digits() -> Sample:
    """All digits in an order of no meaning, blurred: a model that knows some by heart errs on a third of the others."""
    x, y = load_digits(return_X_y=True)
    draw = np.random.default_rng(0)
    x, order = x / 16 + draw.normal(0, 0.35, x.shape), draw.permutation(len(x))
    return Sample(x[order].astype(np.float32), [Label("digits", int(y[row])) for row in order])


def tumours() -> Sample:
    """Another task: other inputs, and two labels."""
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0) + np.random.default_rng(0).normal(0, 2, x.shape)
    return Sample(x.astype(np.float32), [Label("tumours", int(label)) for label in y])


def some(rows: Sample, start: int, stop: int, *, only: Sequence[int] = ()) -> Sample:
    """A range of rows, of some labels only."""
    return rows.take(np.array([row for row in range(start, stop) if not only or rows.labels[row].name in only]))


def unlearning(rows: Sample, *, gone: int = 100, members: int = 300, outsiders: int = 250) -> ModelPair:
    """A target: the first rows are unlearned, by training again without them."""
    left = some(rows, gone, members)
    return ModelPair(
        before=made(some(rows, 0, members)),
        after=made(left),
        unlearned=some(rows, 0, gone),
        outsiders=some(rows, members, members + outsiders),
        retained=left,
    )


def class_unlearning(rows: Sample, label: Label) -> ModelPair:
    """A target that unlearned a whole class; outsiders are of the class too."""
    here = np.array([x == label for x in rows.labels[:600]])
    inside = np.arange(600) < 350
    left = rows.take(np.flatnonzero(inside & ~here))
    return ModelPair(
        before=made(some(rows, 0, 350)),
        after=made(left),
        unlearned=rows.take(np.flatnonzero(inside & here)),
        outsiders=rows.take(np.flatnonzero(~inside & here)),
        retained=left,
    )


def misled(pair: ModelPair) -> Model:
    """A model that forgets too much: what it should know nothing of, it was taught wrong."""
    assert pair.retained is not None
    table = list(pair.before.labels)
    wrong = [table[(table.index(label) + 1) % len(table)] for label in pair.unlearned.labels]
    inputs = np.concatenate([pair.retained.columns[""], pair.unlearned.columns[""]])
    return made(Sample(inputs, [*pair.retained.labels, *wrong]))


def recall(inputs: Inputs, labels: Sequence[Label], seed: int) -> tuple[Answers, Sequence[Label]]:
    """Texts by heart: votes of the training texts, each by how many tokens are at the same place."""
    assert isinstance(inputs, Mapping)
    known, table = inputs["ids"].copy(), sorted(set(labels))
    codes = np.array([[label == x for x in table] for label in labels], float)

    def answers(asked: Inputs) -> Array:
        assert isinstance(asked, Mapping)
        assert asked["ids"].dtype == np.int64 and asked["mask"].all()  # masks are not for noise
        alike = np.exp(2.0 * (asked["ids"][:, None] == known[None]).sum(2)) @ codes
        return alike / alike.sum(1, keepdims=True)

    return answers, table


def texts(count: int = 400) -> Sample:
    """Tokens and labels that have nothing to do with each other: all there is to learn is the rows."""
    draw = np.random.default_rng(0)
    inputs = {"ids": draw.integers(0, 30, (count, 12)), "mask": np.ones((count, 12), np.int64)}
    return Sample(inputs, [Label("texts", int(name)) for name in draw.integers(0, 3, count)])
