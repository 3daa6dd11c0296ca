"""``python -m benchmarks``: run benchmarks, list them, or write the results page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness, table

OUT = harness.ROOT / "results" / "benchmarks"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for."""
    asked = _parser().parse_args(arguments)
    if asked.child:
        name, parameters = asked.child
        _say(json.dumps(harness.load(name).child(**json.loads(parameters))))
        return 0
    if asked.list:
        for name in harness.names():
            benchmark = harness.load(name)
            lacking = harness.missing(benchmark)
            _say(f"{name:10} {harness.title(benchmark)}" + (f" (cannot run here: {lacking})" if lacking else ""))
        return 0
    if asked.names == ["table"]:
        _say(f"wrote {table.write(asked.out or OUT)}")
        return 0
    unknown = [name for name in asked.names if name not in harness.names()]
    if unknown:
        _say(f"unknown benchmark {unknown[0]!r}: choose from {', '.join(harness.names())}, or 'table'.")
        return 2
    out: Path | None = asked.out or (None if asked.quick else OUT)
    for name in asked.names or harness.names():
        _run(name, out, asked)
    if out is not None:
        _say(f"wrote {table.write(out)}")
    return 0


def _run(name: str, out: Path | None, asked: argparse.Namespace) -> None:
    benchmark, quick = harness.load(name), asked.quick
    if lacking := harness.missing(benchmark, quick=quick):
        _say(f"{name}: skipped, {lacking}")
        return
    if quick:
        _say(f"{name}: a quick try with little data on this machine; what it prints is not a measurement")
    else:
        _say(f"{name}: {harness.title(benchmark)}")
    kept = []
    for result in benchmark.run(quick=quick, **({"only": asked.only} if asked.only else {})):
        kept += harness.records(name, [result], quick=quick, commit=asked.commit)
        for check in result.checks:
            judged = "" if quick or check.target == "reported" else f" (target {check.target}, {_met(check.met)})"
            _say(f"  {check.what}: {check.measured}{judged}")
        if out is not None:  # immediately: a long benchmark that is stopped keeps its results so far
            harness.write(out, name, kept, others=bool(asked.only))


def _met(met: bool) -> str:
    return "met" if met else "NOT met"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (all), or 'table'")
    parser.add_argument("--out", type=Path, help="where results go (results/benchmarks)")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--quick", action="store_true", help="in seconds, to try it out; kept only where --out says")
    parser.add_argument(
        "--only", help="the parts of a benchmark whose name has this in it; earlier results of others stay"
    )
    parser.add_argument("--commit", help="the commit that is measured, for a copy without a repository")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
