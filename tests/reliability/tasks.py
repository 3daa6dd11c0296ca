"""What other processes do to a run, each task in a process of its own: ``python -m reliability.tasks TASK ARGUMENTS``.

It prints what the task returned, or the error that it ended with.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import warm
from reliability.stage import config, halves, reopen, rows
from splitwiper import Federation
from splitwiper.errors import BusyError, RequestError
from splitwiper.store import ServerStore, files

TESTS = Path(__file__).parents[1]


def start(task: str, **arguments: Any) -> warm.Process:
    """Start a task."""
    return warm.start(
        ["-m", "reliability.tasks", task, json.dumps(arguments)],
        cwd=TESTS,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
    )


def result(process: warm.Process, seconds: float = 60) -> dict[str, Any]:
    """What a task returned, as ``returned``, or its ``error`` and ``message``; once it has ended."""
    printed, _ = process.communicate(seconds)
    return json.loads(printed or "")


def learn_parts(run: str, client: str, parts: list[int]) -> dict[str, int]:
    """Learn rows part by part, each until nobody is in the way."""
    busy = 0
    for part in parts:
        busy += _patiently(lambda part=part: reopen(Path(run)).learn({client: rows(client, "abc", part=part)}))
    return {"busy": busy, "learned": len(parts)}


def forget_and_settle(run: str, client: str, samples: list[int]) -> dict[str, int]:
    """Forget rows one by one."""
    busy = 0
    for sample in samples:
        fed = reopen(Path(run))
        ticket = fed.submit(client, samples=[sample])
        busy += _patiently(fed.settle)
        busy += _patiently(lambda ticket=ticket: _settled(Path(run), ticket.id))
    return {"busy": busy, "forgot": len(samples)}


def _settled(run: Path, ticket: str) -> None:
    """Settle until a ticket is: another process may have taken it along."""
    fed = reopen(run)
    while not any(r.ticket == ticket for r in fed.receipts()):
        fed.settle()


def _patiently(call: Any) -> int:
    """Call until nobody is in the way; how often somebody was."""
    for turn in range(2000):
        try:
            call()
        except BusyError as problem:
            assert "run this again" in str(problem) or "try again" in str(problem) or "took over" in str(problem)
            time.sleep(0.005)
        else:
            return turn
    raise AssertionError("somebody was in the way for ever")


def make_other(run: str) -> None:
    """Make a run with a model of other first weights, unless there is one."""
    both = halves()
    for half in (both.client, both.server):
        for parameter in half.parameters():
            parameter.data.mul_(2)
    Federation(Path(run), both, config(slices=2)).learn({"west": rows("west", "abc")})


def hold(run: str, sign: str) -> None:
    """Hold the server's lease, give a sign, and go on with a change once the sign is gone."""
    store = ServerStore(Path(run) / "server")
    with store.database.lease("holding"):
        Path(sign).touch()
        while Path(sign).exists():
            time.sleep(0.002)
        with store.database.change() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('mark', 'of the one that was fenced')")


def follow(run: str, plan: str, acks: str, at: int, phase: str) -> None:
    """Carry out a plan from a line on, noting each acknowledged operation, and in `phase` what is being done."""
    operations = json.loads(Path(plan).read_text(encoding="utf-8"))
    log = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    now = os.open(phase, os.O_WRONLY | os.O_CREAT)
    current = ""

    def watcher(kind: str, _path: Path) -> None:
        os.pwrite(now, f"{current} {kind}".ljust(64).encode(), 0)

    with files.watch(watcher):
        for number, operation in enumerate(operations[at:], start=at):
            current = operation["do"]
            os.pwrite(now, f"{current} computing".ljust(64).encode(), 0)
            answer = carry_out(Path(run), operation, again=number == at)
            os.write(log, (json.dumps([number, answer]) + "\n").encode())


def carry_out(run: Path, operation: dict[str, Any], *, again: bool) -> Any:
    """One operation. Asking `again` what a killed process may have asked already is answered by RequestError."""
    fed = reopen(run)
    if operation["do"] == "settle":
        return len(fed.settle())
    client = operation["client"]
    if operation["do"] == "learn":
        added = fed.learn({client: rows(client, operation["labels"], part=operation["part"])}).added[client]
        return [added.new, added.held, added.refused]
    try:
        return fed.submit(client, **operation["what"]).id
    except RequestError:
        if not again:
            raise
        return "recorded"


def main(task: str, arguments: str) -> None:
    try:
        answer = {"returned": globals()[task](**json.loads(arguments))}
    except Exception as problem:
        answer = {"error": type(problem).__name__, "message": str(problem)}
    print(json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
