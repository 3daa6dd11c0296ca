"""Planted rows that no file can hold by accident, everything they may leave behind, and a scan for it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from reliability.stage import query
from splitwiper import Halves, split

CLASS = "quetzal-ñ"
WIDTH = 32


class Reader(nn.Module):
    """Floats and tokens in, one vector out; no activation is zero by rule."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9000, 4)
        self.mix = nn.Linear(8, WIDTH)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return torch.tanh(self.mix(torch.cat([x, self.words(tokens).mean(1)], dim=1)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = Reader()
        self.body = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self.stem(x, tokens)))
        return out


def cut() -> Halves:
    torch.manual_seed(5)
    example = {"x": torch.zeros(1, 4), "tokens": torch.zeros(1, 3, dtype=torch.int64)}
    return split(Net(), at="stem", example=example)


def table(seed: int, labels: list[str], *, token: int = 0) -> tuple[dict[str, Any], list[str]]:
    draw = np.random.default_rng(seed)
    tokens = draw.integers(0, 50, size=(len(labels), 3))
    if token:
        tokens = token + draw.integers(0, 500, size=(len(labels), 3))
    return {"x": draw.normal(size=(len(labels), 4)).astype(np.float32), "tokens": tokens}, labels


CANARIES = table(99, [CLASS] * 6, token=8000)


def half_of(run: Path, client: str, halves: Halves) -> nn.Module:
    """The client half as it lies on disk."""
    store = run / "clients" / client
    record = query(store / "client.db", "SELECT file FROM half")[0]
    state = safetensors.torch.load_file(store / "half" / record["file"])
    half = copy.deepcopy(halves.client_for(client))
    half.load_state_dict({k.removeprefix("body."): v for k, v in state.items() if k.startswith("body.")})
    return half.eval()


def activations(half: nn.Module, inputs: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What the half makes of rows."""
    with torch.inference_mode():
        out = half(**{name: torch.from_numpy(values) for name, values in inputs.items()})
    while not isinstance(out, Tensor):
        out = next(iter(out.values())) if isinstance(out, dict) else out[0]
    return out.numpy()


def quantised(values: np.ndarray[Any, Any], bits: int) -> list[bytes]:
    """Rows as signed integers of 8 or 4 bits, scaled by each row's largest value; two to a byte where they fit."""
    top = 2 ** (bits - 1) - 1
    scaled = np.rint(values / np.abs(values).max(axis=1, keepdims=True) * top).astype(np.int8)
    if bits == 8:
        return [row.tobytes() for row in scaled]
    nibbles = (scaled & 0xF).astype(np.uint8)
    return [(row[::2] | row[1::2] << 4).tobytes() for row in nibbles]


def renderings(values: np.ndarray[Any, Any], what: str) -> dict[str, bytes]:
    """Activations as they are, and quantised."""
    out = {f"{what} row {i}": row.tobytes() for i, row in enumerate(values)}
    for bits in (8, 4):
        out |= {f"{what} row {i} in {bits} bits": raw for i, raw in enumerate(quantised(values, bits))}
    return out


def raw_rows() -> dict[str, bytes]:
    """The canaries' inputs."""
    out = {}
    for name, values in CANARIES[0].items():
        out |= {f"{name} of row {i}": row.tobytes() for i, row in enumerate(values)}
    return out


def names() -> dict[str, bytes]:
    """The class by name, as text and as JSON writes it."""
    out = {f"class in {code}": CLASS.encode(code) for code in ("utf-8", "utf-16-le", "utf-16-be")}
    out |= {f"its first letters in {code}": CLASS[:7].encode(code) for code in ("utf-8", "utf-16-le", "utf-16-be")}
    return out | {"class in JSON": json.dumps(CLASS).strip('"').encode()}


def row_ids(ids: Iterable[int]) -> dict[str, bytes]:
    """Ids as text, and as SQLite keeps a number of their size in a column and as a row number."""
    out = {}
    for number in ids:
        groups = [number >> shift & 0x7F for shift in range(7 * ((number.bit_length() - 1) // 7), -1, -7)]
        out[f"id {number}"] = str(number).encode()
        out[f"id {number} in a column"] = number.to_bytes(8, "big")
        out[f"id {number} as a row number"] = bytes([*(g | 0x80 for g in groups[:-1]), groups[-1]])
    return out


def digests(run: Path) -> dict[str, str]:
    """The digest of every file a database points to, by file."""
    out = {}
    for folder, table_name, database in (
        ("server/shards", "shards", "server/server.db"),
        ("server/models", "model", "server/server.db"),
        ("server/epochs", "epochs", "server/server.db"),
        *((f"clients/{p.name}/{t}", t, f"clients/{p.name}/client.db") for p in sorted((run / "clients").iterdir())
          for t in ("slices", "checkpoints", "half")),
    ):  # fmt: skip
        out |= {
            f"{folder}/{r['file']}": r["digest"]
            for r in query(run / database, f"SELECT file, digest FROM {table_name}")
        }
    return out


def of_digests(erased: dict[str, str]) -> dict[str, bytes]:
    """Digests in hex and raw."""
    out = {f"digest of {file}": value.encode() for file, value in erased.items()}
    return out | {f"raw digest of {file}": bytes.fromhex(value) for file, value in erased.items()}


def scan(run: Path, wanted: dict[str, bytes]) -> dict[str, list[str]]:
    """Which of the wanted byte strings lie anywhere in a run folder, names of files included, and where."""
    found: dict[str, list[str]] = {}
    for path in sorted(p for p in run.rglob("*") if p.is_file()):
        place = path.relative_to(run).as_posix()
        data = place.encode() + b"\0" + path.read_bytes()
        for what, raw in wanted.items():
            if raw in data:
                found.setdefault(what, []).append(place)
    return found
