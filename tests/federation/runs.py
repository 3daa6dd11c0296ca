"""Small real federations for tests, and the comparison that says "bit for bit"."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from splitwiper import ClientConfig, Config, Federation, Halves, ServerConfig, split
from splitwiper.checks import Check
from splitwiper.client.content import row_id, row_macs, slice_of
from splitwiper.data.rows import as_rows
from splitwiper.models import mlp
from splitwiper.numerics import pick_device, reproducible
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.server.transcript import check_end, check_first, recompute_epoch
from splitwiper.store import ClientStore, ServerStore
from splitwiper.store.tensors import load_state

FEATURES = 6
Table = tuple[np.ndarray, np.ndarray]


def table(seed: int, names: tuple[str, ...], rows: int = 24) -> Table:
    """Rows around one centre per label."""
    draw = np.random.default_rng(seed)
    labels = np.array([names[i % len(names)] for i in range(rows)])
    centres = {name: np.random.default_rng(sum(map(ord, name))).normal(size=FEATURES) for name in names}
    values = np.stack([centres[label] for label in labels]) + 0.3 * draw.normal(size=(rows, FEATURES))
    return values.astype(np.float32), labels


def three() -> dict[str, Table]:
    """Three clients: 'bird' lies with north alone, 'cat' with everybody."""
    return {
        "north": table(1, ("bird", "cat", "dog"), 30),
        "south": table(2, ("cat", "dog")),
        "west": table(3, ("cat", "eel")),
    }


def halves(seed: int = 0) -> Halves:
    torch.manual_seed(seed)
    return split(mlp(FEATURES, 3, hidden=12, cut=8), at="stem", example=torch.zeros(1, FEATURES))


def settings(*, slices: int = 1, start: str = "initial", **client: object) -> Config:
    return Config(
        seed=5,
        server=ServerConfig(epochs=2, batch=16, start=start),
        client=ClientConfig(epochs=2, batch=8, slices=slices, head_width=4, **client),
    )


_masters: dict[str, tempfile.TemporaryDirectory[str]] = {}


def learned(path: Path, config: Config | None = None) -> Federation:
    """A federation of `halves` that has learned `three`: a copy of a run that learns once for all tests."""
    config = config or settings()
    key = repr(config)
    if key not in _masters:
        folder = tempfile.TemporaryDirectory(prefix="learned-")
        Federation(Path(folder.name) / "run", halves(), config).learn(three())
        _masters[key] = folder  # only now: nobody is to copy a run that was interrupted
    shutil.copytree(Path(_masters[key].name) / "run", path)
    return Federation(path, halves())


def without(data: Table, keep: np.ndarray) -> Table:
    return data[0][keep], data[1][keep]


def ids_at(fed: Federation, client: str, positions: Iterable[int], data: Table | None = None) -> list[int]:
    """The ids of the rows at some positions of a client's data: of `three`, unless other data is given."""
    key = ClientStore(fed.path / "clients" / client).key()
    assert key is not None
    macs = row_macs(as_rows(data or three()[client], task=""), key)
    return [row_id(macs[position]) for position in positions]


def positions_in_last_slice(fed: Federation, client: str) -> list[int]:
    """The positions, in a client's data of `three`, of the rows in its last slice that is not empty."""
    store = fed._client(client).store
    key = store.key()
    assert key is not None
    macs, last = row_macs(as_rows(three()[client], task=""), key), max(store.slices())
    return [position for position, m in enumerate(macs) if slice_of(m, fed.config.client.slices) == last]


def state_of(path: Path) -> dict[str, object]:
    """Everything a run holds that is a function of data and context: weights, shards, slices, checkpoints."""
    server = ServerStore(path / "server")
    model = server.model()
    out: dict[str, object] = {
        "model": {k: v.numpy().tobytes() for k, v in server.weights(model).items()} if model else None,
        "labels": model.labels if model else (),
        "manifest": [(s.client, s.digest, s.rows) for s in server.shards()],
        "shards": {s.client: server.blobs.path("shards", s.file).read_bytes() for s in server.shards()},
    }
    held = {s.client for s in server.shards()}
    for folder in sorted((path / "clients").iterdir()):
        store = ClientStore(folder)
        if not (folder / "client.db").exists():
            continue
        if folder.name not in held:
            assert not store.slices() and not store.checkpoints() and store.half() is None
            continue
        half = store.half()
        assert half is not None
        out[folder.name] = {
            "half": state_digest(load_state(folder / "half" / half[0].file)),
            "slices": {n: (folder / "slices" / r.file).read_bytes() for n, r in store.slices().items()},
            "checkpoints": {
                n: (r.key, state_digest(load_state(folder / "checkpoints" / r.file)))
                for n, r in store.checkpoints().items()
            },
        }
        store.database.close()
    server.database.close()
    return out


def assert_same(one: Federation, other: Federation) -> None:
    """Two runs hold the same bits."""
    a, b = state_of(one.path), state_of(other.path)
    assert a.keys() == b.keys()
    for key in a:
        assert a[key] == b[key], f"{key} differs"


def activations(fed: Federation, client: str) -> np.ndarray:
    """What the server holds of a client's rows."""
    store = ServerStore(fed.path / "server")
    record = store.shard(client)
    assert record is not None
    values = np.array(store.open(record).columns["activation"])
    store.database.close()
    return values


def recomputed(server: Server, *epochs: int) -> list[Check]:
    """Check both ends of the transcript of a server's model, and recompute epochs of its training."""
    model, transcript = server.store.model(), server.transcript()
    inputs, last = server.inputs(server.store.shards()), server.store.epoch_state(transcript.epochs)
    with reproducible(pick_device(server.config.device), int(model.fingerprint["threads"]), server.config.numerics):
        checks = [check_first(inputs, transcript), check_end(inputs, transcript, last, model.digest)]
        for epoch in epochs:
            checks.append(recompute_epoch(inputs, transcript, epoch, server.store.epoch_state(epoch - 1)))
    return checks
