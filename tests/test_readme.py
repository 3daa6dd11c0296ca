"""What the README shows is what comes out."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warm

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_every_python_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks("python")
    assert len(found) == 1
    space: dict[str, object] = {}
    for block in found:
        exec(compile(block, "README.md", "exec"), space)
    assert (tmp_path / "receipt.json").exists()


def test_every_console_line_runs(tmp_path: Path) -> None:
    folder = tmp_path / "own-data"
    shutil.copytree(ROOT / "examples" / "own-data", folder, ignore=shutil.ignore_patterns("*.csv", "runs"))
    installed, forked = str(Path(sys.executable).parent), str(warm.program_folder())
    (block,) = blocks("console")
    lines = [line.removeprefix("$ ") for line in block.splitlines()]
    assert len(lines) == 6
    first = next(line for line in lines if line.startswith("splitwiper"))
    for line in lines:
        programs = [installed] if line == first else [forked, installed]  # one is started as users start it
        path = os.pathsep.join([*programs, os.environ["PATH"]])
        done = subprocess.run(
            ["sh", "-ec", line],
            cwd=folder,
            env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"


def test_results_are_those_of_the_kept_files() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "results.py"))
    output = (ROOT / "results" / "demo.txt").read_text(encoding="utf-8")
    assert script["readme"](TEXT, output.strip()) == TEXT, "run `make results`"


@pytest.mark.parametrize("folder", sorted((ROOT / "results" / "compare").iterdir()), ids=lambda path: path.name)
def test_comparisons_are_told_as_they_were_measured(folder: Path) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "results.py"))
    assert script["comparison"](folder)[0] == (folder / "compare.md").read_text(encoding="utf-8"), "run `make results`"


def test_the_threat_model_tells_what_was_measured() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "results.py"))
    text = (ROOT / "THREAT_MODEL.md").read_text(encoding="utf-8")
    assert script["threat_model"](text, script["TRADEOFF"]) == text, "run `make results`"
    found = json.loads((ROOT / "results" / "tradeoff" / "inputs-rebuilt.json").read_text(encoding="utf-8"))
    (rebuilt,) = (result["scores"] for result in found if "psnr" in result["scores"])
    assert f"at {rebuilt['psnr']:.0f} dB where their mean gives {rebuilt['psnr_of_mean']:.0f}" in text


def test_every_link_leads_somewhere() -> None:
    for page in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "THREAT_MODEL.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            assert target.startswith("https://") or (ROOT / target).exists(), f"{page}: {target}"
