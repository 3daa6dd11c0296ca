"""Make a small data set as two organisations might hold it: one table each, to learn from and to test on."""

from __future__ import annotations

import csv
from pathlib import Path

from sklearn.datasets import load_wine

HERE = Path(__file__).parent
NAMES = ("barolo", "grignolino", "barbera")
HOLDERS = {"north": ("barolo", "grignolino"), "south": ("grignolino", "barbera")}


def main() -> None:
    """Write ``north.csv``, ``north-test.csv``, ``south.csv`` and ``south-test.csv`` beside this file."""
    wine = load_wine()
    columns = [name.replace("/", "_") for name in wine.feature_names]
    rows = [(*map(float, values), NAMES[kind]) for values, kind in zip(wine.data, wine.target, strict=True)]
    for place, (client, kinds) in enumerate(HOLDERS.items()):
        # a kind that both hold is dealt out in turns
        mine = [row for number, row in enumerate(rows) if row[-1] in kinds and _is_dealt(row[-1], number, place)]
        write(HERE / f"{client}.csv", columns, [row for number, row in enumerate(mine) if number % 4])
        write(HERE / f"{client}-test.csv", columns, mine[::4])


def _is_dealt(kind: str, number: int, place: int) -> bool:
    return sum(kind in kinds for kinds in HOLDERS.values()) == 1 or number % 2 == place


def write(path: Path, columns: list[str], rows: list[tuple[float | str, ...]]) -> None:
    """Write one table; the kind of wine is its last column."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "kind"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
