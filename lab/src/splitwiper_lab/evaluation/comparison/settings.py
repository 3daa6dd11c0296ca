"""The settings of a comparison: the ``[compare]`` table of a configuration file."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitwiper.config import Masking, Noise, from_dict
from splitwiper.config.settings import bounded, choice, typed
from splitwiper.errors import ConfigError, check_keys, nearest
from splitwiper.extensions import load, origin, path_of
from splitwiper.formats import plural
from splitwiper.seeding import digest
from splitwiper_lab.baselines import FRAMEWORKS, Baseline, Framework
from splitwiper_lab.baselines.outside import SYSTEMS, UNLEARNING, is_outside, made
from splitwiper_lab.baselines.sharding import Sharding
from splitwiper_lab.baselines.unlearning import METHODS, Method, Retraining

LEVELS = ("class", "sample", "client")
OURS, SISA = "splitwiper", "sisa"
KINDS = (OURS, *FRAMEWORKS, SISA)
_NETWORKS = ("preserver", "destroyer")
"""Settings of unlearning methods that a file cannot hold."""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Membership inference against each system: how much the attacker has, and what it knows.

    Attributes:
        shadow: the share of every client's training rows that the attacker has, and systems do not; 0 attacks nothing.
        shadows: shadow models of each kind.
        labels: the share of labels that the attacker has rows of.
    """

    shadow: float = 0.0
    shadows: int = 2
    labels: float = 1.0

    def __post_init__(self) -> None:
        typed(self)
        bounded(self, "shadow", 0, high=0.9)
        bounded(self, "shadows", 1, high=64)
        bounded(self, "labels", 0, strict=True, high=1)


@dataclass(frozen=True, kw_only=True)
class System:
    """One system of a comparison.

    Attributes:
        kind: one of `KINDS`, or the entry point or import path of a system from outside.
        name: the system's name in tables.
        framework: the split-learning framework, if it is one.
        methods: unlearning methods, where there is a choice.
        sharding: settings of SISA.
        masking: masking of SplitWiper+.
        noise: noise of SplitWiper+.
        baseline: the system itself, if it comes from outside and is not a framework.
        origin: where it comes from, with a digest of its code; empty for built-in systems.
    """

    kind: str
    name: str
    framework: Framework | None = None
    methods: tuple[Method, ...] = ()
    sharding: Mapping[str, Any] = field(default_factory=dict)
    masking: Masking = field(default_factory=Masking)
    noise: Noise = field(default_factory=Noise)
    # not in the text that digests are made of: results of built-in systems are older than these
    baseline: Baseline | None = field(default=None, repr=False)
    origin: str = field(default="", repr=False)

    @property
    def ways(self) -> dict[str, str]:
        """Its unlearning methods by name, with a digest of all settings. SplitWiper and SISA have one of their own.

        A result with another digest belongs to another configuration.
        """
        # each way has its own digest, so adding one leaves the results of others valid
        own = [repr(dataclasses.replace(self, methods=()))]
        if self.origin:
            own.append(self.origin)
        if not self.methods:
            return {self.kind: digest(*own)}
        return {way: digest(*own, *_method_texts(method)) for way, method in self.named.items()}

    @property
    def named(self) -> dict[str, Method]:
        """Its methods by name; several methods of a kind are named with their settings."""
        times = Counter(method.name for method in self.methods)
        return {method.told if times[method.name] > 1 else method.name: method for method in self.methods}


