"""The table that ``print(halves)`` shows."""

from __future__ import annotations

from collections.abc import Sequence

from splitwiper.splitting.specs import TensorSpec


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Align columns: the first ``left`` to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


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
