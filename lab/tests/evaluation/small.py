"""A small comparison of digits over three clients, run once for many tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch

from splitwiper_lab.evaluation.comparison import (
    Comparison,
    Record,
    compared,
    read_comparison,
    stage,
)
from splitwiper_lab.workloads import Workload, workload

ROOT = Path(__file__).parents[2]
CLIENTS = ("east", "north", "south")
OTHERS = ("east", "south")
SPLIT = ("vanilla", "u-shaped", "splitfed-v1", "splitfed-v2")
M = 2
SYSTEMS = """
[[systems]]
kind = "splitwiper"

[[systems]]
kind = "vanilla"
unlearning = [
  "retraining",
  {method = "fine-tuning", epochs = 1},
  {method = "gradient-ascent", epochs = 1},
  {method = "distillation", epochs = 1},
  {method = "incompetent-teacher", epochs = 1},
]

[[systems]]
kind = "vanilla"
name = "ascent alone"
unlearning = {method = "gradient-ascent", retain = 0, epochs = 1}

[[systems]]
kind = "u-shaped"

[[systems]]
kind = "splitfed-v1"

[[systems]]
kind = "splitfed-v2"

[[systems]]
kind = "sisa"
shards = 2
"""
ATTACKED = """
membership = {shadow = 0.4, shadows = 2}

[[systems]]
kind = "splitwiper"

[[systems]]
kind = "vanilla"
unlearning = ["retraining", {method = "fine-tuning", epochs = 1}]

[[systems]]
kind = "sisa"
shards = 2
"""
EXACT = {("splitwiper", "splitwiper"), ("vanilla", "retraining"), ("sisa", "sisa")}
Found = dict[tuple[str, str], Record]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


def small(rows: int = 150, *, epochs: int = M) -> Workload:
    """Real digits over three clients; nobody but north holds threes."""
    return workload(
        "digits",
        "digits_cnn",
        clients=3,
        rows=rows,
        forget="three",
        owner="north",
        server={"epochs": epochs, "batch": 64, "threads": 1},
        client={"epochs": 1, "threads": 1},
    )


def settings(text: str) -> Comparison:
    return read_comparison(tomllib.loads(text))


def compare(work: Workload, comparison: Comparison) -> Found:
    """Records by system and way; a system is called by its name where it was given one."""
    found = compared(stage(work, comparison), comparison)
    return {(r.kind if r.system.startswith(r.kind) else r.system, r.unlearning): r for r in found}


@pytest.fixture(scope="module")
def found() -> Found:
    return compare(small(), settings(SYSTEMS))
