"""How long clients take to agree on labels (Algorithm 3): sealed messages over a real server's relay."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from splitwiper.config import Config, from_dict
from splitwiper.config.hiding import Masking
from splitwiper.federation import Federation
from splitwiper_lab.evaluation.reproduction.experiment import Condition
from splitwiper_lab.evaluation.reproduction.work import Bench, work_of


def consensus(
    condition: Condition, systems: Sequence[Mapping[str, Any]], seed: int, bench: Bench
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Time and count messages of several agreements in each mode; randomness comes from the operating system."""
    work, repeats = work_of(condition, seed, bench), int(condition.settings.get("repeats", 5))
    for system in systems:
        masking = from_dict(Masking, {k: v for k, v in system.items() if k != "name"}, where="systems.")
        client = dataclasses.replace(work.config.client, masking=masking, keys="random")
        config: Config = dataclasses.replace(work.config, client=client)
        with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=bench.scratch) as folder:
            federation = Federation(Path(folder) / "run", config=config, progress=bench.progress)
            first = federation.learn(work.train, tasks=work.tasks).agreement
            found = [first] if first else []
            found += [federation.rekey() for _ in range(repeats - 1)]
            labels = len(federation.labels)
        yield (
            str(system["name"]),
            {
                "clients": len(work.train),
                "labels": labels,
                "seconds": [one.seconds for one in found],
                "messages": [one.messages for one in found],
            },
        )
