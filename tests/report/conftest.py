"""A realistic report, and ways to change one part of it."""

from __future__ import annotations

import pytest

from splitwiper.federation import Check, Verification
from splitwiper.federation.status import Remains
from splitwiper.report import Accuracy, ReportData, ReportedClient, ReportedRequest, ReportedServer
from splitwiper.wire import Spent

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
BEFORE = (0.991, 0.972, 0.984, 0.989, 0.963, 0.958, 0.981, 0.967, 0.934, 0.947)
AFTER = (0.993, 0.970, 0.986, 0.0, 0.965, 0.969, 0.982, 0.965, 0.951, 0.954)
HELD = {
    "north": (60, 0, 0, 183, 0, 120, 0, 0, 88, 0),
    "south": (40, 110, 95, 0, 0, 0, 61, 0, 0, 140),
    "east": (0, 72, 82, 0, 181, 0, 0, 59, 0, 0),
    "west": (42, 0, 0, 0, 0, 62, 120, 0, 86, 0),
    "centre": (36, 0, 0, 0, 0, 0, 0, 120, 0, 40),
}
SECONDS = (1.43, 1.31, 1.18, 0.97, 0.62)


def _client(name: str, spent: float) -> ReportedClient:
    rows = sum(HELD[name])
    asks = name == "north"
    return ReportedClient(
        name=name,
        rows_before=rows,
        rows_after=rows - 183 if asks else rows,
        labels_before={label: n for label, n in zip(DIGITS, HELD[name], strict=True) if n},
        learn=Spent(spent, rows * 2064 + 412, 318),
        unlearn=Spent(0.412, (rows - 183) * 2064 + 412, 318) if asks else Spent(),
        requester=asks,
    )


@pytest.fixture
def report() -> ReportData:
    return ReportData(
        title="Unlearning report",
        subtitle="Five hospitals, one shared model, one request to forget",
        created="2025-09-23T14:05:31+00:00",
        versions={"splitwiper": "0.1.0", "torch": "2.6.0", "numpy": "2.1.3", "python": "3.11.7"},
        seed=20250923,
        dataset="digits (1,797 images, 8 × 8)",
        client_names=tuple(HELD),
        request=ReportedRequest("north", "class", ("three",), 183),
        before=Accuracy(0.989, 0.971, dict(zip(DIGITS, BEFORE, strict=True))),
        after=Accuracy(0.0, 0.973, dict(zip(DIGITS, AFTER, strict=True))),
        clients=tuple(_client(name, spent) for name, spent in zip(HELD, SECONDS, strict=True)),
        server=ReportedServer(
            4.87,
            4.21,
            30,
            tuple(0.05 + 2.25 * 0.84**i for i in range(30)),
            tuple(0.04 + 2.15 * 0.82**i for i in range(30)),
        ),
        verification=Verification(
            (
                Check("Server half", "exact", "12 tensors, 128,458 values compared", "state"),
                Check("Client half of north", "exact", "4 tensors, recomputed from 268 surviving rows", "state"),
                Check("Shard of north", "exact", "digest 5f1c…9a03 equals the recomputed one", "rows"),
                Check("Shards of the other clients", "exact", "4 digests unchanged since learning", "history"),
            )
        ),
        halves_text=(
            "cut at        layer1\n"
            "client half   Linear(64 → 128), ReLU                      8,320 parameters\n"
            "server half   Linear(128 → 256), ReLU, Linear(256 → 10)  35,594 parameters\n"
            "per row       128 values, 512 bytes"
        ),
        receipt={
            "format": 1,
            "ticket": "t-000001",
            "client": "north",
            "settled": "2025-09-23T14:05:29Z",
            "manifest": {"before": "b3:77ce40f1", "after": "b3:0aa91d52"},
            "context": {"config": "b3:c1d2e3f4", "initial_weights": "b3:9e8d7c6b"},
            "rows": {"removed": 183, "kept": 268},
        },
        fingerprint={
            "torch": "2.6.0+cpu",
            "device": "cpu",
            "instruction set": "AVX2",
            "threads": "2",
            "deterministic": "yes",
        },
        remains=(
            Remains("Shards", 5, 3_921_040, "the surviving rows’ activations, from which the model is trained"),
            Remains("Server models", 1, 144_200, "the model in use, trained without the forgotten rows"),
            Remains("Client halves", 5, 171_630, "needed to predict; north’s was trained again"),
            Remains("Ledger and receipts", 2, 24_576, "proof of what was done; names no class and no row"),
            Remains(
                "Suppression list",
                1,
                5_856,
                "keyed hashes of the forgotten rows, so they are refused if they return",
            ),
        ),
        run="runs/demo",
    )
