"""Real processes in milliseconds: one process imports everything, and forks a worker for each line it reads.

Run as ``python forker.py``; each line of its input is a JSON list ``[task, arguments]`` naming a function of
`reliability.tasks`, each answer the worker's process number. A worker writes what it returns, or the error it
ended with, to ``arguments["answer"]``.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    import torch

    torch.set_num_threads(1)
    from reliability import tasks
    from reliability.stage import halves

    halves()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers, so nobody leaves a zombie
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        task, arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _work(getattr(tasks, task), arguments)
        print(pid, flush=True)  # noqa: T201


def _work(task: Any, arguments: dict[str, Any]) -> None:
    answer = Path(arguments.pop("answer"))
    try:
        result = {"returned": task(**arguments)}
    except BaseException as problem:
        result = {"error": type(problem).__name__, "message": str(problem)}
    ready = answer.with_suffix(".part")
    ready.write_text(json.dumps(result), encoding="utf-8")
    ready.replace(answer)
    os._exit(0)


class Worker:
    """One forked worker, seen from the test."""

    def __init__(self, pid: int, answer: Path) -> None:
        self.pid, self._answer = pid, answer

    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def result(self, seconds: float = 60) -> dict[str, Any]:
        """What the worker answered, once it has ended."""
        self.wait(seconds)
        return json.loads(self._answer.read_text(encoding="utf-8"))

    def wait(self, seconds: float = 60) -> None:
        limit = time.monotonic() + seconds
        while self.alive():
            assert time.monotonic() < limit, f"worker {self.pid} goes on after {seconds} s"
            time.sleep(0.002)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


class Forker:
    """The forking process, seen from the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._out, self._in = self._process.stdout, self._process.stdin
        assert self._out.readline() == "ready\n"

    def start(self, task: str, **arguments: Any) -> Worker:
        self._count += 1
        answer = self._folder / f"answer-{self._count}.json"
        self._in.write(json.dumps([task, {**arguments, "answer": str(answer)}]) + "\n")
        self._in.flush()
        return Worker(int(self._out.readline()), answer)

    def close(self) -> None:
        self._in.close()
        self._out.close()
        self._process.wait()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
