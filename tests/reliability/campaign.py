"""A process that forks a child which dies at a chosen step, and picks up after it, again and again.

`warm` runs it as ``-m reliability.campaign SCENARIO [every | FIRST]``. It prints JSON lines: the undisturbed run, then
one line per death.

A pilot run first takes the image of the folder at every step. Steps in a row that leave byte for byte the same image
(an fsync's before and after, say) cannot differ in what comes next, so one of them is died at for all; with ``every``
each is, with a number one in `APART` of those that differ, from that one on.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEAD = 137
APART = 54
"""One in so many of the steps that differ is died at by default."""


def todays(apart: int) -> int:
    """Return the first of the cases to try today, one in so many: within that many days, each has its turn."""
    return int(os.environ["SPLITWIPER_TEST_DAY"]) % apart


def in_child(work: Callable[[], Any]) -> tuple[int, Any]:
    """Run something in a forked child; its exit status, and its answer or the trace of its failure."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            answer, code = work(), 0
        except BaseException:
            answer, code = traceback.format_exc(), 1
        with os.fdopen(write, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, json.loads(text) if text else None


def image(folder: Path) -> str:
    """A digest of every name and byte under a folder."""
    out = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        out.update(f"{path.relative_to(folder)} {path.is_dir()}\n".encode())
        if path.is_file():
            out.update(hashlib.sha256(path.read_bytes()).digest())
    return out.hexdigest()


class Campaign:
    """Every step of one scenario."""

    def __init__(self, name: str, scratch: Path) -> None:
        from reliability.scenarios import SCENARIOS

        self.scenario = SCENARIOS[name]
        self.scratch = scratch
        self.prepared = scratch / "prepared"
        code, trace = in_child(lambda: self.scenario.prepare(self.prepared))
        assert code == 0, trace

    def fresh(self) -> tuple[Path, Path]:
        case, log = self.scratch / "case", self.scratch / "acks"
        shutil.rmtree(case, ignore_errors=True)
        log.unlink(missing_ok=True)
        shutil.copytree(self.prepared, case)
        return case, log

    def undisturbed(self) -> dict[str, Any]:
        """The run before the scenario, and after it when nobody dies; the image at each step on the way."""
        from reliability.stage import bits
        from splitwiper.store import files

        case, _ = self.fresh()
        steps: list[list[str]] = []

        def pilot() -> dict[str, Any]:
            before = bits(case)
            with files.watch(lambda kind, path: steps.append([self.named(kind, path), image(case)])):
                self.scenario.act(case, lambda _: None)
            return {"before": before, "after": self.outcome(case), "steps": steps}

        code, answer = in_child(pilot)
        assert code == 0, answer
        return dict(answer)

    def named(self, kind: str, path: Path) -> str:
        """A step's name, the same in every process."""
        return f"{kind} {re.sub(r'-[0-9-]*[0-9a-f]{16}', '', path.relative_to(self.scratch).as_posix())}"

    def die_at(self, number: int) -> dict[str, Any]:
        """Let a child die at a step, look at what it left, and finish its work."""
        case, log = self.fresh()
        code, trace = in_child(lambda: self._act(case, log, number))
        assert code == DEAD, trace
        *acked, event = log.read_text(encoding="utf-8").splitlines()
        try:
            after = self._pick_up(case, acked)
        except Exception:
            return {"step": number, "event": event, "failure": traceback.format_exc()}
        return {"step": number, "event": event, "acked": acked, "after": after}

    def _act(self, case: Path, log: Path, number: int) -> None:
        from splitwiper.store import files

        seen = 0
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def ack(line: str) -> None:
            os.write(descriptor, f"{line}\n".encode())

        def watcher(kind: str, path: Path) -> None:
            nonlocal seen
            seen += 1
            if seen == number:
                ack(self.named(kind, path))
                os._exit(DEAD)

        with files.watch(watcher):
            self.scenario.act(case, ack)

    def _pick_up(self, case: Path, acked: list[str]) -> dict[str, Any]:
        from reliability.stage import bits
        from splitwiper.federation import status

        run = (case / "federation.toml").exists()
        explained = list(status(case).todo) if run else []
        found = bits(case) if run and not explained else None
        self.scenario.recover(case, acked)
        return {"explained": explained, "found": found, **self.outcome(case)}

    @staticmethod
    def outcome(case: Path) -> dict[str, Any]:
        from reliability.stage import bits, query, strays
        from splitwiper.federation import status

        return {
            "bits": bits(case),
            "strays": strays(case),
            "todo": list(status(case).todo),
            "tickets": {t["id"]: t["state"] for t in query(case / "server" / "server.db", "SELECT * FROM tickets")},
        }


def main(name: str, which: str = "") -> None:
    from reliability.scenarios import SCENARIOS
    from reliability.stage import scratch

    folder = scratch()
    try:
        SCENARIOS[name].prepare(folder / "first")  # what is imported and set up on first use need not be, per child
        gc.freeze()
        campaign = Campaign(name, folder)
        quiet = campaign.undisturbed()
        print(json.dumps(quiet), flush=True)  # noqa: T201
        images = [taken for _, taken in quiet["steps"]]
        steps = [n for n, taken in enumerate(images, 1) if which == "every" or n == 1 or taken != images[n - 2]]
        for number in steps if which == "every" else steps[int(which or 0) % APART :: APART]:
            print(json.dumps(campaign.die_at(number)), flush=True)  # noqa: T201
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
