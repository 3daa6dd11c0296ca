"""SplitWiper itself, measured with the same meters: a real federation in a folder."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from splitwiper.baselines import Cost, Forgetting, Problem
from splitwiper.baselines.channel import size
from splitwiper.baselines.problem import Holding
from splitwiper.baselines.starting import Start
from splitwiper.client.local_net import Embedder, Normaliser
from splitwiper.config import Config
from splitwiper.evaluation.comparison.settings import System
from splitwiper.federation import Federation
from splitwiper.wire import Receipt, Spent
from splitwiper.workloads import Workload

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Ours:
    """A federation, and what its work took."""

    federation: Federation
    spent: Mapping[str, Cost]
    server: Cost
    receipt: Receipt | None = None


def config_of(work: Workload, system: System) -> Config:
    """The workload's settings, with what makes SplitWiper+ of it."""
    client = dataclasses.replace(work.config.client, masking=system.masking, noise=system.noise)
    return dataclasses.replace(work.config, client=client)


def learn(work: Workload, system: System, folder: Path, problem: Problem, progress: Progress | None) -> Ours:
    """Learn from all clients."""
    federation = Federation(folder / "run", config=config_of(work, system), progress=progress)
    learned = federation.learn(work.train, tasks=work.tasks)
    return Ours(federation, _costs(learned.spent, problem), _server(federation, problem, learned.server_seconds))


def unlearn(ours: Ours, problem: Problem, forgetting: Forgetting, *, away: str = "") -> Ours:
    """Forget, and measure it.

    Args:
        ours: what was learned.
        problem: the rows it was learned from.
        forgetting: which of them.
        away: a client whose folder is not to be found meanwhile.
    """
    federation, client = ours.federation, forgetting.client
    with _away(federation.path, away):
        if forgetting.level == "client":
            receipt = federation.unlearn(client, everything=True)
        elif forgetting.level == "class":
            receipt = federation.unlearn(client, classes=_classes(problem, forgetting))
        else:
            receipt = federation.unlearn(client, samples=_ids(federation, problem, forgetting))
    left = problem.without(forgetting)
    spent = {name: receipt.spent.get(name, Spent()) for name in ours.spent}
    return Ours(federation, _costs(spent, left), _server(federation, left, receipt.server_seconds), receipt)


@contextmanager
def _away(run: Path, client: str) -> Iterator[None]:
    """Have a client's folder out of reach."""
    folder, hidden = run / "clients" / client, run.parent / "away"
    if not client:
        yield
        return
    folder.rename(hidden)
    try:
        yield
    finally:
        hidden.rename(folder)


def _classes(problem: Problem, forgetting: Forgetting) -> list[str | int]:
    held = problem.clients[forgetting.client]
    return [held.labels[code].name for code in np.unique(held.shard.codes[forgetting.gone])]


def _ids(federation: Federation, problem: Problem, forgetting: Forgetting) -> list[int]:
    """The rows as the federation numbers them: in the order they were given."""
    ids, places = sorted(federation.rows(forgetting.client)), problem.clients[forgetting.client].given
    return [number for number, place in zip(ids, places, strict=True) if forgetting.gone[place]]


def _costs(spent: Mapping[str, Spent], problem: Problem) -> dict[str, Cost]:
    """By client: seconds of all its work, operations of embedding; pre-training's are counted apart."""
    out = {}
    for name, each in spent.items():
        if not each.traffic and not each.seconds:
            out[name] = Cost()
            continue
        held = problem.clients.get(name)
        out[name] = Cost(
            seconds=each.seconds,
            flops=len(held) * _few(problem, held)[1] if held else 0,
            bytes_up=each.bytes_up,
            bytes_down=each.bytes_down,
            round_trips=1,
            storage=size(problem.halves.client_for(name).state_dict()),
        )
    return out


def _few(problem: Problem, held: Holding) -> tuple[dict[str, Tensor], int]:
    """What a client half makes of a few rows, and its operations for one of them."""
    embedder = Embedder(copy.deepcopy(problem.halves.client_for(held.name)), held.call, Normaliser({})).eval()
    inputs, codes = held.cache(held.labels).batch(np.arange(min(len(held), 8)))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        sent: dict[str, Tensor] = embedder(inputs)
    return sent, int(counter.get_total_flops()) // len(codes)


def without_pretraining(spent: Mapping[str, Cost], starts: Mapping[str, Start]) -> dict[str, Cost]:
    """Costs of which the seconds of pre-training are taken off: it took as long where it was done apart."""
    return {
        name: dataclasses.replace(cost, seconds=max(0.0, cost.seconds - starts[name].cost.seconds))
        if name in starts
        else cost
        for name, cost in spent.items()
    }


def _server(federation: Federation, problem: Problem, seconds: float) -> Cost:
    """What the server spent, operations counted in one step on a few rows, and scaled."""
    boundary = _few(problem, next(iter(problem.clients.values())))[0]
    half = copy.deepcopy(problem.halves.server).eval()
    with FlopCounterMode(display=False) as counter:
        half.logits(boundary).sum().backward()
    rows = sum(map(len, problem.clients.values())) * federation.config.server.epochs
    folder = federation.path / "server"
    return Cost(
        seconds=seconds,
        flops=int(counter.get_total_flops()) * rows // len(next(iter(boundary.values()))),
        storage=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    )


def is_exact(ours: Ours) -> tuple[bool, str]:
    """Whether recomputing the requester's part and the server's from the rows that are left gives the same bits."""
    found = ours.federation.verify(ours.receipt)
    return found.exact, "recomputed, bit for bit" if found.exact else f"{found.outcome}: {found.reason}"
