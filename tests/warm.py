"""Commands in milliseconds: one process imports everything once, and forks a real process for each command.

Python and torch take seconds to start, and tests start them hundreds of times. `start` does for ``splitwiper ...``,
``python -m ...``, ``python -c ...`` and ``python program.py ...`` what `subprocess.Popen` does; `program_folder` has
programs that do it for shells.
The process that forks has trained once, so that torch has made itself ready. Where a test needs torch before it has
computed anything (it reads some switches then), ``fresh`` asks for a fork of a second process, which only imports.
What a forked process cannot show (what libraries read when they are loaded, the installed program itself, how the
service starts its worker) is tested with processes that are started cold.

Run as ``python warm.py SOCKET [fresh]``, it listens until its input ends. A call is one JSON object together with the
three standard descriptors; the answers are two lines, the number of the process and the status that it ended with.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_MOST = 1 << 20
_PROGRAM = """#!{python} -SE
import os, sys
sys.path.insert(0, {tests!r})
from warm import ask, follow
connection = ask({address!r}, [*{first!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ), (0, 1, 2))
sys.exit(follow(connection))
"""


def start(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[Any] = subprocess.DEVNULL,
    stderr: int | IO[Any] = subprocess.DEVNULL,
    fresh: bool = False,
) -> Process:
    """Start ``splitwiper ...``, ``-m module ...``, ``-c code ...`` or ``program.py ...``."""
    words, environment = [str(word) for word in command], dict(os.environ if env is None else env)
    return Process(words, cwd, environment, stdout, stderr, fresh)


def run(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        code = start(command, cwd=cwd, env=env, stdout=out, stderr=err, fresh=fresh).wait()
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


def program_folder(*, fresh: bool = False) -> Path:
    """A folder with a program ``splitwiper``, for the path of shells; a fresh one has ``python``, too."""
    address = _address(fresh)
    programs = {"splitwiper": ["splitwiper"], "python": []} if fresh else {"splitwiper": ["splitwiper"]}
    for name, first in programs.items():
        path = address.parent / name
        if not path.exists():
            text = _PROGRAM.format(
                python=sys.executable, tests=str(Path(__file__).parent), address=str(address), first=first
            )
            path.write_text(text, encoding="utf-8")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return address.parent


class Process:
    """A process as `subprocess.Popen` shows it."""

    def __init__(
        self,
        words: list[str],
        cwd: Path,
        env: dict[str, str],
        out: int | IO[Any],
        err: int | IO[Any],
        fresh: bool,
    ) -> None:
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        with contextlib.ExitStack() as ours:
            nothing = ours.enter_context(Path(os.devnull).open("r+b"))
            given = [nothing.fileno()]
            for name, wanted in (("stdout", out), ("stderr", err)):
                if wanted == subprocess.PIPE:
                    read, write = os.pipe()
                    ours.callback(os.close, write)
                    setattr(self, name, os.fdopen(read, encoding="utf-8"))
                    given.append(write)
                else:
                    given.append(nothing.fileno() if isinstance(wanted, int) else wanted.fileno())
            connection = ask(str(_address(fresh)), words, str(cwd), env, given)
        self._answers = connection.makefile("r")
        connection.close()
        self.pid = int(self._answers.readline())

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """The status, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The status, once it has ended; negative where a signal ended it."""
        if self.returncode is None:
            import select

            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("splitwiper", timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str | None, str | None]:
        """Everything that it prints until it ends, which must not be much; where it prints into pipes."""
        self.wait(timeout)
        out = []
        for pipe in (self.stdout, self.stderr):
            out.append(pipe.read() if pipe else None)
            if pipe:
                pipe.close()
        return out[0], out[1]


def ask(address: str, words: list[str], cwd: str, env: dict[str, str], given: Sequence[int]) -> socket.socket:
    """Ask for a process; the connection that says what becomes of it."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)
    said = json.dumps({"words": words, "cwd": cwd, "env": env}).encode()
    socket.send_fds(connection, [len(said).to_bytes(4, "big")], list(given))
    connection.sendall(said)
    return connection


def follow(connection: socket.socket) -> int:
    """Pass signals on to a process until it ends; its status, as shells have it."""
    with connection.makefile("r") as answers:
        pid = int(answers.readline())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code = int(answers.readline())
        return code if code >= 0 else 128 - code


@functools.cache
def _address(fresh: bool) -> Path:
    """Where one of the forking processes of this test process listens; it ends with this process."""
    import atexit

    folder = tempfile.TemporaryDirectory(prefix="warm-")
    address = Path(folder.name) / "socket"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(address), *(["fresh"] if fresh else [])]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)

    def end() -> None:
        process.stdin.close()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    limit = time.monotonic() + 200  # it takes three seconds where nothing else runs
    while not address.exists():
        assert process.poll() is None and time.monotonic() < limit, "the forking process did not start"
        time.sleep(0.01)
    return address


