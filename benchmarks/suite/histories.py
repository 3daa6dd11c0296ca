"""Random histories: what a run holds after learning and forgetting in any order equals a run that never had the rows.

Each history draws settings (slices, codec, hidden labels, transcript) and a sequence of calls: several clients learn;
classes, rows and whole clients are forgotten, one by one or several in one settling; forgotten rows are given again and
must be refused. Its twin learns what survived, in one go. Every model, half, shard, slice, checkpoint and epoch state
must have the same bits, and `verify` must call the run and its newest receipt exact, in all three claims.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Check, Result
from benchmarks.suite.tampering import FEATURES, bits, halves
from splitwiper import ClientConfig, Config, Federation, ServerConfig
from splitwiper.config import Masking

CLIENTS = ("north", "south", "west")
LABELS = "abc"
Row = tuple[float, ...]
Held = dict[str, dict[Row, str]]


def run(*, quick: bool) -> Iterator[Result]:
    """Play histories, each with a seed of its own."""
    count = 3 if quick else 200
    memory = Path("/dev/shm")  # noqa: S108
    found, odd = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=memory if memory.is_dir() else None) as folder:
        for seed in range(count):
            told = _played(Path(folder) / str(seed), random.Random(seed))  # noqa: S311
            found.update(told)
            odd += [f"seed {seed}: {what}" for what in told if what.startswith("WRONG")]
    calls = sum(number for what, number in found.items() if not what.startswith(("WRONG", "history")))
    yield Result(
        {"histories": count},
        {"counts": dict(found), "wrong": odd},
        [
            Check(
                "histories whose bits are not those of the twin, or that verify does not call exact",
                "0",
                str(len(odd)),
                not odd,
            ),
            Check("calls made in them", "reported", f"{calls} in {count} histories", True),
        ],
    )


def _settings(draw: random.Random) -> Config:
    mode = draw.choice(["none", "none", "none", "partition"])
    masking = Masking(mode=mode, gamma=2) if mode == "partition" else Masking()
    return Config(
        seed=draw.randrange(1000),
        server=ServerConfig(epochs=2, batch=16, threads=1, transcript=draw.random() < 0.5),
        client=ClientConfig(
            epochs=1,
            batch=16,
            head_width=4,
            slices=draw.choice([1, 3]),
            codec=draw.choice(["none", "float16", "int8"]),
            threads=1,
            labels=tuple(LABELS) if mode == "partition" else (),
            masking=masking,
        ),
    )


def _played(root: Path, draw: random.Random) -> Counter[str]:
    """Play one history and compare it with its twin; what happened, counted."""
    fed, told = Federation(root / "run", halves(), _settings(draw)), Counter[str]()
    held: Held = {name: {} for name in CLIENTS}
    gone: Held = {name: {} for name in CLIENTS}
    fed.learn({name: _data(held[name], _new(draw, name, draw.randint(4, 9))) for name in CLIENTS[: draw.randint(2, 3)]})
    waiting = False
    for _ in range(draw.randint(3, 8)):
        name = draw.choice([name for name in CLIENTS if held[name]] or list(CLIENTS))
        kind = draw.choices(["learn", "samples", "classes", "everything", "settle", "again"], [4, 4, 3, 1, 2, 2])[0]
        if kind == "learn" or not held[name]:
            fed.learn({name: _data(held[name], _new(draw, name, draw.randint(1, 6)))})
            waiting = False
        elif kind == "again":
            if gone[name]:
                refused = fed.learn({name: _data({}, gone[name])}).added[name].refused
                told["WRONG: a forgotten row came back"] += refused != len(gone[name])
                waiting = False
        elif kind == "settle":
            fed.settle()
            waiting = False
        else:
            waiting = _asked(fed, draw, name, kind, held, gone) or waiting
        told[kind] += 1
    receipts = fed.settle() if waiting else ()
    told["histories"] += 1
    return told + _compared(fed, held, receipts, root / "twin")


def _asked(fed: Federation, draw: random.Random, name: str, kind: str, held: Held, gone: Held) -> bool:
    """Ask for something to be forgotten; whether it is still to be settled."""
    mine = held[name]
    if kind == "everything":
        chosen, what = list(mine), {"everything": True}
    elif kind == "classes":
        label = draw.choice(sorted(set(mine.values())))
        chosen, what = [row for row in mine if mine[row] == label], {"classes": [label]}
    else:
        chosen = draw.sample(list(mine), draw.randint(1, min(3, len(mine))))
        ids = fed.learn({name: _data({}, {row: mine[row] for row in chosen})}).added[name].ids
        what = {"samples": list(ids)}
    for row in chosen:
        gone[name][row] = mine.pop(row)
    if draw.random() < 0.5:
        fed.submit(name, **what)  # type: ignore[arg-type]
        return True
    fed.unlearn(name, **what)  # type: ignore[arg-type]
    return False


def _new(draw: random.Random, name: str, count: int) -> dict[Row, str]:
    return {tuple(round(draw.gauss(0, 1), 4) for _ in range(FEATURES)): draw.choice(LABELS) for _ in range(count)}


def _data(held: dict[Row, str], rows: dict[Row, str]) -> tuple[Any, list[str]]:
    """Rows as `learn` takes them; they are held from now on."""
    held.update(rows)
    return np.array(list(rows), np.float32), list(rows.values())


def _compared(fed: Federation, held: Held, receipts: Any, twin: Path) -> Counter[str]:
    told = Counter[str]()
    whole = fed.verify()
    told[f"WRONG: the run is {whole.outcome}: {whole.reason}"] += not whole.exact
    if receipts:
        last = fed.verify(receipts[-1])
        told[f"WRONG: the receipt is {last.outcome}: {last.reason}"] += not last.exact
        told["WRONG: a claim is missing"] += last.claims.keys() != {"rows", "state", "history"}
    other = fed.twin(twin)
    survivors = {name: rows for name, rows in held.items() if rows}
    if survivors:
        other.learn({name: _data({}, rows) for name, rows in survivors.items()})
    told["WRONG: other bits than the twin's"] += bits(fed.path) != bits(twin)
    return +told
