"""Whatever is sent, the service answers, with no error of its own, and goes on."""

from __future__ import annotations

import gc
import json
import random
import time
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import httpx
import pytest

from service.conftest import shard
from service.fuzzing import Calls, damaged, resident, sent
from splitwiper import __version__
from splitwiper.store import ServerStore

RESULTS = Path(__file__).parents[2] / "results" / "soak" / "fuzz.jsonl"
GROWTH = 60 << 20


def call(client: httpx.Client, **how) -> int:
    try:
        return client.request(**how).status_code
    except httpx.RemoteProtocolError:  # refused as no HTTP at all: the connection is closed
        return 400
    except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeEncodeError, ValueError):  # cannot even be sent
        return 0


def fuzzed(url: str, http, run, folder: Path, *, calls: int, shards: int, seed: int) -> dict[str, int]:
    draw, north = random.Random(seed), http(url)
    document = north.get("/openapi.json").json()
    people = [north, http(url, "south"), http(url, "ops", "operators")]
    found: Counter[str] = Counter()
    stream = iter(Calls(document, draw, folder))
    for how in islice(stream, 50):  # what is made once is made
        call(north, **how)
    gc.collect()
    before = resident()
    for number, how in enumerate(islice(stream, calls), start=1):
        status = call(draw.choice(people), **how)
        assert status < 500 or status == 503, how
        found[f"calls {status}"] += 1
        if 2 * number == calls:
            gc.collect()
            half = resident()
    gc.collect()
    found["memory grown in the second half of the calls"] = max(0, resident() - half)
    good = shard(folder / "good").read_bytes()
    for _ in range(shards):
        codes = sent(north, damaged(good, draw), folder / "bad")
        assert max(codes) < 500, codes
        found[f"shards {codes[-1]}"] += 1
    gc.collect()
    found["memory grown by bytes"] = max(0, resident() - before)
    assert found["memory grown by bytes"] < GROWTH
    assert north.get("/healthz").status_code == 200
    assert sent(north, good, folder / "fine")[-1] == 200
    assert ServerStore(run.path / "server").shard("north").rows == 6
    return dict(found)


def test_a_few_hundred_cases(serve, http, run, tmp_path: Path) -> None:
    found = fuzzed(serve(unfinished=10**6), http, run, tmp_path, calls=400, shards=150, seed=1)
    assert sum(n for name, n in found.items() if name.startswith(("calls", "shards"))) == 550
    assert found.get("shards 422", 0) > 50


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thirty_thousand_cases(serve, http, run, tmp_path: Path) -> None:
    began = time.monotonic()
    found = fuzzed(
        serve(unfinished=10**6, uploads=10**6, shards=10**6),
        http,
        run,
        tmp_path,
        calls=20_000,
        shards=10_000,
        seed=20_261_118,
    )
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    line = {"calls": 20_000, "shards": 10_000, **found, "seconds": round(time.monotonic() - began)}
    line |= {"version": __version__, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
