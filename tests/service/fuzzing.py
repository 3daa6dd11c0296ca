"""Calls and shards that nobody in their right mind would send, drawn from a seed."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from service.conftest import announced, finished, shard

ODD = (
    "",
    "0",
    "-1",
    "../../etc/passwd",
    "..%2f..%2fx",
    "%00",
    "a" * 5000,
    "é漢字\u202e",
    "'; DROP TABLE uploads; --",
    "NaN",
    "1e999",
    "{}",
    "null",
    "labels/1",
    "labels/99999999999",
    "0" * 32,
)
VALUES: tuple[Any, ...] = (
    *ODD,
    None,
    True,
    0,
    -1,
    1 << 70,
    1.5,
    float(1 << 60),
    [],
    [[]],
    {},
    {"a": {"b": [1]}},
    ["x"] * 2000,
)


class Calls:
    """Random calls of every operation that an OpenAPI document tells of."""

    def __init__(self, document: Mapping[str, Any], draw: random.Random, folder: Path) -> None:
        self._operations = [(m.upper(), p) for p, methods in document["paths"].items() for m in methods]
        self._draw = draw
        self._good = announced(shard(folder / "good"))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            method, path = self._draw.choice(self._operations)
            yield {
                "method": method,
                "url": self._path(path),
                "params": self._some({"topic": self._value(), "since": self._value(), "old": 1, "new": self._value()}),
                "headers": self._headers(),
                **self._body(),
            }

    def _path(self, path: str) -> str:
        while "{" in path:
            before, _, rest = path.partition("{")
            _, _, after = rest.partition("}")
            path = before + httpx.URL("/", path="/" + str(self._draw.choice(ODD))).path.lstrip("/") + after
        return path or "/"

    def _some(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {k: str(v)[:3000] for k, v in values.items() if self._draw.random() < 0.5}

    def _headers(self) -> dict[str, str]:
        given = {"Upload-Offset": self._draw.choice(["0", "-1", "abc", str(1 << 60), ""])}
        kinds = ["application/json", "text/plain", "application/octet-stream", "application/offset+octet-stream", "x"]
        given["Content-Type"] = self._draw.choice(kinds)
        given["Authorization"] = self._draw.choice(["Bearer x", "Basic eDp4", ""])
        return self._some(given)

    def _value(self) -> Any:
        return copy.deepcopy(self._draw.choice(VALUES))  # it may be put into another, and changed there

    def _body(self) -> dict[str, Any]:
        kind = self._draw.randrange(5)
        if kind == 0:
            return {}
        if kind == 1:
            return {"content": self._draw.randbytes(self._draw.choice([1, 100, 10_000]))}
        if kind == 2:
            return {"content": json.dumps(self._value(), default=str)[:4000].encode()}
        if kind == 3:
            return {"content": b"[" * self._draw.choice([10, 5000])}
        changed = json.loads(json.dumps(self._good))
        for _ in range(self._draw.randrange(3)):
            place = self._draw.choice([changed, changed.get("statement") or changed])
            if isinstance(place, dict) and place:
                place[self._draw.choice([*place, "more"])] = self._value()
        return {"content": json.dumps(changed, default=str).encode()}


def damaged(good: bytes, draw: random.Random) -> bytes:
    """A shard with something wrong: cut, flipped, or with a header that lies."""
    kind = draw.randrange(6)
    if kind == 0:
        return good[: draw.randrange(1, len(good))]
    if kind == 1:
        data = bytearray(good)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        return bytes(data)
    if kind == 2:
        return struct.pack("<Q", draw.choice([0, 1, 1 << 20, 1 << 40, (1 << 64) - 1])) + good[8:]
    if kind == 3:
        return draw.randbytes(draw.choice([1, 8, 100, 5000]))
    (length,) = struct.unpack("<Q", good[:8])
    header = json.loads(good[8 : 8 + length])
    name = draw.choice(list(header))
    if name == "__metadata__":
        key = draw.choice(list(header[name]))
        header[name][key] = draw.choice(["", "9" * 5000, "{}", "[]", "null", "-1", "NaN"])
    else:
        field = draw.choice(["shape", "dtype", "data_offsets"])
        lies: dict[str, list[Any]] = {
            "shape": [[0], [1 << 40, 8], [6, 9], [6], [-1, 8], [], [1, 1, 1, 48], [2**63 - 1, 2**63 - 1]],
            "dtype": ["F64", "BOOL", "I8", "X", "", "BF16", 3],
            "data_offsets": [[0, 0], [0, 1 << 50], [10, 5], [-5, 5], [0, 192], [1], [5, 100]],
        }
        header[name][field] = draw.choice(lies[field])
    if draw.random() < 0.2:
        header["more"] = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + good[8 + length :]


def sent(north: httpx.Client, data: bytes, path: Path) -> list[int]:
    """Send a file as a shard, the whole way; the statuses of all calls."""
    path.write_bytes(data)
    begun = north.post("/v1/uploads", json=announced(path))
    codes = [begun.status_code]
    if begun.status_code == 201:
        place = f"/v1/uploads/{begun.json()['id']}"
        codes.append(north.patch(place, content=data, headers={"Upload-Offset": "0"}).status_code)
        codes.append(north.post(f"{place}/finish", json=finished(path)).status_code)
    return codes


def resident() -> int:
    """Bytes of memory that this process has."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return 1024 * int(line.split()[1])
    raise AssertionError("no VmRSS")
