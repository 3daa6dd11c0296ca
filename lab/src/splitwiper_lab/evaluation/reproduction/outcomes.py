"""Results as named quantities, over seeds: the input of tables, figures and checks.

Shares are between 0 and 1, times in seconds, sizes in bytes. Following the paper, the last epoch of pre-training is a
cost of SplitWiper's clients, but not of other systems' clients, which start from the same halves. Others' costs are
the mean cost of one other client.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from splitwiper_lab.baselines import Cost
from splitwiper_lab.evaluation.comparison import Record, SeedSpread
from splitwiper_lab.evaluation.comparison.settings import OURS
from splitwiper_lab.evaluation.reproduction.cells import groups, read_experiment_results
from splitwiper_lab.evaluation.reproduction.experiment import Experiment
from splitwiper_lab.sweeps import CellResult

BANDWIDTH = 100e6
"""Bits per second of a client's connection, as in the paper."""

_CLOCKED = ("seconds", ".training")
"""Endings of the names of quantities that are measured by a clock."""


def quantities(kind: str, values: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the quantities of one cell, by name."""
    if kind == "compare":
        return _compared(Record.from_dict(values))
    if kind == "cluster":
        return _clustered(values)
    if kind == "converge":
        return {"accuracy": values["accuracy"][-1], "changed": values["changed"][-1]}
    return {"seconds": statistics.median(values["seconds"]), "messages": statistics.fmean(values["messages"])}


def _compared(record: Record) -> dict[str, float | None]:
    found: dict[str, float | None] = {"exact": float(record.exact)}
    # others start from the same halves, at no cost of theirs
    last = 1 / max(1, record.epochs["client"]) if record.kind == OURS else 0.0
    others = [name for name in record.learned.spent if name != record.requester]
    for name, phase in (("learned", record.learned), ("unlearned", record.unlearned)):
        found[f"{name}.retained"], found[f"{name}.forgotten"] = phase.retained, phase.forgotten
        found |= _costs(f"{name}.requester", phase.cost([record.requester], epochs=last), 1)
        found |= _costs(f"{name}.others", phase.cost(others, epochs=last), max(1, len(others)))
        found |= _costs(f"{name}.clients", phase.cost([record.requester, *others], epochs=last), 1)
        found[f"{name}.server.flops"] = float(phase.server.flops)
        found[f"{name}.server.storage"] = float(phase.server.storage)
        # what the server sends is what clients receive
        found[f"{name}.server.bytes"] = float(sum(cost.bytes_down for cost in phase.spent.values()))
        found[f"{name}.took_part"] = float(len(phase.took_part))
    for attack in record.membership:
        if attack["attack"] in ("two models", "labels only"):
            for score in ("hit_rate", "false_positive_rate", "auc"):
                found[f"{attack['attack']}.{score}"] = attack[score]
    return found


def _costs(name: str, cost: Cost, clients: int) -> dict[str, float | None]:
    return {
        f"{name}.training": cost.seconds / clients,
        f"{name}.sending": cost.transmission(BANDWIDTH) / clients,
        f"{name}.flops": cost.flops / clients,
        f"{name}.bytes": cost.traffic / clients,
        f"{name}.sent": cost.bytes_up / clients,
    }


_ATTACKS = {
    ("code means, k-means, elbow", ""): "elbow",
    ("code means, k-means", "Q"): "kmeans Q",
    ("code means, BIRCH", ""): "birch",
    ("code means, BIRCH", "Q"): "birch Q",
}
"""The names in quantities of attacks, and of what they know."""


def _clustered(values: Mapping[str, Any]) -> dict[str, float | None]:
    found = {}
    for attack in values["attacks"]:
        name = _ATTACKS.get((attack["attack"], attack["knows"]))
        if name:
            found[f"{name}.perfect"], found[f"{name}.inclusive"] = attack["perfect"], attack["inclusive"]
    return found


def sound(path: Path, experiment: Experiment) -> list[CellResult]:
    """Read an experiment's results, and check that each has the values that tables and figures need.

    Raises:
        DataError: a line of the file is damaged; the message names the file and the line.
    """

    def check(result: CellResult) -> None:
        quantities(experiment.kind, result.values)
        if experiment.kind == "converge" and len(result.values["accuracy"]) != len(result.values["changed"]):
            raise ValueError("its two curves have not the same number of epochs")

    return read_experiment_results(path, experiment, check=check)


def quiet(results: Iterable[CellResult]) -> list[CellResult]:
    """Select, for each condition and system, the results with the fewest concurrent runs: their times are reliable."""
    selected = []
    for group in groups(results).values():
        least = min(map(beside, group))  # 0 if some ran alone
        selected += [result for result in group if beside(result) == least]
    return selected


def over_seeds(experiment: Experiment, results: Sequence[CellResult]) -> dict[tuple[str, str], dict[str, SeedSpread]]:
    """Return every quantity of each condition and system. Times come from results with the fewest concurrent runs."""
    found = {}
    for key, group in groups(results).items():
        every = _by_name(experiment, group)
        # times are longer alongside others; accuracies, bytes and operations are the same
        calm = _by_name(experiment, quiet(group))
        spreads = {}
        for name in every:
            source = calm if name.endswith(_CLOCKED) else every
            spreads[name] = SeedSpread.of(source.get(name, ()))
        found[key] = spreads
    return found


def _by_name(experiment: Experiment, group: Sequence[CellResult]) -> dict[str, list[float | None]]:
    """Return the values of each quantity, one for each seed that has it."""
    found: dict[str, list[float | None]] = {}
    for result in group:
        for name, value in quantities(experiment.kind, result.values).items():
            found.setdefault(name, []).append(value)
    return found


def beside(result: CellResult) -> int:
    """Return how many other measurements ran on the machine at the same time."""
    return int(result.made.get("beside", 0))


def curves(results: Iterable[CellResult], quantity: str) -> dict[tuple[str, str], list[SeedSpread]]:
    """Return a quantity of kind ``converge`` after each epoch."""
    found = {}
    for key, group in groups(results).items():
        epochs = zip(*(result.values[quantity] for result in group), strict=True)
        found[key] = list(map(SeedSpread.of, epochs))
    return found
