"""Digits in three clients, unmasked, and the same activations under masked labels: what a server would see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from splitwiper import ClientConfig, Config, Federation, Halves, ServerConfig, split
from splitwiper.models.small import digits_cnn
from splitwiper.server.training import TrainingInputs, train
from splitwiper.wire import Label, Shard, open_shard, write_shard
from splitwiper.wire.labels import in_order
from splitwiper_lab.attacks import SeenShard, ServerView, Truth

SERVER = ServerConfig(epochs=4, batch=64)


def halves() -> Halves:
    torch.manual_seed(0)
    return split(digits_cnn(10, width=8), at="stem", example=torch.zeros(1, 1, 8, 8))


def digits(rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    data = load_digits()
    return (data.images[:rows, None] / 16).astype(np.float32), data.target[:rows]


def federation(folder: Path, clients: int = 3, rows: int = 900) -> Federation:
    """Plain labels; the clients hold shares of each label that differ."""
    fed = Federation(
        folder, halves(), Config(seed=3, server=SERVER, client=ClientConfig(epochs=2, batch=32, keys="seeded"))
    )
    x, y = digits(rows)
    owner = np.random.default_rng(1).integers(0, 6, len(x))
    owner = np.minimum((owner + y % 3) % 6 // 2, clients - 1)
    fed.learn({f"c{i}": (x[owner == i], y[owner == i]) for i in range(clients)})
    return fed


def plain(fed: Federation, earlier: tuple[Path, ...] = ()) -> tuple[ServerView, Truth]:
    return ServerView.of(fed.path / "server", fed.halves, earlier), Truth.of(fed)


def rows_of(shard: Shard) -> np.ndarray:
    return np.asarray(next(iter(shard.columns.values())))


def write(path: Path, view: ServerView, values: np.ndarray, codes: np.ndarray) -> Shard:
    """A shard of activations under masked labels."""
    present, index = np.unique(codes, return_inverse=True)
    labels = [Label("", int(code)) for code in present]
    blocks = [({view.columns[0].name: values}, index.astype(np.int32))]
    with path.open("w+b") as file:
        write_shard(file, columns=view.columns, rows=len(codes), labels=labels, blocks=blocks)
    return open_shard(path)


def masked(
    fed: Federation, folder: Path, mode: str, *, gamma: int = 3, noise: float = 0.0, train_half: bool = True
) -> tuple[ServerView, Truth]:
    """The server's view had the clients masked their labels, and the truth about it.

    Args:
        fed: a federation with plain labels.
        folder: for shards.
        mode: 'duplicate', 'partition', 'keyed', or 'one' for the same code for all.
        gamma: codes per label; for 'keyed', secret maps from labels to codes.
        noise: Laplace noise on what is sent.
        train_half: whether the server trains.
    """
    view, truth = plain(fed)
    draw = np.random.default_rng(7)
    database = draw.permutation(10 * gamma).reshape(10, gamma)  # label -> its codes
    maps = np.stack([draw.permutation(20)[:10] for _ in range(gamma)])
    folder.mkdir()
    uploads, rows, ids = [], {}, {}
    for seen in view.present:
        values, labels = rows_of(seen.shard), truth.rows[seen.place]
        at = np.arange(len(labels))
        if mode == "duplicate":
            at = draw.permutation(np.tile(at, gamma))
            codes = np.empty(len(at), np.int64)
            for i in range(len(labels)):
                codes[at == i] = database[labels[i]]
        elif mode == "partition":
            codes = database[labels, draw.integers(0, gamma, len(labels))]
        elif mode == "keyed":
            codes = maps[draw.integers(0, gamma, len(labels)), labels]  # the bucket says nothing of the row
        else:
            codes = np.zeros(len(labels), np.int64)
        sent = (values[at] + draw.laplace(0, noise, values[at].shape)).astype(np.float32) if noise else values[at]
        uploads.append(SeenShard(seen.client, 1, write(folder / seen.client, view, sent, codes)))
        rows[seen.client, 1], ids[seen.client, 1] = labels[at], at
    known = {x: tuple(map(int, database[i])) for i, x in enumerate(truth.labels)}
    out = Truth(truth.labels, rows, known if mode in ("duplicate", "partition") else None, ids)
    labels = in_order(x for seen in uploads for x in seen.shard.labels)
    half = None
    if train_half:
        first = fed.halves.server.state_dict()
        shards, config = [seen.shard for seen in uploads], SERVER
        done = train(TrainingInputs(fed.halves.server, first, shards, labels, view.columns, config, 0, "00"))
        half = fed.halves.server.loaded(done.state)
    return ServerView(tuple(uploads), view.columns, len(labels), half, labels), out
