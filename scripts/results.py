"""Run the demo, keep its figures and its output in ``results/``, and write the README's blocks from those files."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "results" / "demo.json"
OUTPUT = ROOT / "results" / "demo.txt"
COMPARED = ROOT / "results" / "compare"
TRADEOFF = ROOT / "results" / "tradeoff" / "cifar10-vgg" / "tradeoff.jsonl"


def demo(*options: str) -> str:
    """What one run of the demo prints."""
    with tempfile.TemporaryDirectory() as folder:
        command = [Path(sys.executable).parent / "splitwiper", "demo", "--run", f"{folder}/run", *options]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603


def measure() -> dict[str, Any]:
    """One run of the demo, with the machine it ran on."""
    figures: dict[str, Any] = json.loads(demo("--json"))
    for path in ("run", "report", "ticket"):
        del figures[path]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    return {
        **figures,
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "versions": {name: version(name) for name in ("splitwiper", "torch", "numpy")}
        | {"python": platform.python_version()},
    }


def readme(text: str, output: str) -> str:
    """The README with its blocks in place. Of the demo's output it leaves out costs, checks and time."""
    before, _, after = output.partition("spent by ")
    verdict = after[after.index("Exact: ") :].partition("\n")[0]
    output = f"{before}…\n\n{verdict}"
    blocks = {
        "output": f"```text\n{output}\n```",
        "compared": comparison(COMPARED / "cifar10")[1],
    }
    for name, block in blocks.items():
        mark = f"<!-- results:{name} -->"
        before, _, after = text.split(mark)
        text = f"{before}{mark}\n{block}\n{mark}{after}"
    return text


def comparison(folder: Path) -> tuple[str, str]:
    """The page of a comparison that was measured, and its table in brief, from the JSON lines in its folder."""
    from splitwiper_lab.evaluation.comparison import Record, exposures, in_order, summary
    from splitwiper_lab.pages.comparison import brief, markdown
    from splitwiper_lab.sweeps import machines, read_results

    results = read_results(folder / "compare.jsonl")
    about, records = results[-1].about, in_order([Record.from_dict(result.values) for result in results])
    found = summary(records, bandwidth=about["bandwidth"] * 1e6)
    page = markdown(about, found, exposures(records), machines(results), "compare.jsonl")
    commits = ", ".join(sorted({result.made["commit"] or "unknown" for result in results}))
    page += f"\nMeasured at {commits}."
    return page + "\n", brief(found)


def threat_model(text: str, results: Path) -> str:
    """The threat model with its table of modes in place."""
    from splitwiper_lab.evaluation.tradeoff import Point, settings
    from splitwiper_lab.sweeps import read_results

    found = {result.cell.system: Point.from_dict(result.values) for result in read_results(results)}
    points = [found[s.name] for s in settings(10) if s.name in found]
    rows = ["| mode | accuracy | bytes | rows recovered | … knowing ten rows of each label |"]
    rows.append("|---|---:|---:|---:|---:|")
    rows += [
        f"| {p.setting} | {100 * p.accuracy:.1f} % | {p.sent / points[0].sent:.2g} × | "
        f"{100 * p.recovered('Q'):.1f} % | {100 * p.recovered('aux'):.1f} % |"
        for p in points
    ]
    mark = "<!-- results:modes -->"
    before, _, after = text.split(mark)
    return f"{before}{mark}\n{chr(10).join(rows)}\n{mark}{after}"


def main() -> None:
    """Measure, keep, write."""
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(measure(), indent=2) + "\n", encoding="utf-8")
    lines = [line.rstrip() for line in demo().splitlines()]
    OUTPUT.write_text("\n".join(line for line in lines if not line.startswith(("Report:", "Run:"))), encoding="utf-8")
    page = ROOT / "README.md"
    output = OUTPUT.read_text(encoding="utf-8")
    page.write_text(readme(page.read_text(encoding="utf-8"), output.strip()), encoding="utf-8")
    for folder in COMPARED.iterdir():
        (folder / "compare.md").write_text(comparison(folder)[0], encoding="utf-8")
    page = ROOT / "THREAT_MODEL.md"
    page.write_text(threat_model(page.read_text(encoding="utf-8"), TRADEOFF), encoding="utf-8")


if __name__ == "__main__":
    main()
