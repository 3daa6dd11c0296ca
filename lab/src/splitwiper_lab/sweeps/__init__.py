"""Sweeps: measure the cells that are missing, append each as a line to a file, and continue from there the next time.

`compare`, `tradeoff` and `reproduce` are sweeps that differ in what a cell measures. Each says which cells it wants
and how to measure some of them; everything else is here::

    found = read_results(path, wanted=set(cells).__contains__)
    for result in sweep(path, missing(cells, found), measure, made=made):
        ...                             # already appended to the file
"""

from splitwiper_lab.sweeps.cells import Cell, CellResult
from splitwiper_lab.sweeps.engine import Measure, in_turn, matches, missing, side_by_side, sweep
from splitwiper_lab.sweeps.results import append, append_line, machine, machines, read_results

__all__ = [
    "Cell",
    "CellResult",
    "Measure",
    "append",
    "append_line",
    "in_turn",
    "machine",
    "machines",
    "matches",
    "missing",
    "read_results",
    "side_by_side",
    "sweep",
]
