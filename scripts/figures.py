"""Measure the source at some revisions, and write the table to results/tree.md.

    python scripts/figures.py REVISION...

Lines are physical lines, with docstrings, comments and blank lines. Comment lines have a comment on them. A class name
counts as used twice if two classes of the product and the laboratory have it.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "results" / "tree.md"
PARTS = {"product": "src/splitwiper/", "laboratory": "lab/src/", "tests": ("tests/", "lab/tests/")}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Figures:
    """What is counted in one part of the source."""

    files: int = 0
    lines: int = 0
    code: int = 0
    comprehensions: int = 0
    comments: int = 0
    functions: int = 0
    long_functions: int = 0
    longest_file: int = 0
    classes: Counter[str] = field(default_factory=Counter)

    def add(self, source: str) -> None:
        """Count one file."""
        tree = ast.parse(source)
        lines = source.count("\n")
        comments = comment_lines(source)
        self.files += 1
        self.lines += lines
        self.code += lines - source.splitlines().count("") - docstring_lines(tree) - len(comments)
        self.comments += len(comments)
        self.longest_file = max(self.longest_file, lines)
        for node in ast.walk(tree):
            if isinstance(node, COMPREHENSIONS):
                self.comprehensions += 1
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions += 1
                self.long_functions += (node.end_lineno or node.lineno) - node.lineno >= 50

    def per_thousand(self, count: int) -> str:
        """Return a count per 1,000 lines."""
        return f"{1000 * count / max(1, self.lines):.1f}"


def comment_lines(source: str) -> set[int]:
    """Return the numbers of lines with a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


def docstring_lines(tree: ast.Module) -> int:
    """Count the lines of all docstrings."""
    count = 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            count += (first.end_lineno or first.lineno) - first.lineno + 1
    return count


def measure(revision: str) -> dict[str, Figures]:
    """Return the figures of each part at a revision."""
    command = ["git", "archive", revision]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S603
    figures = {part: Figures() for part in PARTS}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            file = files.extractfile(member) if member.name.endswith(".py") else None
            for part, folders in PARTS.items():
                if file is not None and member.name.startswith(folders):
                    figures[part].add(file.read().decode())
    return figures


def table(revisions: list[str]) -> str:
    """Return a Markdown table with one row for each revision and part."""
    rows = [
        "| revision | part | files | lines | of them code | comprehensions per 1,000 lines | comment lines per 1,000 "
        "| functions over 50 lines | longest file | class names used twice |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for revision in revisions:
        figures = measure(revision)
        shared = figures["product"].classes + figures["laboratory"].classes
        twice = sum(count > 1 for count in shared.values())
        for part, found in figures.items():
            cells = [
                revision,
                part,
                f"{found.files}",
                f"{found.lines:,}",
                f"{found.code:,}",
                found.per_thousand(found.comprehensions),
                found.per_thousand(found.comments),
                f"{found.long_functions} of {found.functions:,}",
                f"{found.longest_file}",
                "" if part == "tests" else f"{twice}",
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    text = table(sys.argv[1:])
    others = "".join(OUT.read_text(encoding="utf-8").partition("\n## ")[1:])  # tables of other scripts
    page = f"# The source in figures\n\nWritten by `python scripts/figures.py`.\n\n{text}{others}"
    OUT.write_text(page, encoding="utf-8")
    sys.stdout.write(text)
