"""SplitWiper itself, measured with the same meters: a real federation in a folder."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from splitwiper.client.content import MAC_COLUMN, row_id
from splitwiper.client.embed import BATCH
from splitwiper.client.local_net import Embedder, Normaliser
from splitwiper.config import Config
from splitwiper.federation import Federation
from splitwiper.numerics import pick_device, reproducible
from splitwiper.progress import Progress
from splitwiper.training.cache import CODE
from splitwiper.training.feeding import feed_for
from splitwiper.wire import Receipt, Spent
from splitwiper_lab.baselines import Cost, Forgetting, Problem
from splitwiper_lab.baselines.channel import size
from splitwiper_lab.baselines.meters import Meter
from splitwiper_lab.baselines.problem import Holding
from splitwiper_lab.baselines.starting import Start
from splitwiper_lab.evaluation.comparison.settings import System
from splitwiper_lab.workloads import Workload


@dataclass(frozen=True, eq=False)
class Ours:
    """A federation, and the costs of its last operation."""

    federation: Federation
    spent: Mapping[str, Cost]
    server: Cost
    receipt: Receipt | None = None


def config_of(work: Workload, system: System) -> Config:
    """Return the workload's settings, with the masking and noise of SplitWiper+."""
    client = dataclasses.replace(work.config.client, masking=system.masking, noise=system.noise)
    return dataclasses.replace(work.config, client=client)


def learn(
    work: Workload,
    system: System,
    folder: Path,
    problem: Problem,
    starts: Mapping[str, Start],
    progress: Progress | None,
) -> Ours:
    """Learn from all clients, and measure it."""
    federation = Federation(folder / "run", config=config_of(work, system), progress=progress)
    learned = federation.learn(work.train, tasks=work.tasks)
    server = _server(federation, problem, learned.server_seconds)
    return Ours(federation, _costs(learned.spent, problem, starts), server)


def unlearn(
    ours: Ours, problem: Problem, forgetting: Forgetting, starts: Mapping[str, Start], *, away: str = ""
) -> Ours:
    """Forget, while the folder of the client ``away`` is moved out of reach, and measure it."""
    federation, client = ours.federation, forgetting.client
    with _away(federation.path, away):
        if forgetting.level == "client":
            receipt = federation.unlearn(client, everything=True)
        elif forgetting.level == "class":
            receipt = federation.unlearn(client, classes=_classes(problem, forgetting))
        else:
            receipt = federation.unlearn(client, samples=_ids(problem, forgetting))
    left = problem.without(forgetting)
    spent = {name: federation.spent.get(name, Spent()) for name in ours.spent}
    server = _server(federation, left, receipt.server_seconds)
    return Ours(federation, _costs(spent, left, starts), server, receipt)


@contextmanager
def _away(run: Path, client: str) -> Iterator[None]:
    """Move a client's folder out of reach for the duration."""
    folder, hidden = run / "clients" / client, run.parent / "away"
    if not client:
        yield
        return
    folder.rename(hidden)  # any access to it then fails, as for a client that cannot be reached
    try:
        yield
    finally:
        hidden.rename(folder)


def _classes(problem: Problem, forgetting: Forgetting) -> list[str | int]:
    held = problem.clients[forgetting.client]
    return [held.labels[code].name for code in np.unique(held.shard.codes[forgetting.gone])]


def _ids(problem: Problem, forgetting: Forgetting) -> list[int]:
    """Return the ids of the rows: client keys come from the seed, so the problem's HMACs are the federation's."""
    macs = problem.clients[forgetting.client].shard.columns[MAC_COLUMN]
    return [row_id(mac.tobytes()) for mac in macs[forgetting.gone]]


def _costs(spent: Mapping[str, Spent], problem: Problem, starts: Mapping[str, Start]) -> dict[str, Cost]:
    """Return costs by client: computing is embedding, measured as for other systems. Pre-training counts separately.

    The rest of the receipt's seconds went into files and hashes.
    """
    costs = {}
    for name, each in spent.items():
        if not each.traffic and not each.seconds:
            costs[name] = Cost()
            continue
        computing, pretraining = Cost(), 0.0
        if name in starts:
            computing = _embedding(problem, problem.clients[name], starts[name])
            pretraining = starts[name].cost.seconds
        costs[name] = dataclasses.replace(
            computing,
            # measured separately, the parts may take longer than they did within the whole
            handling=max(0.0, each.seconds - pretraining - computing.seconds),
            bytes_up=each.bytes_up,
            bytes_down=each.bytes_down,
            round_trips=1,  # one upload
            storage=size(problem.halves.client_for(name).state_dict()),
        )
    return costs


def _embedding(problem: Problem, held: Holding, start: Start) -> Cost:
    """Measure one computation of a client's activations with its frozen half."""
    device = pick_device(problem.config.client.device)
    # a copy: measuring must not move the half to another device
    meter, stem, cache = Meter(device), copy.deepcopy(start.stem).to(device).eval(), held.cache(held.labels)
    batches = np.array_split(np.arange(len(cache)), -(-len(cache) // BATCH))
    with reproducible(device, problem.config.client.threads, problem.config.client.numerics), torch.no_grad():
        feed = feed_for(cache, device, BATCH)
        for parts in feed.epoch(batches):
            with meter.work("embed", len(parts[CODE])):
                stem(feed.decode(parts))
    return meter.cost()


def _server(federation: Federation, problem: Problem, seconds: float) -> Cost:
    """Return the server's costs; operations are counted for one step on a few rows and scaled."""
    held = next(iter(problem.clients.values()))
    few, _ = held.cache(held.labels).batch(np.arange(min(len(held), 8)))
    embedder = Embedder(copy.deepcopy(problem.halves.client_for(held.name)), held.call, Normaliser({})).eval()
    with torch.no_grad():
        boundary = embedder(few)
    half = copy.deepcopy(problem.halves.server).eval()
    with FlopCounterMode(display=False) as counter:
        half.logits(boundary).sum().backward()  # forwards and backwards, as in training
    rows = sum(rows for _, _, rows in federation.uploads()) * federation.config.server.epochs
    folder = federation.path / "server"
    return Cost(
        seconds=seconds,
        flops=int(counter.get_total_flops()) * rows // len(next(iter(boundary.values()))),
        storage=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    )


def is_exact(ours: Ours) -> tuple[bool, str]:
    """Return whether recomputing the requester's and the server's parts from the remaining rows gives the same bits."""
    found = ours.federation.verify(ours.receipt)
    return found.exact, "recomputed, bit for bit" if found.exact else f"{found.outcome}: {found.reason}"
