"""The engine of every sweep: which cells are missing, how they are measured, and where their results go."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from splitwiper.errors import NotFoundError, TrainingError
from splitwiper.progress import Progress
from splitwiper_lab.sweeps.cells import Cell, CellResult
from splitwiper_lab.sweeps.results import append

Measured = tuple[Cell, Mapping[str, Any]]
Measure = Callable[[Sequence[Cell]], Iterable[Measured]]
"""Measures cells of one condition and seed, and yields each as soon as it is done."""


def missing(wanted: Iterable[Cell], found: Iterable[CellResult]) -> list[Cell]:
    """Return the cells that have no result yet."""
    done = {result.cell for result in found}
    return [cell for cell in wanted if cell not in done]


def sweep(
    path: Path | None,
    todo: Sequence[Cell],
    measure: Measure,
    *,
    made: Callable[[Cell], Mapping[str, Any]],
    about: Mapping[str, Any],
    jobs: int = 1,
    go_on: Callable[[], bool] = lambda: True,
    progress: Progress | None = None,
) -> Iterator[CellResult]:
    """Measure cells, and yield each result once it is in the file.

    Args:
        path: the file to append to; None keeps nothing.
        todo: the cells.
        measure: measures some of them; with several jobs it must be picklable.
        made: says where a cell's result comes from.
        about: the conditions of the sweep, in words for people.
        jobs: the number of processes.
        go_on: asked before each cell; False begins no other.
        progress: called with the number of cells that are done, if there are several jobs.

    Raises:
        TrainingError: some could not be trained; raised after all others are done.
        NotFoundError: some data is missing; raised likewise.
    """
    found = in_turn(todo, measure, go_on=go_on)
    if jobs > 1:
        found = side_by_side(todo, measure, jobs=jobs, go_on=go_on, progress=progress)
    for cell, values in found:
        result = CellResult(cell, values, made(cell), about)
        if path is not None:
            append(path, result)
        yield result


def in_turn(todo: Sequence[Cell], measure: Measure, *, go_on: Callable[[], bool] = lambda: True) -> Iterator[Measured]:
    """Yield cells one after another; those with the same condition and seed share their data and first weights."""
    together: dict[tuple[str, int], list[Cell]] = {}
    for cell in todo:
        together.setdefault((cell.condition, cell.seed), []).append(cell)
    problems = Problems()
    for (condition, seed), cells in together.items():
        if not go_on():
            return
        with problems.put_off(f"{condition}, seed {seed}"):
            for measured in measure(cells):
                yield measured
                if not go_on():
                    return
    problems.tell()


def side_by_side(
    todo: Sequence[Cell],
    measure: Measure,
    *,
    jobs: int,
    go_on: Callable[[], bool] = lambda: True,
    progress: Progress | None = None,
) -> Iterator[Measured]:
    """Yield cells as they finish, each measured in a process of its own.

    Accuracies are the same as one after another; times are not, since the processes share the machine.
    """
    waiting, done, problems = list(todo), 0, Problems()
    running: dict[Future[list[Measured]], Cell] = {}
    threads = max(1, (os.cpu_count() or 1) // jobs)  # all together use every core once
    # `spawn`, since a forked process inherits torch's threads in a state that no one can use
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_prepare, initargs=(threads,)) as pool:
        while waiting or running:
            while waiting and len(running) < jobs and go_on():
                cell = waiting.pop(0)
                running[pool.submit(_measure_one, measure, cell)] = cell
            if not running:  # time is up, and what was begun is done
                return
            if progress:
                progress(f"measuring {len(running)} at once", done, len(todo))
            # so that each is in the file as soon as it is done
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


def _measure_one(measure: Measure, cell: Cell) -> list[Measured]:
    return list(measure([cell]))


class Problems:
    """Collects errors of some cells, to be raised after all others are done."""

    def __init__(self) -> None:
        self._failed: list[str] = []
        self._lacking: list[str] = []

    @contextmanager
    def put_off(self, where: str) -> Iterator[None]:
        """Collect training errors and missing data: other conditions may still succeed."""
        try:
            yield
        except TrainingError as problem:
            self._failed.append(f"{where}: {problem}")
        except NotFoundError as problem:
            if str(problem) not in self._lacking:  # many cells lack the same data set
                self._lacking.append(str(problem))

    def tell(self) -> None:
        """Raise what was collected.

        Raises:
            TrainingError: some could not be trained.
            NotFoundError: some data is missing.
        """
        if self._failed:
            raise TrainingError(" ".join(self._failed))
        if self._lacking:
            raise NotFoundError(" ".join(self._lacking))


def matches(only: Collection[str], name: str) -> bool:
    """Return whether a name has one of some texts in it; without texts, every name does."""
    return not only or any(text in name for text in only)
