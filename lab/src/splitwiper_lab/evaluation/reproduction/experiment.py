"""An experiment: a result of the paper, as its kind of measurement, conditions and scale.

An experiment is a folder with an ``experiment.toml``::

    title = "Effectiveness and efficiency over VGG"
    paper = "Section 6.2 and 6.3"       # its place in the paper
    kind = "compare"                    # the kind of measurement: one of KINDS
    checks = ["forgotten-zero"]         # names of what must hold, see `checks`
    claims = ["retained-better"]        # names of what the paper says, and may not hold
    like = "another"                    # source of values that are not given here; `same` also shares its results

    [work]                              # arguments of `splitwiper_lab.workloads.workload`
    model = "vgg"

    [settings]                          # settings of the kind, for example level = "class"

    [[conditions]]                      # its own [work] and [settings] override those above
    name = "CIFAR-10, overlapping labels"
    work = {source = "cifar10"}

    [[systems]]                         # a system to measure under each condition; x and group: place in a figure
    name = "γ = 1"
    kind = "splitwiper"

    [scales.smoke]                      # overrides everything above; lists are replaced
    seeds = 1

    [reported.learned.retained]         # the paper's figures in percent, by system, where its source has them
    "Vanilla" = 85.68
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitwiper.config.settings import table_in
from splitwiper.errors import ConfigError, InputError, NotFoundError, check_keys, nearest

FILE = "experiment.toml"
KINDS = ("compare", "cluster", "converge", "consensus")
SCALES = ("smoke", "cpu", "full")
_KEYS = (
    *("title", "paper", "about", "notes", "kind", "like", "same", "checks", "claims", "show"),
    *("work", "settings", "conditions", "systems", "seeds", "scales", "reported"),
)
_SCALE_KEYS = ("seeds", "work", "settings", "conditions", "systems")
_CONDITION_KEYS = ("name", "group", "x", "seeds", "only", "work", "settings")


@dataclass(frozen=True)
class Condition:
    """One condition of an experiment.

    Attributes:
        name: the condition's name in tables.
        group: the figure, or part of a table, that it belongs to.
        x: its place on a figure's axis.
        work: arguments of `splitwiper_lab.workloads.workload`.
        settings: settings of the kind of measurement.
        seeds: the number of seeds.
        only: names of the systems measured here; by default all.
    """

    name: str
    group: str
    x: float | None
    work: Mapping[str, Any]
    settings: Mapping[str, Any]
    seeds: int
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """A subject that is measured under a condition: a system, or a mode of an operation.

    Attributes:
        name: the subject's name in tables.
        group: the line of a figure that it belongs to; by default its name.
        x: its place on a figure's axis.
        seeds: a number of seeds below the condition's; 0 for the same number.
        settings: settings as for systems in a ``[compare]`` table, including the name, or those of another kind.
    """

    name: str
    group: str
    x: float | None
    seeds: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A result of the paper at one scale.

    Attributes:
        id: the name of its folder.
        title: a title.
        paper: its place in the paper.
        about: what it reproduces, in a few sentences.
        notes: what readers of the figures should know.
        kind: the kind of measurement.
        measured_as: the experiment whose measurements it shows; by default its own id.
        show: how to show it, where that does not follow from the kind.
        checks: names of what must hold.
        claims: names of what the paper says about it.
        scale: smoke, cpu or full.
        conditions: the conditions.
        systems: the subjects.
        reported: the paper's figures.
    """

    id: str
    title: str
    paper: str
    about: str
    notes: str
    kind: str
    measured_as: str
    show: str
    checks: tuple[str, ...]
    claims: tuple[str, ...]
    scale: str
    conditions: tuple[Condition, ...]
    systems: tuple[Subject, ...]
    reported: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the subjects."""
        return [system.name for system in self.systems]

    @property
    def groups(self) -> dict[str, list[Condition]]:
        """The conditions of each group, in order."""
        found: dict[str, list[Condition]] = {}
        for condition in self.conditions:
            found.setdefault(condition.group, []).append(condition)
        return found

    def condition(self, name: str) -> Condition:
        """Return the condition with this name."""
        (found,) = (condition for condition in self.conditions if condition.name == name)
        return found


def experiments(folder: Path) -> list[str]:
    """Return the experiments of a folder, in the order of its ``order.txt``; others come after those.

    Raises:
        NotFoundError: there are none.
    """
    found = sorted(path.parent.name for path in folder.glob(f"*/{FILE}"))
    if not found:
        raise NotFoundError(
            f"there are no experiments in {folder}: they are in the folder experiments of the source tree; name it "
            "with --experiments."
        )
    order = folder / "order.txt"
    first = order.read_text(encoding="utf-8").split() if order.exists() else []
    # sorting by name first puts those that the file leaves out in a fixed order
    return sorted(found, key=lambda name: first.index(name) if name in first else len(first))


def results_file(folder: Path, experiment: Experiment) -> Path:
    """Return the path of an experiment's results in a folder of results."""
    return folder / experiment.scale / f"{experiment.measured_as}.jsonl"