def _method_texts(method: Method) -> list[str]:
    """Return the texts that stand for an unlearning method in digests: with its code, if it comes from outside."""
    if METHODS.get(method.name) is type(method):
        return [repr(method)]
    kind = type(method)
    return [repr(method), str(origin(f"{kind.__module__}:{kind.__qualname__}", {}))]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What holds for all systems of a comparison.

    Attributes:
        seeds: how many: the configuration's, and those after it.
        level: what is forgotten: the label ('class'), some of its rows ('sample'), or all of the owner's ('client').
        delta: at level sample, the share of the label's rows (δ in the paper).
        bandwidth: megabits per second of a client's line.
        absent: a client that cannot be reached while the owner forgets; the last one unless given.
        forget: the label to forget, where the file names clients' own data; a known set says it itself.
        owner: the client that forgets it.
        membership: whether and how membership inference is tried.
    """

    seeds: int = 1
    level: str = "class"
    delta: float = 0.5
    bandwidth: float = 100.0
    absent: str = ""
    forget: str | int = ""
    owner: str = ""
    membership: Membership = field(default_factory=Membership)

    def __post_init__(self) -> None:
        bounded(self, "seeds", 1, high=1000)
        bounded(self, "delta", 0, strict=True, high=1)
        bounded(self, "bandwidth", 0, strict=True)
        choice(self, "level", LEVELS)


@dataclass(frozen=True, kw_only=True)
class Comparison(Conditions):
    """A complete ``[compare]`` table: conditions, and systems in the order of the table."""

    systems: tuple[System, ...] = ()


def read_comparison(table: Mapping[str, Any]) -> Comparison:
    """Parse the ``[compare]`` table.

    Raises:
        ConfigError: a key or value is wrong; the message names the nearest valid one.
    """
    values = dict(table)
    listed = values.pop("systems", [{"kind": OURS}, {"kind": "vanilla"}])
    if not isinstance(listed, list) or not listed:
        raise ConfigError("compare.systems must be a list of systems, as in [[compare.systems]] kind = 'vanilla'.")
    known = ["systems", *(field.name for field in dataclasses.fields(Conditions))]
    check_keys(values, known, where="compare.")
    conditions = from_dict(Conditions, values, where="compare.")
    systems: dict[str, System] = {}
    for place, given in enumerate(listed):
        system = _named(given, f"compare.systems[{place}]")
        if system.name in systems:
            raise ConfigError(
                f"two systems of compare.systems are called {system.name!r}; give one of them another name."
            )
        systems[system.name] = system
    # not asdict, which would turn tables within the table into dictionaries
    return Comparison(systems=tuple(systems.values()), **vars(conditions))


def _named(values: Any, where: str) -> System:
    """Parse a system; errors name its index in the list."""
    try:
        return _system(values, f"{where}.")
    except ConfigError as problem:
        raise ConfigError(str(problem) if where in str(problem) else f"{where}: {problem}") from problem


def _system(values: Any, where: str) -> System:
    if isinstance(values, str):
        values = {"kind": values}  # a name alone stands for a table with the kind
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where[:-1]} must be a name or a table, not {values!r}.")
    rest = dict(values)
    kind, name = str(rest.pop("kind", "")), rest.pop("name", "")
    if not isinstance(name, str) or not name.isprintable():
        raise ConfigError(f"{where}name = {name!r} must be a text of one line.")
    if kind not in KINDS:  # one from outside, or a misspelt one
        if is_outside(SYSTEMS, kind):
            return _outside(kind, name, rest, where)
        hint = nearest(kind, KINDS) or f" Known are {', '.join(KINDS)}; or give an import path, 'package.module:Name'."
        raise ConfigError(f"{where}kind = {kind!r} is not a system.{hint}")
    if kind == OURS:
        found = from_dict(_Ours, rest, where=where)
        plus = "+" if found.masking.is_on or found.noise.is_on else ""
        return System(kind=kind, name=name or f"{OURS}{plus}", masking=found.masking, noise=found.noise)
    if kind == SISA:
        sharding = from_dict(_Sisa, rest, where=where)
        sliced = f" × {sharding.slices} slices" if sharding.slices > 1 else ""
        title = f"{SISA}, {plural(sharding.shards, 'shard')}{sliced}".replace("\xa0", " ")
        return System(kind=kind, name=name or title, sharding=dataclasses.asdict(sharding))
    methods = _methods(rest.pop("unlearning", [Retraining.name]), where)
    framework = FRAMEWORKS[kind](**_split(rest, where))
    parts = [kind, framework.schedule]
    if kind == "vanilla" and framework.synchronise:
        parts.append("synchronised")
    return System(kind=kind, name=name or ", ".join(parts), framework=framework, methods=methods)


def _outside(kind: str, name: str, rest: dict[str, Any], where: str) -> System:
    """Parse a system from another package: a framework, or a baseline of any kind."""
    args = rest.pop("args", {})
    if not isinstance(args, Mapping):
        raise ConfigError(f"{where}args = {args!r} must be a table of settings.")
    title = name or kind.rpartition(":")[2]
    found = load(path_of(SYSTEMS, kind))
    if isinstance(found, type) and issubclass(found, Framework):
        methods = _methods(rest.pop("unlearning", [Retraining.name]), where)
        framework, source = made(SYSTEMS, kind, args, what="exchange", **_split(rest, where))
        return System(kind=kind, name=title, framework=framework, methods=methods, origin=source)
    if rest:
        raise ConfigError(f"unknown key {where + next(iter(rest))!r}. Settings of {kind} go into args = {{…}}.")
    baseline, source = made(SYSTEMS, kind, args, what="learn")
    return System(kind=kind, name=title, baseline=baseline, origin=source)


def _split(rest: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Parse the settings that all frameworks have."""
    split = from_dict(_Split, rest, where=where)
    given: dict[str, Any] = {name: value for name, value in vars(split).items() if value}
    if split.synchronise:
        choice(split, "synchronise", ("none", "average"))
        given["synchronise"] = split.synchronise == "average"
    if split.momentum:
        choice(split, "momentum", ("kept", "fresh"))
        given["fresh"] = given.pop("momentum") == "fresh"
    return given


