"""A process dies at steps that change the disk, every single one in the soak; the same calls then end in the same bits.

Dying is `os._exit`: no clean-up, no finally. Each scenario dies before and after every write, fsync, rename,
removal and commit of it, and is finished by another process each time.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import warm
from reliability.campaign import APART, todays
from reliability.scenarios import SCENARIOS

TESTS = Path(__file__).parents[1]
KINDS = {"write", "fsync", "rename", "fsync-folder", "unlink", "commit"}


def campaign(*arguments: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The undisturbed run, and what became of each death."""
    command = ["-m", "reliability.campaign", *arguments]
    done = warm.run(command, cwd=TESTS, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    quiet, *cases = map(json.loads, done.stdout.splitlines())
    return quiet, cases


@pytest.mark.parametrize("name", SCENARIOS)
def test_dying_at_some_steps_loses_nothing(name: str) -> None:
    today = todays(APART)
    quiet, cases = campaign(name, str(today))
    images = [taken for _, taken in quiet["steps"]]
    different = 1 + sum(a != b for a, b in pairwise(images))
    assert different >= SCENARIOS[name].deaths and len(cases) == len(range(today, different, APART))
    check(name, quiet, cases)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SCENARIOS)
def test_dying_at_any_step_loses_nothing(name: str) -> None:
    quiet, cases = campaign(name, "every")
    assert len(cases) == len(quiet["steps"])
    check(name, quiet, cases)


def check(name: str, quiet: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    scenario = SCENARIOS[name]
    steps = [event for event, _ in quiet["steps"]]
    kinds = Counter(event.split()[0] for event in steps)
    assert len(steps) >= scenario.steps
    assert {kind.split(":")[0] for kind in kinds} >= KINDS
    assert all(kinds[f"{kind}:before"] == kinds[f"{kind}:after"] > 0 for kind in KINDS)
    assert quiet["after"]["strays"] == quiet["after"]["todo"] == []
    assert quiet["before"] != quiet["after"]["bits"]
    assert [case["event"] for case in cases] == [steps[case["step"] - 1] for case in cases]
    problems = [f"step {c['step']} ({c['event']}): {p}" for c in cases for p in _problems(c, quiet, scenario.tickets)]
    assert not problems, f"{len(problems)} of {len(cases)}:\n" + "\n".join(problems[:40])


def _problems(case: dict[str, Any], quiet: dict[str, Any], tickets: int) -> list[str]:
    if "failure" in case:
        return [f"it cannot be looked at, or not finished: {case['failure']}"]
    out, after, wanted = [], case["after"], quiet["after"]["bits"]
    idle = after["found"] in (None, quiet["before"], wanted, {"model": []})
    if not idle and not after["explained"]:
        out.append("status does not say that work is unfinished")
    if after["bits"] != wanted:
        out.append(f"other bits: {[key for key in wanted if after['bits'].get(key) != wanted[key]]}")
    out += after["strays"] + [f"still to do: {what}" for what in after["todo"]]
    promised = {line.split()[1] for line in case["acked"] if " " in line}
    if not promised <= after["tickets"].keys() or set(after["tickets"].values()) - {"settled"}:
        out.append(f"acknowledged {promised}, tickets are {after['tickets']}")
    if len(after["tickets"]) != tickets:
        out.append(f"{len(after['tickets'])} tickets, not {tickets}")
    return out
