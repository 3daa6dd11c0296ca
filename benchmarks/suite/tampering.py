"""Tampering with a run folder: flipped bits in every kind of file, and edits by an insider with the databases open.

A run learns, forgets a class, a row and a whole client, and is then damaged in one place at a time. Each time, either
something must notice (opening the run, or `verify`), or the change must be harmless: the run then forgets once more,
and every model, half, shard, slice and checkpoint must have the bits that the untouched run has.

Three insiders are played. The first has the databases and no key. The second has the server's key too, so it can
reseal the server's database and rebuild its ledger's chain. The third has every key, or puts back an older copy of
the whole folder: the run alone cannot show that, so it is compared with a receipt and a ledger head kept outside.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Check, Result
from benchmarks.insiders import Edit, NothingThere, edits, opened, request_unmade
from splitwiper import ClientConfig, Config, Federation, Halves, ServerConfig, split
from splitwiper.errors import SplitWiperError
from splitwiper.models import mlp

FEATURES = 6
NOTICED = ("mismatch", "not_comparable", "unverifiable", "refused")


def run(*, quick: bool) -> Iterator[Result]:
    """Flip bits, then play the insiders."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=memory if memory.is_dir() else None) as folder:
        stage = Stage(Path(folder))
        yield _flips(stage, 60 if quick else 2400)
        yield _insider(stage, "no key", edits(sealed=False), quick=quick)
        yield _insider(stage, "the server's key", edits(sealed=True), quick=quick)
        yield _outside(stage)


# --- the run -----------------------------------------------------------------------------------------------


def halves() -> Halves:
    """A small network, the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return split(mlp(FEATURES, 3, hidden=6, cut=4), at="stem", example=torch.zeros(1, FEATURES))


class Stage:
    """A finished run, kept as bytes so that it can be put back after each change."""

    def __init__(self, root: Path) -> None:
        self.run, self.old = root / "run", root / "old"
        draw = np.random.default_rng(5)
        names = {"north": "aabbccaabb", "south": "bbccbbcc", "west": "aacc"}
        data = {
            name: (draw.normal(size=(len(labels), FEATURES)).astype(np.float32), list(labels))
            for name, labels in names.items()
        }
        config = Config(
            seed=3,
            server=ServerConfig(epochs=2, batch=16, threads=1, transcript=True),
            client=ClientConfig(epochs=2, batch=16, head_width=4, slices=3, threads=1),
        )
        self.halves = halves()
        fed = Federation(self.run, self.halves, config)
        self.ids = {name: found.ids for name, found in fed.learn(data).added.items()}
        fed.unlearn("south", samples=[self.ids["south"][0]])
        fed.unlearn("west", everything=True)
        shutil.copytree(self.run, self.old)
        self.receipt = fed.unlearn("north", classes=["a"])
        self.head = fed.head()
        self.files = self._read()
        self.expected = self._forgotten_once_more()
        self.restore()

    def _read(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(self.run.rglob("*")) if path.is_file()}

    def restore(self) -> None:
        """Put every file back as it was."""
        for path, data in self._read().items():
            if path not in self.files:
                path.unlink()
            elif data != self.files[path]:
                path.write_bytes(self.files[path])
                path.chmod(0o600)
        for path, data in self.files.items():
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                path.chmod(0o600)  # as every file of a run

    def _forgotten_once_more(self) -> dict[str, Any]:
        """Forget one more row, and return what the run then holds, bit for bit."""
        fed = Federation(self.run, self.halves)
        fed.unlearn("south", samples=[self.ids["south"][3]])
        return bits(self.run)

    def outcome(self) -> tuple[str, str]:
        """What opening the run and verifying it say, and why."""
        try:
            found = Federation(self.run, self.halves).verify()
        except SplitWiperError as problem:
            return "refused", str(problem)
        except Exception:
            return "raw exception", traceback.format_exc(limit=-3)
        if not found.exact:
            return found.outcome, found.reason
        try:
            return ("harmless", "") if self._forgotten_once_more() == self.expected else ("NOT NOTICED", "other bits")
        except SplitWiperError as problem:
            return "refused", str(problem)
        except Exception:
            return "raw exception", traceback.format_exc(limit=-3)


def bits(run: Path) -> dict[str, Any]:
    """Digests of every tensor file that a database points to, by what it is; file names are random and left out."""
    out = {}
    tables = {
        "slices": "slice",
        "checkpoints": "slice",
        "half": "one",
        "shards": "client",
        "model": "one",
        "epochs": "epoch",
    }
    folders = {"model": "models"}
    for database in sorted(run.rglob("*.db")):
        with closing(sqlite3.connect(database)) as db:
            known = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table, key in tables.items():
                for number, file in db.execute(f"SELECT {key}, file FROM {table}") if table in known else ():  # noqa: S608
                    data = (database.parent / folders.get(table, table) / file).read_bytes()
                    out[f"{database.parent.name}/{table}/{number}"] = hashlib.sha256(data).hexdigest()
    return out


# --- flipped bits ------------------------------------------------------------------------------------------


def _kind(path: Path, run: Path) -> str:
    """What kind of file it is: its folder and stem, whoever's."""
    parts = path.relative_to(run).parts
    name = path.name.partition("-")[0] if "-" in path.name and path.suffix == ".safetensors" else path.name
    return "/".join(["client" if parts[0] == "clients" else parts[0], name] if len(parts) > 1 else [name])


