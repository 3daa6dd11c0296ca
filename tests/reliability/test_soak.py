"""Real processes, killed at random instants, again and again; the run they shared loses nothing.

The plan (learn, ask, settle, learn forgotten rows again) is fixed by a seed, and so are the instants. A killed worker
is followed by another that goes on from the first operation nobody acknowledged. What comes out is compared with the
same plan carried out by one process in peace, and written to ``results/soak/kills.jsonl``.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reliability import tasks
from reliability.stage import bits, config, fixed_key, halves, ids_of, place_keys, query, reopen, rows, strays
from reliability.tasks import carry_out
from splitwiper import Federation, __version__
from splitwiper.federation import status

SEED = 20_250_214
KILLS = 240
"""The plan goes on until so many workers were killed."""
CLIENTS = ("north", "south", "west")
RESULTS = Path(__file__).parents[2] / "results" / "soak" / "kills.jsonl"


def make_plan(draw: random.Random, length: int) -> list[dict[str, Any]]:
    """Operations that are all valid in this order; each request lists the positions of the rows it forgets."""
    plan: list[dict[str, Any]] = []
    held: dict[str, dict[int, str]] = {name: {} for name in CLIENTS}  # positions and their labels
    origin: dict[str, list[tuple[str, int]]] = {name: [] for name in CLIENTS}  # (labels, part) by position
    ids: dict[str, list[int]] = {name: [] for name in CLIENTS}
    for part in range(length):
        name = draw.choice(CLIENTS)
        mine = held[name]
        kind = draw.choices(["learn", "samples", "classes", "everything", "settle", "again"], [8, 4, 2, 1, 4, 4])[0]
        if kind in ("samples", "classes", "everything") and len(mine) > 8:
            gone, what = sorted(mine), {"everything": True}
            if kind == "samples":
                gone = sorted(draw.sample(gone, draw.randint(1, 4)))
                what = {"samples": [ids[name][i] for i in gone]}
            elif kind == "classes":
                label = draw.choice(sorted(set(mine.values())))
                gone, what = [i for i in gone if mine[i] == label], {"classes": [label]}
            plan.append({"do": "submit", "client": name, "what": what, "rows": gone})
            held[name] = {i: label for i, label in mine.items() if i not in gone}
        elif kind == "settle":
            plan.append({"do": "settle"})
        elif kind == "again" and origin[name]:  # a whole earlier part, forgotten rows and all
            labels, old = draw.choice(origin[name])
            plan.append({"do": "learn", "client": name, "labels": labels, "part": old, "again": True})
        else:
            labels = "".join(draw.choices("abcd", k=draw.randint(1, 4)))
            plan.append({"do": "learn", "client": name, "labels": labels, "part": part})
            mine |= {len(origin[name]) + i: label for i, label in enumerate(labels)}
            origin[name] += [(labels, part)] * len(labels)
            ids[name] += ids_of(rows(name, labels, part=part), fixed_key(name))
    return [*plan, {"do": "settle"}]


def start(path: Path) -> Federation:
    place_keys(path)
    return Federation(path, halves(), config(slices=2))


def acknowledged(log: Path) -> dict[int, Any]:
    """Operations that were acknowledged, whole lines only."""
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    return dict(json.loads(line) for line in text.splitlines() if line.endswith("]"))


def forgotten_rows(plan: list[dict[str, Any]], acked: dict[int, Any]) -> dict[str, bytes]:
    """The bytes of every row that an acknowledged request forgot."""
    held: dict[str, list[bytes]] = {name: [] for name in CLIENTS}
    out = {}
    for number, operation in enumerate(plan):
        if operation["do"] == "learn" and not operation.get("again"):
            x, _ = rows(operation["client"], operation["labels"], part=operation["part"])
            held[operation["client"]] += [row.tobytes() for row in x]
        elif operation["do"] == "submit" and number in acked:
            for i in operation["rows"]:
                out[f"{operation['client']} {i}"] = held[operation["client"]][i]
    return out


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_killed_at_random_instants_again_and_again(tmp_path: Path) -> None:
    folder = tmp_path
    draw = random.Random(SEED)
    plan = make_plan(draw, 500)
    paths = {name: folder / name for name in ("plan", "acks", "phase")}
    paths["plan"].write_text(json.dumps(plan), encoding="utf-8")
    run = folder / "run"
    start(run)
    kills: list[dict[str, Any]] = []
    began = time.monotonic()
    problems: list[str] = []
    while (at := len(acknowledged(paths["acks"]))) < len(plan):
        paths["phase"].unlink(missing_ok=True)
        worker = tasks.start("follow", run=str(run), at=at, **{name: str(path) for name, path in paths.items()})
        if len(kills) < KILLS:
            delay = draw.uniform(0.0, 0.3)
            limit = time.monotonic() + delay
            while worker.poll() is None and time.monotonic() < limit:
                time.sleep(0.0005)
            if worker.poll() is None:
                worker.kill()
                worker.communicate(60)
                phase = paths["phase"].read_text(encoding="utf-8").strip() if paths["phase"].exists() else ""
                done = len(acknowledged(paths["acks"]))
                kills.append({"kill": len(kills) + 1, "operation": done, "after_s": round(delay, 4), "phase": phase})
                try:
                    status(run)
                except Exception as problem:
                    problems.append(f"kill {len(kills)}: {problem!r}")
                continue
        result = tasks.result(worker, 300)
        assert "error" not in result, (result, kills[-1:])
    acked = acknowledged(paths["acks"])
    quiet = start(folder / "quiet")
    for operation in plan:
        carry_out(folder / "quiet", operation, again=False)
    summary = judge(run, folder / "quiet", plan, acked, kills)
    summary["seconds"] = round(time.monotonic() - began, 1)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in [summary, *kills]), encoding="utf-8")
    assert problems == []
    assert summary["kills"] >= 100
    assert summary["kills_while_working"] >= 100
    assert (summary["lost"], summary["forgotten_back"], summary["final_bits_equal"]) == (0, 0, True)
    assert summary["strays"] == summary["todo"] == 0
    assert reopen(run).verify().exact
    assert quiet.verify().exact


def judge(
    run: Path, quiet: Path, plan: list[dict[str, Any]], acked: dict[int, Any], kills: list[dict[str, Any]]
) -> dict[str, Any]:
    """Count what was promised and what became of it."""
    tickets = {t["id"]: t["state"] for t in query(run / "server/server.db", "SELECT id, state FROM tickets")}
    promised = [answer for n, answer in acked.items() if plan[n]["do"] == "submit" and answer != "recorded"]
    lost = sum(tickets.get(ticket) != "settled" for ticket in promised)
    lost += sum(plan[n]["do"] == "submit" for n in acked) - len(tickets)
    forgotten = forgotten_rows(plan, acked)
    data = b"\0".join(path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file())
    wanted, got = bits(quiet), bits(run)
    lost += sum(wanted[key] != got.get(key) for key in wanted if key.startswith("client"))
    return {
        "kills": len(kills),
        "kills_while_working": sum(bool(kill["phase"]) for kill in kills),
        "by_phase": dict(sorted(Counter(kill["phase"] or "starting" for kill in kills).items())),
        "acknowledged": dict(Counter(plan[n]["do"] for n in acked)),
        "rows_forgotten": len(forgotten),
        "lost": lost,
        "forgotten_back": sum(raw in data for raw in forgotten.values()),
        "final_bits_equal": got == wanted,
        "strays": len(strays(run)),
        "todo": len(status(run).todo),
        "seed": SEED,
        "cores": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {
            "splitwiper": __version__,
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
