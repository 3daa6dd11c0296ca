"""One of the processes that share a training: ``python -m splitwiper.engines.rank JOB``."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from splitwiper import numerics
from splitwiper.engines.job import HERE, Job, error_of
from splitwiper.errors import ConfigError, ResourceError, TrainingError
from splitwiper.seeding import state_digest
from splitwiper.server.training import train
from splitwiper.splitting import identity
from splitwiper.training.lanes import TreeSum
from splitwiper.training.stepping import State

_TEXT = 4096
"""Bytes of a text that processes exchange."""
_EVERY = 1.0
"""Seconds between looks at whether whoever wants the result is still there."""
_PR_SET_PDEATHSIG = 1


class Ranks:
    """A team over torch.distributed."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.size, self._device = dist.get_rank(), dist.get_world_size(), device

    def add(self, vector: Tensor) -> Tensor:
        """Return the sum of all ranks' vectors, added in pairs, in the order of ranks.

        Not `all_reduce`, whose order of additions depends on the number of ranks. Each rank adds one part of all
        vectors, and all ranks gather the parts: as many bytes as in a ring.
        """
        part = -(-len(vector) // self.size)
        mine = vector.new_zeros(part * self.size)
        mine[: len(vector)] = vector
        theirs = torch.empty_like(mine)  # row by row: each rank's numbers for this rank's part
        dist.all_to_all_single(theirs, mine)
        tree = TreeSum()
        for row in theirs.view(self.size, part):
            tree.add(row)
        dist.all_gather_into_tensor(mine, tree.total.contiguous())
        return mine[: len(vector)]

    def worst(self, problem: Exception | None) -> Exception | None:
        """Return the error of the first rank that has one, on all ranks."""
        reported = filter(None, self.all_of(f"{type(problem).__name__} {problem}" if problem else ""))
        for text in reported:
            return error_of(*text.split(" ", 1))
        return None

    def all_of(self, text: str) -> list[str]:
        """Return every rank's text, as far as it fits."""
        # as numbers: torch would pickle any other object, and what is unpickled can run code
        raw = text.encode(errors="replace")[:_TEXT]
        mine = torch.zeros(_TEXT, dtype=torch.uint8, device=self._device)
        mine[: len(raw)] = torch.tensor(list(raw), dtype=torch.uint8, device=self._device)
        theirs = torch.empty(self.size * _TEXT, dtype=torch.uint8, device=self._device)
        dist.all_gather_into_tensor(theirs, mine)
        rows = theirs.cpu().view(self.size, _TEXT)
        return [bytes(row.tolist()).rstrip(b"\0").decode(errors="ignore") for row in rows]


def main(folder: str) -> None:
    """Take part in the training of a job; the first process reports."""
    _end_with_parent()
    job = Job(Path(folder))  # erased by now if whoever wanted the result has gone
    given = job.read()
    inputs = given.inputs
    on_gpu = inputs.config.device.startswith("cuda")
    if on_gpu:  # each process sees one GPU, as in a training without the others
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        local = int(os.environ["LOCAL_RANK"])
        os.environ["CUDA_VISIBLE_DEVICES"] = seen[local] if local < len(seen) and seen[local] else str(local)
    numerics.prepare(inputs.config.numerics)
    # before the others are met: if a process has no such device, it ends, and so do the others
    device = numerics.pick_device(inputs.config.device)
    found = numerics.fingerprint(device, inputs.config.threads, inputs.config.numerics)
    found["network"] = identity(inputs.template)
    _meet(job, "nccl" if on_gpu else "gloo")
    team, asked = Ranks(device), time.monotonic()
    first = team.rank == 0

    def on_state(done: int, state: State) -> None:
        if len(set(team.all_of(state_digest(state)))) > 1:
            raise TrainingError(f"server training: its processes differ after epoch {done}, though they must not.")
        if first and given.states:
            job.put_state(f"state-{done}", state)
            job.report(state=done)

    def on_epoch(done: int, total: int, loss: float) -> None:
        if first:
            job.report(epoch=done, loss=loss)

    def on_step() -> None:
        nonlocal asked
        if first and time.monotonic() - asked > _EVERY:
            asked = time.monotonic()
            if not job.is_wanted():
                sys.exit("nobody waits for the result any more")

    try:
        _check(team, given.fingerprint, found)
        with numerics.isolated_call():
            trained = train(inputs, warm=given.warm, on_epoch=on_epoch, on_state=on_state, on_step=on_step, team=team)
    except (ConfigError, TrainingError) as problem:
        if isinstance(problem, ResourceError):
            raise  # half as many may find enough
        if first:
            job.report(error=type(problem).__name__, message=str(problem))
        return
    if first:
        job.put_state("result", trained.state)
        job.report(losses=trained.losses)
    dist.destroy_process_group()


def _meet(job: Job, backend: str) -> None:
    """Join the other processes: through a file of the job if all are on this machine, else where torchrun says."""
    if HERE in os.environ:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        meeting = f"file://{job.folder / f'meeting-{size}'}"
        dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=size)
    else:
        dist.init_process_group(backend)


def _end_with_parent() -> None:
    """Have this process killed when the one that started it ends: it would wait for the others for half an hour."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _check(team: Ranks, expected: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse a process that would compute other bits than the one that wants the result."""
    problem = None
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            problem = ConfigError(
                f"process {team.rank} computes with {name} = {found.get(name)!r} instead of {expected.get(name)!r}: "
                "all processes that share a training need the same."
            )
            break
    if worst := team.worst(problem):
        raise worst


if __name__ == "__main__":
    main(sys.argv[1])