def _flips(stage: Stage, count: int) -> Result:
    draw = random.Random(11)  # noqa: S311
    by_kind: dict[str, list[Path]] = {}
    for path, data in stage.files.items():
        if data:
            by_kind.setdefault(_kind(path, stage.run), []).append(path)
    kinds, found, odd = sorted(by_kind), dict[str, Counter[str]](), list[str]()
    for number in range(count):
        kind = kinds[number % len(kinds)]
        path = draw.choice(by_kind[kind])
        data = bytearray(stage.files[path])
        place = draw.randrange(len(data) * 8)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        outcome, why = stage.outcome()
        found.setdefault(kind, Counter())[outcome] += 1
        if outcome not in (*NOTICED, "harmless"):
            odd.append(f"{kind}, bit {place}: {outcome}: {why}")
        stage.restore()
    return _judged({"insider": "flipped bits", "kinds": len(kinds), "changes": count}, found, odd)


# --- insiders ----------------------------------------------------------------------------------------------


def _insider(stage: Stage, who: str, kinds: dict[str, Edit], *, quick: bool) -> Result:
    found, odd, tried = {"all": Counter[str]()}, list[str](), 0
    for name, edit in list(kinds.items())[:: 8 if quick else 1]:
        with suppress(NothingThere, sqlite3.IntegrityError):
            edit(stage.run)
            tried += 1
            outcome, why = stage.outcome()
            found["all"][outcome] += 1
            if outcome not in NOTICED:
                odd.append(f"{name}: {outcome}: {why}")
        stage.restore()
    return _judged({"insider": who, "kinds": tried, "changes": tried}, found, odd)


# --- every key, or an older copy of everything -------------------------------------------------------------


def _outside(stage: Stage) -> Result:
    """What only a receipt or a head kept outside can show."""
    found, odd = {"all": Counter[str]()}, list[str]()

    def old_copy(run: Path) -> None:
        shutil.rmtree(run)
        shutil.copytree(stage.old, run)

    def with_every_key(run: Path) -> None:
        """Unmake the last request in both databases, sealed properly, and learn nothing of it."""
        with opened(run / "server/server.db", sealed=True) as db:
            request_unmade(db, run)
        with opened(run / "clients/north/client.db", sealed=True) as db:
            ticket = stage.receipt.ticket
            db.execute("DELETE FROM requests WHERE ticket = ?", (ticket,))
            db.execute("DELETE FROM suppressed WHERE ticket = ?", (ticket,))
            db.execute("DELETE FROM meta WHERE key = 'head'")

    for edit in (old_copy, with_every_key):
        for against, given in (("receipt", {"receipt": stage.receipt}), ("head", {"head": stage.head})):
            edit(stage.run)
            try:
                outcome = Federation(stage.run, stage.halves).verify(**given).outcome
            except SplitWiperError:
                outcome = "refused"
            found["all"][outcome] += 1
            if outcome not in NOTICED:
                odd.append(f"{edit.__name__} against a {against}: {outcome}")
            shutil.rmtree(stage.run)
            stage.restore()
    return _judged({"insider": "every key, or an older copy", "kinds": 2, "changes": 4}, found, odd)


def _judged(parameters: dict[str, Any], found: dict[str, Counter[str]], odd: list[str]) -> Result:
    total: Counter[str] = sum(found.values(), Counter())
    missed, raw = total["NOT NOTICED"], total["raw exception"]
    told = ", ".join(f"{count} {outcome}" for outcome, count in total.most_common())
    who = parameters["insider"]
    return Result(
        parameters,
        {"found": {kind: dict(counts) for kind, counts in found.items()}, "unnoticed": odd[:60]},
        [
            Check(
                f"{who}: changes that went unnoticed and did harm",
                "0",
                f"{missed} of {sum(total.values())}",
                not missed,
            ),
            Check(f"{who}: raw exceptions", "0", str(raw), not raw),
            Check(f"{who}: what came out", "reported", told, True),
        ],
    )
