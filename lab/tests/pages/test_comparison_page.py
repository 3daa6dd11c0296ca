"""The comparison in brief, as the README shows it."""

from __future__ import annotations

from pathlib import Path

from splitwiper_lab.evaluation.comparison import Record, in_order, summary
from splitwiper_lab.pages.comparison import brief, short
from splitwiper_lab.sweeps import read_results

RESULTS = Path(__file__).parents[3] / "results" / "compare" / "cifar10" / "compare.jsonl"


def test_in_brief_every_kind_of_system_has_its_best_methods() -> None:
    lines = summary(in_order([Record.from_dict(result.values) for result in read_results(RESULTS)]), bandwidth=1e8)
    page = brief(lines)
    names = {f"| {row[0]} |": line for row, line in zip(short(lines)[1], lines, strict=True)}
    shown = [line for name, line in names.items() if name in page]
    assert len(shown) == page.count("\n") - 1 < len(lines)
    for line in lines:
        (kept,) = [best for best in shown if (best.kind, best.exact) == (line.kind, line.exact)]
        if line.exact:
            assert kept.retained.mean >= line.retained.mean
        else:
            assert kept.forgotten.mean <= line.forgotten.mean
