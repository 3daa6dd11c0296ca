"""Run all tests under other instruction sets, thread counts and orders, one setting at a time: `make test-matrix`.

Each setting's counts and seconds are a line of ``results/tests.jsonl``, in place of its earlier one. Names of settings
as arguments run these alone; what pytest prints goes to the terminal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "tests.jsonl"
sys.path.insert(0, str(ROOT))

from benchmarks.harness import hardware, source, versions  # noqa: E402


@dataclass(frozen=True)
class Setting:
    """What tests are run with."""

    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()


SETTINGS = {
    "as it is": Setting(),
    "default": Setting({"ATEN_CPU_CAPABILITY": "default"}),
    "avx2, random order": Setting({"ATEN_CPU_CAPABILITY": "avx2"}, ("--random-order", "--random-order-bucket=global")),
    "four threads": Setting({"OMP_NUM_THREADS": "4", "SPLITWIPER_TEST_THREADS": "4"}),
}


def main(names: Sequence[str]) -> int:
    """Run the settings; the number of those in which a test failed."""
    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        sys.exit(f"unknown {unknown[0]!r}; there are {', '.join(map(repr, SETTINGS))}.")
    wrong = 0
    for name in names or list(SETTINGS):
        found = measure(SETTINGS[name])
        keep({"setting": name, **found, "hardware": hardware(), "versions": versions(), "commit": source()})
        wrong += bool(found["failed"] or not found["passed"])
    return wrong


def measure(setting: Setting) -> dict[str, Any]:
    """Run all tests once, and count what came of them."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "3",
            "--dist",
            "worksteal",
            f"--junitxml={report}",
            *setting.options,
        ]
        environment = {**os.environ, "SPLITWIPER_TEST_SHARE": "all", **setting.environment}
        subprocess.run(command, cwd=ROOT, env=environment, check=False)  # noqa: S603
        counts = ElementTree.parse(report).getroot().find("testsuite")  # noqa: S314 - written by pytest, just now
        assert counts is not None  # noqa: S101
        tests, skipped = int(counts.get("tests", 0)), int(counts.get("skipped", 0))
        failed = int(counts.get("failures", 0)) + int(counts.get("errors", 0))
    return {
        "environment": dict(setting.environment),
        "options": list(setting.options),
        "passed": tests - failed - skipped,
        "failed": failed,
        "skipped": skipped,
        "seconds": round(time.monotonic() - began),
    }


def keep(line: Mapping[str, Any]) -> None:
    """Write a setting's results in place of its earlier ones."""
    lines = [json.loads(text) for text in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []
    lines = [one for one in lines if one["setting"] != line["setting"]]
    lines.append({**line, "date": datetime.now(UTC).isoformat(timespec="seconds")})
    order = list(SETTINGS)
    lines.sort(key=lambda one: order.index(one["setting"]) if one["setting"] in order else len(order))
    RESULTS.write_text("".join(json.dumps(one) + "\n" for one in lines), "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
