"""Dishonest servers as processes over TLS: who of sites, auditor and outsiders catches each, by which check.

Every server is a process that listens on loopback and runs ``splitwiper serve`` with one behaviour changed; sites, the
auditor and an outsider run their commands as processes, whose exit codes and printed words are compared with the table
in `benchmarks/dishonest/kinds.py`. Where nobody can notice, the result is "nobody".
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.dishonest.kinds import KINDS, Kind
from benchmarks.dishonest.playing import Played, play
from benchmarks.dishonest.stage import Stage
from benchmarks.harness import Check, Result

QUICK = ("lazy", "trains on what it should have erased", "puts the erased shard back")
_FEW = ("forget", "certificate", "outsider", "audit", "fetch", "outsider with attestations")
"""Steps of a quick try."""
_FRESH = ("honest", "lazy")
"""Played once more with an interpreter for every process, as users start them, and not forked."""


def missing(*, quick: bool) -> str:
    """What this machine lacks."""
    del quick
    return "" if Path("/proc/self").exists() else "the processes of the scene are forked and watched as on Linux"


def run(*, quick: bool, only: str = "") -> Iterator[Result]:
    """Play every kind.

    Args:
        quick: three of them, with fewer steps.
        only: those whose name has this in it.
    """
    kinds = [kind for kind in KINDS if only in kind.name and (not quick or kind.name in QUICK)]
    yield from _played(kinds, fresh=False, steps=_FEW if quick else None)
    if not quick and (again := [kind for kind in kinds if kind.name in _FRESH]):
        yield from _played(again, fresh=True)


def _played(kinds: Sequence[Kind], *, fresh: bool, steps: Sequence[str] | None = None) -> Iterator[Result]:
    memory = Path("/dev/shm")  # noqa: S108
    with (
        tempfile.TemporaryDirectory(prefix="splitwiper-", dir=memory if memory.is_dir() else None) as folder,
        Stage(Path(folder), fresh=fresh) as stage,
    ):
        for kind in kinds:
            yield _result(play(stage, kind, steps=steps), fresh=fresh)


def _result(played: Played, *, fresh: bool) -> Result:
    kind = played.kind
    processes = "an interpreter each" if fresh else "forked"
    what = f"a server that {kind.does}" + (" (an interpreter for each process)" if fresh else "")
    told = f"{played.told}; NOT as expected: {'; '.join(played.wrong)}" if played.wrong else f"caught by {played.told}"
    return Result(
        {"kind": kind.name, "processes": processes, "steps": len(played.steps)},
        {"does": kind.does, **played.to_dict()},
        [Check(what, "every step ends as the table says", told, not played.wrong)],
    )
