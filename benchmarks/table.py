"""The results page: written from the JSON lines, and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = "README.md"
_HEAD = """# Benchmarks

Written by `python -m benchmarks table` from the `.jsonl` files in this folder; `make bench` measures them again.
Everything that was measured, pairs and medians, with settings and versions, is in those files. On CPUs, timings are
ratios within one run; absolute times are a GPU's.
"""
_COLUMNS = "| benchmark | what | target | measured | met | commit |\n|---|---|---|---|---|---|\n"


def read(folder: Path) -> list[dict[str, Any]]:
    """Every result in a folder, by benchmark."""
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def page(records: list[dict[str, Any]]) -> str:
    """The page: a table for each machine."""
    machines: dict[str, list[str]] = {}
    for record in records:
        machines.setdefault(_machine(record), []).extend(
            f"| {record['name']} | {check['what']} | {check['target']} | {check['measured']} | {_met(check)} "
            f"| {_commit(record)} |"
            for check in record["checks"]
        )
    notes = sorted({f"- **{record['name']}**: {record['title']}" for record in records})
    tables = [f"\n## {machine}\n\n{_COLUMNS}" + "\n".join(rows) + "\n" for machine, rows in machines.items()]
    return _HEAD + "".join(tables) + "\n" + "\n".join(notes) + "\n"


def _met(check: Mapping[str, Any]) -> str:
    return "" if check["target"] == "reported" else "yes" if check["met"] else "**no**"


def write(folder: Path) -> Path:
    """Write the page into the folder with the results that it is generated from."""
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
