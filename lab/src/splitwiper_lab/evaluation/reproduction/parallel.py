"""Measure several cells at once, each in a process of its own.

Accuracies are those of one after another; times are not, since the processes share the machine. A result says how
many others ran beside it, and times come from results that ran alone where there are any.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

from splitwiper_lab.evaluation.reproduction.cells import Cell
from splitwiper_lab.evaluation.reproduction.experiment import Experiment
from splitwiper_lab.evaluation.reproduction.measuring import Problems, measured
from splitwiper_lab.evaluation.reproduction.work import Bench


def measured_at_once(
    experiment: Experiment,
    wanted: Sequence[Cell],
    bench: Bench,
    *,
    jobs: int,
    on: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Cells as they become ready.

    Args:
        experiment: which.
        wanted: its cells to measure; they are begun in this order.
        bench: where.
        jobs: how many at a time.
        on: asked before each cell whether to begin it.

    Raises:
        TrainingError: some could not be trained; told when all others are through.
        NotFoundError: some data is not here; told likewise.
    """
    waiting, running, problems = list(wanted), dict[Future[list[tuple[Cell, dict[str, Any]]]], Cell](), Problems()
    done = 0
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_prepare, initargs=(threads,)) as pool:
        while waiting or running:
            while waiting and len(running) < jobs and on():
                cell = waiting.pop(0)
                running[pool.submit(_measure, experiment, cell, Bench(bench.scratch, bench.data))] = cell
            if not running:
                return
            if bench.progress:
                bench.progress(f"measuring {len(running)} at once", done, len(wanted))
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell, done = running.pop(future), done + 1
                with problems.put_off(f"{cell.title}, seed {cell.seed}"):
                    yield from future.result()
    problems.tell()


def _prepare(threads: int) -> None:
    """What a process does first: take its part of the cores, and say nothing."""
    import torch

    torch.set_num_threads(threads)
    logging.getLogger("splitwiper").setLevel(logging.ERROR)


def _measure(experiment: Experiment, cell: Cell, bench: Bench) -> list[tuple[Cell, dict[str, Any]]]:
    return list(measured(experiment, [cell], bench))
