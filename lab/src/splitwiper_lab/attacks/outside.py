"""Attacks from other packages: what an attack must do, and how it is found.

An attack is a function of the `Evidence`, which is everything that the server ever received, prepared for computing. It
yields findings, which `Evidence.of_codes` and `Evidence.of_rows` make. The truth never reaches it: that only scores
what it finds. A function with a parameter ``labels`` is called twice: with None, and told the number of labels.

`splitwiper attack --with` names it by its import path, ``package.module:name``, or by an entry point of the group
``splitwiper_lab.attacks``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from splitwiper.errors import ConfigError
from splitwiper.extensions import load, path_of
from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.finding import AttackFinding

ATTACKS = "splitwiper_lab.attacks"
Attack = Callable[..., Iterable[AttackFinding]]
"""Called with the `Evidence`, and with ``labels`` if it has a parameter of this name."""


def load_attack(name: str) -> Attack:
    """Return an attack by its entry point or import path.

    Raises:
        ConfigError: it cannot be imported, or takes more than evidence.
    """
    found: Attack = load(path_of(ATTACKS, name))
    try:
        inspect.signature(found).bind(object(), **({"labels": None} if _takes_labels(found) else {}))
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"{name!r} is not an attack, which takes evidence and nothing more: {problem}.") from (
            problem
        )
    return found


def outside_attacks(attacks: Sequence[Attack], labels: int) -> list[Attack]:
    """Return attacks in the form that the suite calls, which takes evidence only; some can use the number of labels."""
    runs: list[Attack] = []
    for attack in attacks:
        takes_labels = _takes_labels(attack)
        runs.append(partial(_run, attack, "", {"labels": None} if takes_labels else {}))
        if takes_labels and labels:
            runs.append(partial(_run, attack, "Q", {"labels": labels}))
    return runs


def _takes_labels(attack: Attack) -> bool:
    return "labels" in inspect.signature(attack).parameters


def _run(attack: Attack, knows: str, told: dict[str, Any], evidence: Evidence) -> Iterator[AttackFinding]:
    name = getattr(attack, "__name__", type(attack).__name__)
    for finding in attack(evidence, **told) or ():
        if not isinstance(finding, AttackFinding):
            raise ConfigError(f"the attack {name!r} yields {finding!r}; it must yield AttackFinding.")
        yield replace(finding, knows=knows)  # the laboratory says what the attack knew, not the attack
