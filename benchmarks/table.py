"""The results page: written from the JSON lines, and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = "README.md"
_HEAD = """# Benchmarks

Written by `python -m benchmarks table` from the `.jsonl` files beside it; `make bench` measures them again. Everything
that was measured, pairs and medians, with settings and versions, is in those files. Timings are ratios within one run.

| benchmark | what | target | measured | met | hardware | commit |
|---|---|---|---|---|---|---|
"""


def read(folder: Path) -> list[dict[str, Any]]:
    """Every result in a folder, by benchmark."""
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def page(records: list[dict[str, Any]]) -> str:
    """The page."""
    rows = [
        f"| {record['name']} | {check['what']} | {check['target']} | {check['measured']} "
        f"| {_met(check)} | {_machine(record)} | {_commit(record)} |"
        for record in records
        for check in record["checks"]
    ]
    notes = sorted({f"- **{record['name']}**: {record['title']}" for record in records})
    return _HEAD + "\n".join([*rows, "", *notes]) + "\n"


def _met(check: Mapping[str, Any]) -> str:
    return "" if check["target"] == "reported" else "yes" if check["met"] else "**no**"


def write(folder: Path) -> Path:
    """Write the page beside the results it is written from."""
    path = folder / PAGE
    path.write_text(page(read(folder)), encoding="utf-8")
    return path


def _machine(record: Mapping[str, Any]) -> str:
    hardware, versions = record["hardware"], record["versions"]
    cores = f"{hardware['cores']} core" + "s" * (hardware["cores"] != 1)
    parts = [hardware["gpu"], hardware["cpu"], cores, f"{hardware['memory_gb']:g} GB", f"torch {versions['torch']}"]
    return ", ".join(part for part in parts if part)


def _commit(record: Mapping[str, Any]) -> str:
    commit, words = record["commit"], [record["date"][:10]]
    if commit["hash"]:
        words.insert(0, f"{commit['hash'][:7]}{' with changes' if commit['dirty'] else ''},")
    return " ".join(words + ["(quick: not a measurement)"] * record["quick"])