@dataclass(frozen=True, kw_only=True)
class _Ours:
    masking: Masking = field(default_factory=Masking)
    noise: Noise = field(default_factory=Noise)


@dataclass(frozen=True, kw_only=True)
class _Sisa:
    shards: int = 5
    slices: int = 1
    aggregate: str = "vote"

    def __post_init__(self) -> None:
        # refuses what SISA would refuse, while the file is read
        Sharding(shards=self.shards, slices=self.slices, epochs=1, aggregate=self.aggregate)


@dataclass(frozen=True, kw_only=True)
class _Split:
    """A framework's settings; empty ones keep the framework's defaults."""

    schedule: str = ""
    aggregate: str = ""
    synchronise: str = ""
    start: str = ""
    momentum: str = ""


def _methods(listed: Any, where: str) -> tuple[Method, ...]:
    if isinstance(listed, str | Mapping):  # one way need not be a list
        listed = [listed]
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"{where}unlearning must be a list of ways to unlearn: {', '.join(METHODS)}.")
    methods: dict[str, Method] = {}
    for given in listed:
        method = _method(given, f"{where}unlearning")
        if method.told in methods:
            raise ConfigError(
                f"{where}unlearning names {method.told} twice; name each way once, or with other settings."
            )
        methods[method.told] = method
    return tuple(methods.values())


def _method(values: Any, where: str) -> Method:
    if not isinstance(values, str | Mapping):
        raise ConfigError(f"{where}: {values!r} is neither a way's name nor a table with its method.")
    rest: dict[str, Any] = {"method": values} if isinstance(values, str) else dict(values)
    name = str(rest.pop("method", ""))
    kind = METHODS.get(name)
    if kind is None and is_outside(UNLEARNING, name):
        found, _ = made(UNLEARNING, name, rest, what="unlearn")
        if not isinstance(found, Method):
            raise ConfigError(f"{where}: {name!r} is not a subclass of splitwiper_lab.baselines.unlearning.Method.")
        return found
    if kind is None:
        hint = nearest(name, METHODS) or f" Known are {', '.join(METHODS)}; or give an import path."
        raise ConfigError(f"{where}: there is no way to unlearn {name!r}.{hint}")
    known = [field.name for field in dataclasses.fields(kind) if field.name not in _NETWORKS]
    for key, value in rest.items():
        if key not in known:
            hint = nearest(key, known) or (f" Known keys: {', '.join(known)}." if known else " It has no settings.")
            raise ConfigError(f"{where}: unknown key {key!r} of {name}.{hint}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{where}: {key} of {name} must be a number, not {value!r}.")
    return kind(**rest)
