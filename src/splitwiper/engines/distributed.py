"""The engine that shares a training's lanes among processes, on one machine or, started by torchrun, on many."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Unpack

from splitwiper.engines.job import HERE, Job, error_of
from splitwiper.errors import ConfigError
from splitwiper.numerics import fingerprint, pick_device, thread_count
from splitwiper.server.training import Local, TrainedServerHalf, TrainingCalls, TrainingInputs
from splitwiper.store import files

_log = logging.getLogger("splitwiper")
_EVERY = 0.05
"""Seconds between looks at the job's events."""
_PATIENCE = 10.0
"""Seconds that processes have to end after they were told to."""


class Distributed:
    """Shares each batch's lanes among processes, which exchange tensors by `torch.distributed`.

    Without a command they are started on this machine, and reach each other over loopback only.

    If one of them is killed, or they cannot be started, or lack memory or room for their files, the training starts
    over with half as many, down to this process alone: the same bits, later.

    Args:
        ranks: the largest number of processes. A training uses as many of them as it has lanes, rounded down to a
            power of two.
        command: how to start the processes on more than one machine: torchrun, or a cluster's scheduler with it; the
            words before ``-m``, with ``{ranks}`` for their number. Every machine must see the server's folder at the
            same path. torchrun opens ports on all addresses, by which others can run code.
    """

    def __init__(self, ranks: int, command: Sequence[str] = ()) -> None:
        if isinstance(command, str) or not all(isinstance(word, str) for word in command):
            raise ConfigError(f"command = {command!r} is not a list of words.")
        self._ranks, self._command = ranks, tuple(command)

    def train(self, inputs: TrainingInputs, folder: Path, **calls: Unpack[TrainingCalls]) -> TrainedServerHalf:
        """Train the half with as many processes as can be had; see `Engine`."""
        ranks = 1 << (min(self._ranks, inputs.config.lanes).bit_length() - 1)
        if ranks > 1:
            config = inputs.config
            numerics = fingerprint(pick_device(config.device), config.threads, config.numerics)
            with _job(folder) as job:
                job.write(inputs, calls.get("warm"), fingerprint=numerics, states=calls.get("on_state") is not None)
                while ranks > 1:
                    try:
                        return self._shared(job, ranks, inputs, calls)
                    except _Lost as problem:
                        ranks //= 2
                        _log.warning("server training: %s; starting over with %d of them.", problem, ranks)
                        job.restart()
        return Local().train(inputs, folder, **calls)

    def _shared(self, job: Job, ranks: int, inputs: TrainingInputs, calls: TrainingCalls) -> TrainedServerHalf:
        """Train with so many processes; raise `_Lost` if they ended without a result."""
        known = 0
        command = [word.replace("{ranks}", str(ranks)) for word in self._command]
        with _started(command, ranks, job, inputs) as processes:
            while True:
                # before the events: what was reported last must be among them
                codes = [process.poll() for process in processes]
                failed = next(filter(None, codes), 0)
                for event in job.events(known):
                    known += 1
                    if result := _taken(job, event, inputs, calls):
                        return result
                if failed or None not in codes:
                    # a code is negative after a signal, before which nobody said why
                    why = (job.last_words() if failed >= 0 else "") or f"exit code {failed}"
                    raise _Lost(f"{ranks} processes ended without a result ({why})")
                if on_step := calls.get("on_step"):
                    on_step()
                time.sleep(_EVERY)


class _Lost(Exception):
    """The processes ended without a result."""


@contextmanager
def _job(folder: Path) -> Iterator[Job]:
    """Make a job in a folder; it is locked while this process lives, and erased at the end."""
    path = folder / files.owned_name("job")
    files.make_folder(path)
    path.chmod(0o700)
    job = Job(path)
    try:
        with files.locked(path):
            yield job
    finally:
        files.erase_folder(path)


@contextmanager
def _started(
    command: Sequence[str], ranks: int, job: Job, inputs: TrainingInputs
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start a command or, without one, each process; end them and all that they started when the block is left."""
    environment = {
        **os.environ,
        # the network's module may lie anywhere, and must be found at the same place: not first in the current folder
        "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path),
        "PYTHONSAFEPATH": "1",
        # torchrun would choose one thread, and the numerics of this process count
        "OMP_NUM_THREADS": str(thread_count(inputs.config.threads, inputs.config.numerics)),
    }
    each = [{}] if command else [_here(rank, ranks) for rank in range(ranks)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with (job.folder / "output").open("wb") as output:
            for own in each:
                # a group of its own: an interrupt from the terminal reaches this process alone, which ends the others
                process = subprocess.Popen(  # noqa: S603
                    [*(command or [sys.executable]), "-m", "splitwiper.engines.rank", str(job.folder)],
                    env=environment | own,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    process_group=0,
                )
                processes.append(process)
    except OSError as problem:
        _end(processes)
        raise _Lost(f"{(command or [sys.executable])[0]} cannot be started ({problem})") from problem
    try:
        yield processes
    finally:
        _end(processes)


def _here(rank: int, size: int) -> dict[str, str]:
    """Return the variables by which a process of this machine knows its number and the number of all."""
    loopback = "lo" if sys.platform.startswith("linux") else "lo0"
    numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    # tensors are exchanged over this interface alone: what arrives is unpickled
    return numbers | {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback, HERE: "1"}


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, and what they started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)


def _taken(
    job: Job, event: Mapping[str, Any], inputs: TrainingInputs, calls: TrainingCalls
) -> TrainedServerHalf | None:
    """Act on what the first process reported; returns the result if it is there.

    Raises:
        SplitWiperError: training failed, as it would have in this process.
    """
    match event:
        case {"state": done}:
            state = job.take_state(f"state-{done}")
            if on_state := calls.get("on_state"):
                on_state(done, state)
        case {"epoch": done, "loss": loss}:
            if on_epoch := calls.get("on_epoch"):
                on_epoch(done, inputs.config.epochs, loss)
        case {"losses": losses}:
            return TrainedServerHalf(job.take_state("result"), tuple(losses))
        case {"error": kind, "message": message}:
            raise error_of(kind, message)
    return None
