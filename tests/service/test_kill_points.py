"""`join`, `forget` and `certificate` are killed at every step that changes a disk; the same command then ends the same.

Every step that the site, the server or its worker takes is one death in the soak, written to
``results/soak/kill-points.jsonl``; each day's test runs take other ones of them.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reliability.campaign import todays
from service.killing import COMMANDS, ROLES, Campaign, Outcome, judged
from splitwiper import __version__
from steps import Step

RESULTS = Path(__file__).parents[2] / "results" / "soak" / "kill-points.jsonl"
SAMPLE = 2
LEAST = {"join": 200, "forget": 200, "certificate": 20}
"""Fewer steps than this would mean that some no longer announce themselves."""


def deaths(campaign: Campaign, chosen: list[Step], quiet: Outcome) -> tuple[Counter[str], list[str]]:
    """Die at steps; how often each role died, and everything that went wrong."""
    counts, problems = Counter[str](), []
    for step in chosen:
        out = campaign.run(step)
        counts[step.role if out.died else "not met"] += 1
        problems += [f"{step}: {problem}" for problem in judged(out, quiet)]
    return counts, problems


@pytest.mark.share(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_a_few_steps(command: str, tmp_path: Path) -> None:
    with closing(Campaign(tmp_path, command)) as campaign:
        quiet, steps = campaign.undisturbed()
        assert quiet.problems == [] and quiet.runs == [0] and len(steps) >= LEAST[command]
        apart = len(steps) // SAMPLE
        chosen = steps[todays(3 * apart) // 3 :: apart][:SAMPLE]  # a command has its turn every third day
        counts, problems = deaths(campaign, chosen, quiet)
    assert not problems, "\n".join(problems)
    assert sum(counts.values()) == SAMPLE > counts["not met"]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_every_step(command: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with closing(Campaign(tmp_path, command)) as campaign:
        quiet, steps = campaign.undisturbed()
        counts, problems = deaths(campaign, steps, quiet)
    line = {
        "command": command,
        "steps": dict(Counter(step.role for step in steps)),
        "killed": {role: counts[role] for role in ROLES},
        "not_met": counts["not met"],
        "problems": len(problems),
        "seconds": round(time.monotonic() - began, 1),
        "cores": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}",
        "version": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    assert not problems, f"{len(problems)} of {len(steps)}:\n" + "\n".join(problems[:40])
    assert counts["not met"] < len(steps) / 10  # threads of the server take some steps sooner or later, or not
