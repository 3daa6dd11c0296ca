"""Processes of the scene: the ordinary command line, and before it, for a server, the lies that it tells.

``python -m benchmarks.dishonest.process LIE… -- ARGUMENTS…`` runs ``splitwiper ARGUMENTS…`` with the behaviour of the
server changed by the named lies. The product has no hooks for that: only this module changes others from outside.

Without arguments it reads orders, one JSON line each, and forks a process for each: importing torch takes seconds, and
a scene has hundreds of commands.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def main(lies: Sequence[str], arguments: Sequence[str]) -> None:
    """Run the command line, for a server with its lies; leaves by `SystemExit`."""
    from splitwiper.cli.app import main as run

    if arguments[0] == "serve":
        from benchmarks.dishonest import lies_answering, lies_training

        known = {**lies_answering.LIES, **lies_training.LIES}
        for lie in lies:
            known[lie]()
        _fork_worker(config=arguments[1], store=arguments[arguments.index("--store") + 1])
    sys.argv = ["splitwiper", *arguments]
    run()


def _fork_worker(*, config: str, store: str) -> None:
    """Fork the worker now, while there is one thread; it begins when the service would have started it."""
    from splitwiper.service import running

    begin, told = os.pipe()
    service = os.getpid()
    worker = os.fork()
    if worker == 0:
        os.close(told)
        if os.read(begin, 1):
            from splitwiper.service.__main__ import main as work

            sys.argv = ["worker", config, store, str(service)]
            work()
        os._exit(0)
    os.close(begin)

    @contextmanager
    def beside(_root: Path, _config: Path) -> Iterator[None]:
        os.write(told, b"1")
        try:
            yield
        finally:
            os.kill(worker, signal.SIGTERM)
            os.waitpid(worker, 0)

    running._worker = beside


# --- forking on order --------------------------------------------------------------------------------------


def obey() -> None:
    """Fork a process for each order; a command's exit code is answered, and of a server its process number."""
    _warm_up()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        order = json.loads(line)
        if "stop" in order:
            os.kill(order["stop"], signal.SIGTERM)
            answer = _ended(order["stop"])
        else:
            pid = os.fork()
            if pid == 0:
                _obeyed(order)
            answer = pid if order["arguments"][0] == "serve" else _ended(pid)
        answers.write(f"{answer}\n")
        answers.flush()


def _warm_up() -> None:
    """Import, and do once, what takes long the first time."""
    import httpcore  # noqa: F401
    import torch
    import torch._dynamo

    torch.set_num_threads(1)  # before any operation: a pool of threads does not survive a fork
    from benchmarks.dishonest import lies_answering, lies_training  # noqa: F401
    from splitwiper import split
    from splitwiper.cli import app  # noqa: F401
    from splitwiper.data import files  # noqa: F401
    from splitwiper.models import mlp
    from splitwiper.service import audit, running, site, worker  # noqa: F401
    from splitwiper.service.identity import authority  # noqa: F401

    split(mlp(4, 2), at="stem", example=torch.zeros(1, 4))
    torch.optim.SGD(mlp(4, 2).parameters(), lr=0.1)


def _ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _obeyed(order: dict[str, Any]) -> None:
    """Run an order in this process, with files for what it prints."""
    code = 1
    try:
        os.chdir(order["folder"])
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
        os.dup2(nothing, 0)
        main(order["lies"], order["arguments"])
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        obey()
    else:
        where = sys.argv.index("--")
        main(sys.argv[1:where], sys.argv[where + 1 :])
