"""Measure several cells concurrently, each in its own process.

Accuracies are the same as one after another; times are not, since the processes share the machine. A result records
how many others ran concurrently, and times come from results that ran alone, if there are any.
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
from splitwiper_lab.evaluation.reproduction.runner import Problems, measured
from splitwiper_lab.evaluation.reproduction.work import Bench


def measured_at_once(
    experiment: Experiment,
    wanted: Sequence[Cell],
    bench: Bench,
    *,
    jobs: int,
    on: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Yield cells as they finish.

    Args:
        experiment: the experiment.
        wanted: the cells to measure; they start in this order.
        bench: the folders and the progress callback.
        jobs: the number of processes.
        on: called before each cell; False starts no more cells.

    Raises:
        TrainingError: some could not be trained; raised after all others are done.
        NotFoundError: some data is missing; raised likewise.
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
    """Initialise a process: limit it to its share of the cores, and log only errors."""
    import torch

    torch.set_num_threads(threads)
    logging.getLogger("splitwiper").setLevel(logging.ERROR)


def _measure(experiment: Experiment, cell: Cell, bench: Bench) -> list[tuple[Cell, dict[str, Any]]]:
    return list(measured(experiment, [cell], bench))
