"""The table that ``print(halves)`` shows."""

from __future__ import annotations

from collections.abc import Sequence

from splitwiper.splitting.specs import TensorSpec


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Align columns: the first ``left`` to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(cell.ljust(width) if number < left else cell.rjust(width))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def amount(number: float) -> str:
    """Format a number with three digits and a unit.

    >>> amount(1234567), amount(12)
    ('1.23 M', '12')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def boundary_table(boundary: Sequence[TensorSpec]) -> str:
    """Tabulate the tensors that cross the cut, with their bytes on the wire."""
    rows = [("crosses the cut", "kind", "per row", "dtype", "bytes per row")]
    for spec in boundary:
        shape = " x ".join(map(str, spec.shape)) or "scalar"
        dtype = str(spec.dtype).removeprefix("torch.")
        rows.append((spec.name, spec.kind, shape, dtype, f"{spec.bytes_per_row:,}"))
    if len(boundary) > 1:
        rows.append(("together", "", "", "", f"{sum(spec.bytes_per_row for spec in boundary):,}"))
    return table(rows)
