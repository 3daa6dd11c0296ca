"""The engine that shares a training's lanes among processes, on one machine or many, started by torchrun."""

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
from typing import Any

from splitwiper.engines.job import Job
from splitwiper.errors import ConfigError, TrainingError, UntrainableError
from splitwiper.numerics import fingerprint, pick_device, thread_count
from splitwiper.server.training import Local, TrainedServerHalf, TrainingInputs, Warm
from splitwiper.store import files
from splitwiper.training.loop import OnEpoch, OnState, OnStep

_log = logging.getLogger("splitwiper")
_EVERY = 0.05
"""Seconds between looks at the job's events."""
_PATIENCE = 10.0
"""Seconds that processes have to end after they were told to."""


class Torchrun:
    """Shares each batch's lanes among processes that torchrun starts.

    If one of them is killed, or they cannot be started, or lack memory or room for their files, the training starts
    over with half as many, down to this process alone: the same bits, later.

    Args:
        ranks: the largest number of processes. A training uses as many of them as it has lanes, rounded down to a
            power of two.
        command: how to start the processes, for more than one machine or a cluster's scheduler: the words before
            ``-m``, with ``{ranks}`` for their number. Every machine must see the server's folder at the same path.
    """

    def __init__(self, ranks: int, command: Sequence[str] = ()) -> None:
        if isinstance(command, str) or not all(isinstance(word, str) for word in command):
            raise ConfigError(f"command = {command!r} is not a list of words.")
        self._ranks = ranks
        self._command = tuple(command) or (
            sys.executable,
            *("-m", "torch.distributed.run", "--standalone", "--max-restarts=0", "--nproc-per-node={ranks}"),
        )

    def train(
        self,
        inputs: TrainingInputs,
        *,
        folder: Path,
        warm: Warm | None = None,
        on_epoch: OnEpoch | None = None,
        on_state: OnState | None = None,
        on_step: OnStep | None = None,
    ) -> TrainedServerHalf:
        """Train the half with as many processes as can be had; see `Engine`."""
        ranks = 1 << (min(self._ranks, inputs.config.lanes).bit_length() - 1)
        if ranks > 1:
            config = inputs.config
            numerics = fingerprint(pick_device(config.device), config.threads, config.numerics)
            with _job(folder) as job:
                job.write(inputs, warm, fingerprint=numerics, states=on_state is not None)
                while ranks > 1:
                    try:
                        return self._shared(job, ranks, inputs, on_epoch=on_epoch, on_state=on_state, on_step=on_step)
                    except _Lost as problem:
                        ranks //= 2
                        _log.warning("server training: %s; starting over with %d of them.", problem, ranks)
                        job.restart()
        return Local().train(inputs, folder=folder, warm=warm, on_epoch=on_epoch, on_state=on_state, on_step=on_step)

    def _shared(
        self,
        job: Job,
        ranks: int,
        inputs: TrainingInputs,
        *,
        on_epoch: OnEpoch | None,
        on_state: OnState | None,
        on_step: OnStep | None,
    ) -> TrainedServerHalf:
        """Train with so many processes; raise `_Lost` if they ended without a result."""
        known = 0
        with _started([word.replace("{ranks}", str(ranks)) for word in self._command], job, inputs) as process:
            while True:
                ended = process.poll() is not None  # before the events: what it reported last must be among them
                for event in job.events(known):
                    known += 1
                    if result := _taken(job, event, inputs, on_epoch, on_state):
                        return result
                if ended:
                    code = process.returncode  # negative after a signal, before which nobody said why
                    why = (job.last_words() if code >= 0 else "") or f"exit code {code}"
                    raise _Lost(f"{ranks} processes ended without a result ({why})")
                if on_step:
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
def _started(command: Sequence[str], job: Job, inputs: TrainingInputs) -> Iterator[subprocess.Popen[bytes]]:
    """Start processes, and end them and all that they started when the block is left."""
    environment = {
        **os.environ,
        # the network's module may lie anywhere, and must be found at the same place: not first in the current folder
        "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path),
        "PYTHONSAFEPATH": "1",
        # torchrun would choose 1, and the numerics of this process count
        "OMP_NUM_THREADS": str(thread_count(inputs.config.threads, inputs.config.numerics)),
    }
    with (job.folder / "output").open("wb") as output:
        # a group of its own: an interrupt from the terminal reaches this process alone, which ends the others
        try:
            process = subprocess.Popen(  # noqa: S603
                [*command, "-m", "splitwiper.engines.rank", str(job.folder)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        except OSError as problem:
            raise _Lost(f"{command[0]} cannot be started ({problem})") from problem
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)


def _taken(
    job: Job,
    event: Mapping[str, Any],
    inputs: TrainingInputs,
    on_epoch: OnEpoch | None,
    on_state: OnState | None,
) -> TrainedServerHalf | None:
    """Act on what the first process reported; returns the result if it is there.

    Raises:
        SplitWiperError: training failed, as it would have in this process.
    """
    match event:
        case {"state": done}:
            state = job.take_state(f"state-{done}")
            if on_state:
                on_state(done, state)
        case {"epoch": done, "loss": loss}:
            if on_epoch:
                on_epoch(done, inputs.config.epochs, loss)
        case {"losses": losses}:
            return TrainedServerHalf(job.take_state("result"), tuple(losses))
        case {"error": kind, "message": message}:
            raise {"UntrainableError": UntrainableError, "ConfigError": ConfigError}.get(kind, TrainingError)(message)
    return None
