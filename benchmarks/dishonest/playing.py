"""Playing one scenario, and comparing each step with what it should come to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.dishonest.kinds import STEPS, Kind
from benchmarks.dishonest.stage import Ended, Scene, Stage

_WRONG = ("mismatch", "unverifiable", "not_comparable")


@dataclass(frozen=True)
class Step:
    """What a step came to.

    Attributes:
        step: its name.
        who: whose it is.
        command: the subcommand.
        code: its exit code.
        check: the checks that failed, or what the error says; empty where nothing was noticed.
        named: whether it is names of checks.
        expected: the code that it should end with.
        lacks: words that it should have printed and did not.
        epochs: drawn by an audit of some epochs.
    """

    step: str
    who: str
    command: str
    code: int
    check: str
    named: bool
    expected: int
    lacks: str = ""
    epochs: Sequence[int] = ()

    @property
    def right(self) -> bool:
        """Whether it ended as it should."""
        return self.code == self.expected and not self.lacks


@dataclass(frozen=True)
class Played:
    """What a scenario came to."""

    kind: Kind
    steps: tuple[Step, ...]

    @property
    def caught_by(self) -> tuple[str, ...]:
        """Who noticed."""
        return tuple(dict.fromkeys(step.who for step in self.steps if step.code))

    @property
    def told(self) -> str:
        """Who noticed, by which checks, with which exit codes; the checks' names, or the words that were printed."""
        out = []
        for who in self.caught_by:
            mine = [step for step in self.steps if step.who == who and step.code]
            checks = dict.fromkeys(step.check for step in mine if step.named)
            words = [self.kind.caught[step.step].words for step in mine if step.step in self.kind.caught]
            codes = ", ".join(dict.fromkeys(str(step.code) for step in mine))
            out.append(f"{who} ({'; '.join(checks or dict.fromkeys(words))}: exit {codes})")
        return "; ".join(out) or "nobody"

    @property
    def wrong(self) -> list[str]:
        """Steps that did not end as they should."""
        return [
            f"{step.step}: exit {step.code}, not {step.expected}" + (f", without {step.lacks!r}" if step.lacks else "")
            for step in self.steps
            if not step.right
        ]

    def to_dict(self) -> dict[str, Any]:
        """What came of it as plain values."""
        return {"caught_by": list(self.caught_by), "steps": [asdict(step) for step in self.steps], "wrong": self.wrong}


def play(stage: Stage, kind: Kind, *, steps: Sequence[str] | None = None) -> Played:
    """Play a scenario.

    Args:
        stage: the federation to begin with.
        kind: the scenario.
        steps: play only these of its steps.
    """
    scene, done = stage.scene(kind.name.replace("'", "")), list[Step]()
    try:
        for word in kind.plan:
            if word.partition(" ")[0] == "serve":
                given = word.split()[1:]
                store = "kept" if "@kept" in given else "store"
                scene.serve([lie for lie in given if lie != "@kept"], store)
            elif word == "leak":
                scene.stop()
                scene.leak()
            elif word == "settled":
                scene.settled()
            elif steps is None or word in steps:
                done.append(_stepped(scene, kind, word))
    finally:
        scene.stop()
    return Played(kind, tuple(done))


def _stepped(scene: Scene, kind: Kind, name: str) -> Step:
    who, command = STEPS[name]
    if "TICKET" in command:
        command = command.replace("TICKET", scene.ticket())
    if "EVIDENCE" in command:
        found = sorted(scene.folder.glob("*/evidence-*.json"))
        command = command.replace("EVIDENCE", str(found[0] if found else "none"))
    ended = scene.call(*shlex.split(command))
    told = _json(ended)
    drawn = tuple(told.get("epochs", ())) if command.startswith("audit") else ()
    caught = kind.caught.get(name)
    if caught and kind.forged and name == "audit some epochs" and not set(drawn) & set(kind.forged):
        caught = None
    expected, words = (caught.code, caught.words) if caught else (0, kind.says.get(name, ""))
    lacks = "" if words in f"{ended.stdout}\n{ended.stderr}" else words
    return Step(name, who, command.split()[0], ended.code, *_noticed(ended, told), expected, lacks, drawn)


def _json(ended: Ended) -> Mapping[str, Any]:
    try:
        told = json.loads(ended.stdout)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _noticed(ended: Ended, told: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the names of the failed checks and True, or, if there are none, the error's message and False."""
    failed = [
        str(check.get("what") or check.get("subject")) for check in told.get("checks", ()) if check["outcome"] in _WRONG
    ]
    if failed or not ended.code:
        return ", ".join(dict.fromkeys(failed)), True
    lines = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    lines += [line for line in ended.stdout.splitlines() if line.startswith(("Certificate: ", "Mismatch: "))]
    return (lines[-1].partition(": ")[2] if lines else ended.stderr.strip()[-300:])[:300], False
