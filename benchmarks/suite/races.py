"""Races: several processes learn, forget, settle, predict and verify on one run together, and nothing goes wrong.

Each trial starts four processes on one run folder at the same instant. Two ask for rows or classes to be forgotten and
settle, one learns, and one predicts, verifies and looks at the status until the others are done. Being told that
another process is working, and trying again, is fine. Wrong are any other error, a verdict of `verify` that accuses the
run, and a run that in the end is not bit for bit the twin that never had the forgotten rows.
"""

from __future__ import annotations

import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Check, Result
from benchmarks.suite.histories import Held, Row, _data, _new, _settings
from benchmarks.suite.tampering import FEATURES, bits, halves
from splitwiper import Federation
from splitwiper.errors import BusyError, NotFoundError
from splitwiper.federation import status

Call = Callable[[Federation], Any]
PATIENCE = 120.0
"""Seconds for which a call is repeated while others are working, and for which a process is waited for."""


def run(*, quick: bool) -> Iterator[Result]:
    """Run trials, each with a seed of its own."""
    count = 2 if quick else 150
    torch.set_num_threads(1)  # processes are forked from this one, and threads do not survive that
    memory = Path("/dev/shm")  # noqa: S108
    found, odd = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=memory if memory.is_dir() else None) as folder:
        for seed in range(count):
            told = _raced(Path(folder) / str(seed), random.Random(seed))  # noqa: S311
            found.update(told)
            odd += [f"seed {seed}: {what}" for what in told if what.startswith("WRONG")]
    calls = sum(number for what, number in found.items() if what.startswith("call "))
    yield Result(
        {"trials": count, "processes": 4 * count},
        {"counts": dict(found), "wrong": odd},
        [
            Check("trials with an error, an accusation or other bits than the twin's", "0", str(len(odd)), not odd),
            Check(
                "calls made at once, and how often one had to wait",
                "reported",
                f"{calls} calls, {found['had to wait']} waits",
                True,
            ),
        ],
    )


def _raced(root: Path, draw: random.Random) -> Counter[str]:
    """Run one trial and compare what is left with its twin; what happened, counted."""
    path = root / "run"
    fed = Federation(path, halves(), _settings(draw))
    held: Held = {name: _new(draw, name, draw.randint(8, 14)) for name in ("north", "south", "west")}
    ids = {name: added.ids for name, added in fed.learn({n: _data({}, rows) for n, rows in held.items()}).added.items()}
    del fed

    chosen = draw.sample(range(len(ids["north"])), draw.randint(1, 3))
    label = draw.choice(sorted(set(held["west"].values())))
    later = [_new(draw, "south", draw.randint(1, 4)) for _ in range(draw.randint(1, 3))]
    plans: list[list[tuple[str, Call]]] = [
        [(f"learn {kind}", partial(_learn, rows=rows)) for kind, rows in zip(("1", "2", "3"), later, strict=False)],
        [
            call
            for n in chosen
            for call in (("samples", partial(_ask, who="north", samples=[ids["north"][n]])), _SETTLE)
        ],
        [("classes", partial(_ask, who="west", classes=[label])), _SETTLE],
    ]
    if draw.random() < 0.3:
        plans[2] += [("everything", partial(_ask, who="west", everything=True)), _SETTLE]
        held["west"].clear()
    order = list(held["north"])
    for n in chosen:
        del held["north"][order[n]]
    held["west"] = {row: said for row, said in held["west"].items() if said != label}
    for rows in later:
        held["south"] |= rows
    told = _at_once(path, plans)
    return told + _compared(path, held, root / "twin")


def _learn(fed: Federation, rows: dict[Row, str]) -> None:
    fed.learn({"south": _data({}, rows)})


def _ask(fed: Federation, who: str, **what: Any) -> None:
    fed.submit(who, **what)


_SETTLE: tuple[str, Call] = ("settle", Federation.settle)


def _at_once(path: Path, plans: list[list[tuple[str, Call]]]) -> Counter[str]:
    """Carry out the plans, each in a process of its own, while another process watches until they are done."""
    context = multiprocessing.get_context("fork")
    start, done = context.Barrier(len(plans) + 1), context.Event()
    told, workers = Counter[str](), []
    for work in [*(partial(_work, path, plan) for plan in plans), partial(_look_on, path, done)]:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(start, work, theirs))
        process.start()
        theirs.close()
        workers.append((process, ours))
    for number, (process, answers) in enumerate(workers):
        if number == len(plans):
            done.set()
        told.update(answers.recv() if answers.poll(PATIENCE) else {"WRONG: a process did not end": 1})
        process.kill()
        process.join()
    return told


def _child(start: Barrier, work: Callable[[], Counter[str]], answer: Connection) -> None:
    start.wait(PATIENCE)
    try:
        told = work()
    except Exception as problem:  # whatever it is, it is what a trial looks for
        told = Counter({f"WRONG: {type(problem).__name__}: {str(problem)[:200]}": 1})
    answer.send(told)


def _work(path: Path, plan: list[tuple[str, Call]]) -> Counter[str]:
    told, fed = Counter[str](), Federation(path, halves())
    for name, call in plan:
        told["had to wait"] += _patiently(partial(call, fed))
        told[f"call {name.split()[0]}"] += 1
    return told


def _patiently(call: Callable[[], Any]) -> int:
    """Call until nobody is in the way; how often somebody was."""
    end, waits = time.monotonic() + PATIENCE, 0
    while time.monotonic() < end:
        try:
            call()
        except BusyError:
            waits += 1
            time.sleep(0.005)
        else:
            return waits
    raise TimeoutError("somebody was in the way all the time")


def _look_on(path: Path, done: Event) -> Counter[str]:
    told, x = Counter[str](), np.zeros((2, FEATURES), np.float32)
    while not done.is_set() or not told:
        fed = Federation(path, halves())
        calls: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("predict", partial(fed.predict, "south", x)),
            ("verify", fed.verify),
        )
        for name, call in calls:
            try:
                answer = call()
            except BusyError:
                told["had to wait"] += 1
                continue
            except NotFoundError:  # between two states a half or a model to predict with may be missing
                told[f"{name} told to wait for learning or settling"] += 1
                continue
            told[f"call {name}"] += 1
            if name == "verify":
                told[f"verify says {answer.outcome}"] += 1
                told[f"WRONG: accused: {answer.reason}"] += answer.outcome == "mismatch"
        status(path)
        told["call status"] += 1
    return +told


def _compared(path: Path, held: Held, twin: Path) -> Counter[str]:
    told, fed = Counter(trials=1), Federation(path, halves())
    fed.settle()
    whole = fed.verify()
    told[f"WRONG: in the end {whole.outcome}: {whole.reason}"] += not whole.exact
    for receipt in fed.receipts():
        last = fed.verify(receipt)
        told[f"a receipt is {last.outcome}"] += 1
        told[f"WRONG: a receipt is accused: {last.reason}"] += last.outcome == "mismatch"
    other = fed.twin(twin)
    other.learn({name: _data({}, rows) for name, rows in held.items() if rows})
    told["WRONG: other bits than the twin's"] += bits(path) != bits(twin)
    return +told
