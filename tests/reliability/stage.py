"""What the reliability tests share: a tiny run, and what can be read off its folder from outside."""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from splitwiper import ClientConfig, Config, Federation, Halves, ServerConfig, split
from splitwiper.client.content import row_id, row_macs
from splitwiper.data.rows import as_rows
from splitwiper.models import mlp

FEATURES = 4
NAMES = ("east", "north", "south", "west")
Rows = tuple[np.ndarray[Any, np.dtype[np.float32]], list[str]]


@functools.cache
def halves() -> Halves:
    """The network, cut; the same first weights in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return split(mlp(FEATURES, 3, hidden=6, cut=4), at="stem", example=torch.zeros(1, FEATURES))


def config(slices: int = 1, **client: Any) -> Config:
    """Settings that train in milliseconds."""
    return Config(
        seed=3,
        server=ServerConfig(epochs=1, batch=16, threads=1, transcript=True),
        client=ClientConfig(epochs=1, batch=16, head_width=0, slices=slices, threads=1, **client),
    )


def rows(name: str, labels: str, *, part: int = 0) -> Rows:
    """Rows of a client, one per letter of ``labels``: a pure function of the arguments."""
    seed = int.from_bytes(hashlib.sha256(f"{name}/{part}".encode()).digest()[:4], "big")
    draw = np.random.default_rng(seed)
    return draw.normal(size=(len(labels), FEATURES)).astype(np.float32), list(labels)


def fixed_key(name: str) -> str:
    """The key that `place_keys` gives a client."""
    return hashlib.sha256(name.encode()).hexdigest()


def place_keys(path: Path) -> None:
    """Lay out fixed client keys before the run is made, so that two runs can be equal bit for bit."""
    for name in NAMES:
        folder = path / "clients" / name
        folder.mkdir(parents=True)
        (folder / "key").write_text(fixed_key(name), encoding="ascii")
        (folder / "key").chmod(0o600)


def ids_at(path: Path, client: str, data: Rows, positions: Iterable[int]) -> list[int]:
    """The ids of the rows at some positions of data that a client has, or is to have: its key must be there."""
    ids = ids_of(data, (path / "clients" / client / "key").read_text(encoding="ascii"))
    return [ids[position] for position in positions]


def ids_of(data: Rows, key: str) -> list[int]:
    """The ids that rows have under a client's key."""
    return [row_id(mac) for mac in row_macs(as_rows(data, task=""), bytes.fromhex(key))]


def reopen(path: Path) -> Federation:
    return Federation(path, halves())


def scratch() -> Path:
    """A folder for throw-away runs; in memory where the system has such a place, since nothing pulls the plug here."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="splitwiper-", dir=memory if memory.is_dir() else None))


def query(database: Path, sql: str) -> list[dict[str, Any]]:
    """Read a database without going through the package."""
    with closing(sqlite3.connect(database)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(sql)]


def is_made(database: Path) -> bool:
    return database.exists() and bool(query(database, "PRAGMA user_version")[0]["user_version"])


def bits(path: Path) -> dict[str, Any]:
    """Everything that must be equal bit for bit: rows, suppression, halves, shards and the model.

    Salts, tickets, commitments, times, seals and file names are random and left out.
    """
    out = server_bits(path / "server")
    for folder in sorted((path / "clients").iterdir()) if (path / "clients").is_dir() else ():
        if is_made(folder / "client.db"):
            out[f"client {folder.name}"] = client_bits(folder)
    return out


def server_bits(store: Path) -> dict[str, Any]:
    """The server's part of `bits`."""
    out: dict[str, Any] = {}
    if not is_made(database := store / "server.db"):
        return out
    for record in query(database, "SELECT client, file, digest, rows, labels FROM shards ORDER BY client"):
        data = (store / "shards" / record.pop("file")).read_bytes()  # of one piece
        assert hashlib.sha256(hashlib.sha256(data).digest()).hexdigest() == record["digest"]
        out[f"shard {record['client']}"] = record
    out["model"] = query(database, "SELECT digest, manifest, labels, exact, transcript FROM model")
    if epochs := query(database, "SELECT epoch, digest FROM epochs ORDER BY epoch"):
        out["epochs"] = epochs
    return out


def client_bits(folder: Path) -> dict[str, Any]:
    """A client's part of `bits`."""
    database = folder / "client.db"
    return {
        "slices": query(database, "SELECT slice, digest, rows FROM slices ORDER BY slice"),
        "checkpoints": query(database, "SELECT slice, key, digest FROM checkpoints ORDER BY slice"),
        "half": query(database, "SELECT key, digest FROM half"),
        "suppressed": _hashed(query(database, "SELECT hex(mac) FROM suppressed ORDER BY mac")),
    }


def _hashed(values: list[dict[str, Any]]) -> str:
    return f"{len(values)}: {hashlib.sha256(json.dumps(values).encode()).hexdigest()}"


_FIXED = {
    "server": {"config.toml", "initial.safetensors", "client-initial.safetensors", "key", "server.db"},
    "client": {"config.toml", "initial.safetensors", "key", "client.db"},
}
_POINTERS = {
    "shards": "SELECT file FROM shards",
    "models": "SELECT file FROM model",
    "epochs": "SELECT file FROM epochs",
    "slices": "SELECT file FROM slices",
    "checkpoints": "SELECT file FROM checkpoints",
    "half": "SELECT file FROM half",
}


def strays(path: Path) -> list[str]:
    """Files of a run that are neither fixed nor pointed to by a database, and pointers to files that are not there."""
    wanted = {Path("federation.toml")}
    server_stores = [(path / "server", "server", "server.db")]
    server_stores += [(folder, "client", "client.db") for folder in sorted((path / "clients").iterdir())]
    for server_store, kind, database in server_stores:
        if not (server_store / database).exists():
            wanted.add(server_store.relative_to(path) / "key")  # laid out by the test, not joined
            continue
        wanted |= {server_store.relative_to(path) / name for name in _FIXED[kind]}
        if kind == "client" and "[masking]" in (text := (server_store / "config.toml").read_text(encoding="utf-8")):
            wanted |= {server_store.relative_to(path) / "group"} if 'mode = "none"' not in text else set()
        tables = {row["name"] for row in query(server_store / database, "SELECT name FROM sqlite_master")}
        for folder, sql in _POINTERS.items():
            if sql.split()[-1] in tables:
                wanted |= {
                    server_store.relative_to(path) / folder / row["file"] for row in query(server_store / database, sql)
                }
    present = {p.relative_to(path) for p in path.rglob("*") if p.is_file()}
    return [f"stray {p}" for p in sorted(present - wanted)] + [f"missing {p}" for p in sorted(wanted - present)]