def read_experiment(folder: Path, name: str, scale: str) -> Experiment:
    """Read an experiment at a scale.

    Raises:
        InputError: there is no such scale.
        NotFoundError: there is no such experiment; the message names the nearest.
        ConfigError: its file is wrong.
    """
    if scale not in SCALES:
        raise InputError(f"there is no scale {scale!r}. Take {', '.join(SCALES)}.")
    known = experiments(folder)
    if name not in known:
        raise NotFoundError(f"there is no experiment {name!r}.{nearest(name, known) or ' See reproduce --list.'}")
    try:
        values = _whole(folder, name, known)
        return _experiment(name, str(values.get("same", name)), values, scale)
    except ConfigError as problem:
        raise ConfigError(f"{folder / name / FILE}: {problem}") from problem


def _whole(folder: Path, name: str, known: Sequence[str], seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a file's values merged over those of the experiment that it is like."""
    values = _read(folder / name / FILE)
    other = values.get("same", values.get("like"))
    if other is None:
        return values
    if other not in known or other == name or other in seen:
        raise ConfigError(f"it is like {other!r}, which is no other experiment.{nearest(str(other), known)}")
    base = _whole(folder, other, known, (*seen, name))
    base.pop("same", None)  # that the other one shares results with a third says nothing of this one
    return _over(base, values)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}") from problem


def _experiment(name: str, measured_as: str, values: Mapping[str, Any], scale: str) -> Experiment:
    check_keys(values, _KEYS)
    scales = table_in(values.get("scales", {}), "scales")
    check_keys(scales, SCALES, where="scales.")
    overlay = table_in(scales.get(scale, {}), f"scales.{scale}")
    check_keys(overlay, _SCALE_KEYS, where=f"scales.{scale}.")
    if (kind := values.get("kind")) not in KINDS:  # may be that of the experiment that it is like
        raise ConfigError(f"kind = {kind!r} is not one of {', '.join(KINDS)}.")
    systems = tuple(map(_subject, overlay.get("systems", values.get("systems", ()))))
    names = [system.name for system in systems]
    if not systems or "" in names or len(set(names)) < len(names):
        raise ConfigError("systems must be a list of tables, each with a name of its own.")
    conditions: dict[str, Condition] = {}
    for given in overlay.get("conditions", values.get("conditions", [{"name": "all"}])):
        condition = _condition(given, values, overlay, names)
        if condition.name in conditions:
            raise ConfigError("two conditions have the same name.")
        conditions[condition.name] = condition
    texts = {key: " ".join(str(values.get(key, "")).split()) for key in ("title", "paper", "about", "notes", "show")}
    return Experiment(
        id=name,
        kind=str(kind),
        measured_as=measured_as,
        checks=tuple(values.get("checks", ())),
        claims=tuple(values.get("claims", ())),
        scale=scale,
        conditions=tuple(conditions.values()),
        systems=systems,
        reported=values.get("reported", {}),
        **texts,
    )


def _subject(given: Mapping[str, Any]) -> Subject:
    settings = dict(given)
    name = str(given.get("name", ""))
    # what says where a system stands in a figure, and how often it is measured, is not a setting of the system
    group, x, seeds = settings.pop("group", name), settings.pop("x", None), settings.pop("seeds", 0)
    return Subject(name, str(group), x, int(seeds), settings)


def _condition(
    given: Mapping[str, Any], values: Mapping[str, Any], overlay: Mapping[str, Any], systems: Sequence[str]
) -> Condition:
    check_keys(table_in(given, "conditions"), _CONDITION_KEYS, where="conditions.")
    only = tuple(given.get("only", ()))
    for name in only:
        if name not in systems:
            raise ConfigError(f"conditions.only: there is no system {name!r}.{nearest(name, systems)}")
    # a scale takes precedence over the file's conditions, and its own conditions over the scale
    layers = [overlay, given] if "conditions" in overlay else [given, overlay]
    parts = {}
    for part in ("work", "settings"):
        parts[part] = dict(values.get(part, {}))
        for layer in layers:
            parts[part] = _over(parts[part], layer.get(part, {}))
    seeds = int(given.get("seeds") or values.get("seeds", 1))
    seeds = min(seeds, overlay.get("seeds", seeds))  # a scale has fewer seeds, never more
    return Condition(str(given["name"]), str(given.get("group", "")), given.get("x"), seeds=seeds, only=only, **parts)


def _over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables recursively; all other values in ``top`` replace those in ``base``."""
    out = dict(base)
    for key, value in top.items():
        there = out.get(key)
        out[key] = _over(there, value) if isinstance(there, Mapping) and isinstance(value, Mapping) else value
    return out