def _listen(address: str, *fresh: str) -> list[str]:
    """Fork for every call, and report its process and its end; return in each process that is to run a command."""
    import gc
    import weakref

    import torch

    import steps  # noqa: F401

    if fresh:
        import torch._dynamo  # torch does when it first trains; importing computes nothing
    else:
        torch.set_num_threads(1)  # before any operation: a pool of threads does not survive a fork
        _compute()
    sys.path.remove(str(Path(__file__).parent))
    _import()
    for (
        finalizer
    ) in weakref.finalize._registry:  # torch's: at the end of each command they would take its libraries apart
        finalizer.atexit = False
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(f"{address}.part")
    listening.listen(64)
    Path(f"{address}.part").rename(address)
    # What becomes readable: this process's input at its end, a new call, and the descriptor of a process at its end.
    # This process waits for all of them itself: one more fork for each call would take as long as a short command.
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin, selectors.EVENT_READ)
    waiting.register(listening, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is sys.stdin:
                os._exit(0)
            elif key.fileobj is listening:
                connection, _ = listening.accept()
                call, given = _receive(connection)
                pid = os.fork()
                if pid == 0:
                    for open_now in waiting.get_map().values():
                        if open_now.fileobj is not sys.stdin:  # it is replaced
                            _close(open_now)
                    waiting.close()
                    connection.close()
                    return _become(call, given)
                for descriptor in given:
                    os.close(descriptor)
                _report(connection, pid)
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (connection, pid))
            else:
                connection, pid = key.data
                waiting.unregister(key.fileobj)
                _report(connection, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                _close(key)


def _close(key: selectors.SelectorKey) -> None:
    """Close the socket that is listened on, or a process's descriptor and its connection."""
    if key.data is None:
        key.fileobj.close()
    else:
        os.close(key.fileobj)
        key.data[0].close()


def _report(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # who asked has ended
        connection.sendall(f"{number}\n".encode())


def _import() -> None:
    """Import and make what commands do when they are called: it takes them longer than what they then do."""
    import typer.main

    import splitwiper.report
    import splitwiper.service.audit
    import splitwiper.service.running
    import splitwiper.service.site  # noqa: F401
    from splitwiper.cli import app

    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)


def _compute() -> None:
    """Learn and forget once: torch imports a thousand modules when it first does."""
    from federation.runs import halves, settings, three
    from reliability import stage
    from splitwiper import Federation

    stage.halves()

    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(Path(folder) / "run", halves(), settings())
        federation.learn(three())
        federation.unlearn("north", classes=["bird"])


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Read one call: what to run, and the standard descriptors for it."""
    size, given, _, _ = socket.recv_fds(connection, 4, 3)
    said, wanted = b"", int.from_bytes(size, "big")
    while len(said) < wanted:
        said += connection.recv(min(_MOST, wanted - len(said)))
    return json.loads(said), given


def _become(said: Mapping[str, Any], given: Sequence[int]) -> list[str]:
    """Take on the folder, environment and standard streams of a call."""
    import warnings

    for number, descriptor in enumerate(given):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", buffering=1 if number == 2 else -1)
        for number, mode in enumerate(("r", "w", "w"))
    )
    os.chdir(said["cwd"])
    os.environ.clear()
    os.environ.update(said["env"])
    tempfile.tempdir = None
    if said["env"].get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    return list(said["words"])


def _run(words: list[str]) -> int:
    """Run a command; the status that it ends with."""
    import runpy
    import traceback

    from steps import watch

    sys.argv = words
    if words[0] == "splitwiper":
        watch("server" if words[1:2] == ["serve"] else "site")
    try:
        if words[0] == "-m":
            sys.path.insert(0, str(Path.cwd()))
            sys.argv = words[1:]
            sys.modules.pop(words[1], None)  # or it would warn of a module that is imported already
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        elif words[0].endswith(".py"):
            sys.path.insert(0, str(Path(words[0]).resolve().parent))
            runpy.run_path(words[0], run_name="__main__")
        else:
            from splitwiper.cli import main

            if words[1:2] == ["serve"]:
                _fork_workers()
            main()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
            return 1
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


WORKER = "warm-worker"
"""The name of a service's forked worker in /proc."""


class _Worker:
    """A worker that the service started, as `subprocess.Popen` shows it."""

    def __init__(self, pid: int) -> None:
        self.pid, self._code = pid, None

    def wait(self, timeout: float | None = None) -> int:
        limit = time.monotonic() + (1e9 if timeout is None else timeout)
        while self._code is None:
            with contextlib.suppress(ChildProcessError):  # another thread has waited
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
                    break
            if time.monotonic() > limit:
                raise subprocess.TimeoutExpired("worker", timeout or 0)
            time.sleep(0.02)
        return self._code

    def send_signal(self, number: int) -> None:
        if self._code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _fork_workers(count: int = 3) -> None:
    """Fork children that can become the service's workers; once they are used up, workers are started cold.

    The service has threads when it starts a worker, so it cannot fork then.
    """
    from types import SimpleNamespace

    from splitwiper.service import running

    spare: list[tuple[int, int]] = []
    for _ in range(count):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            _wait_for_work(read)
        os.close(read)
        spare.append((pid, write))

    def popen(command: list[str]) -> _Worker | subprocess.Popen[bytes]:
        if not spare:
            return subprocess.Popen(command)
        pid, write = spare.pop()
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(command) + "\n")
        return _Worker(pid)

    running.subprocess = SimpleNamespace(Popen=popen, TimeoutExpired=subprocess.TimeoutExpired)


def _wait_for_work(read: int) -> None:
    """Become a worker when the service says so; end when it is gone."""
    import select

    from steps import watch

    parent = os.getppid()
    while not select.select([read], [], [], 0.2)[0]:
        if os.getppid() != parent:
            os._exit(0)
    with os.fdopen(read) as pipe:
        _, *words = json.loads(pipe.readline())  # not to its end: other children hold it, too
    Path("/proc/self/comm").write_text(WORKER, encoding="ascii")
    watch("worker")
    _end(_run(words))


def _end(code: int) -> None:
    """End as the interpreter does, yet without taking torch apart, which takes half a second."""
    import atexit
    import threading

    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(_run(_listen(*sys.argv[1:])))  # `_listen` returns in forked processes alone
