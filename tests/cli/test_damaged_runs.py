"""Every kind of file of a run, damaged in every way: each command ends with an exit code of the table."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from reliability.damaging import kinds, troubles


def test_no_command_ends_in_a_traceback(call, place: Path, ward: Path, tmp_path: Path) -> None:
    call("unlearn", ward, "north", "--class", "1", "--receipt", place / "one.json")
    ticket = json.loads((place / "one.json").read_text(encoding="utf-8"))["ticket"]
    work = tmp_path / "work"
    commands = {
        "status": ("status", work, "--client", "north"),
        "learn": ("learn", place / "ward.toml", "--run", work),
        "verify": ("verify", work),
        "unlearn": ("unlearn", work, "south", "--class", "3"),
        "predict": ("predict", work, "north", place / "north-test.npz"),
        "settle": ("settle", work),
        "receipt": ("receipt", work, ticket[:8], "--certificate", place / "one.cert"),
    }
    assert len(kinds(ward)) >= 14
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert troubles(ward, work, commands) == []
