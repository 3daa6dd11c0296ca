"""Settings: frozen dataclasses, validated on construction, read from and written to TOML.

`ServerConfig` and `ClientConfig` are separate types, kept in separate trees: what the server must not know is in
nothing it can read.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from splitwiper.errors import ConfigError, nearest
from splitwiper.seeding import digest

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine", "onecycle")
PRECISIONS = ("float32", "bfloat16")
CODECS = ("none", "float16", "bfloat16", "int8", "int4")
TRANSFERS = ("none", "zstd")
_T = TypeVar("_T")


def _choice(owner: object, name: str, allowed: tuple[str, ...]) -> None:
    value = getattr(owner, name)
    if value not in allowed:
        hint = nearest(str(value), allowed)
        raise ConfigError(f"{name} = {value!r} is not one of {', '.join(allowed)}.{hint}")


def _bounded(owner: object, name: str, low: float, *, strict: bool = False, high: float = math.inf) -> None:
    value = getattr(owner, name)
    if not math.isfinite(value) or value < low or (strict and value == low) or value > high:
        limit = f"{'>' if strict else '≥'} {low:g}" + (f" and ≤ {high:g}" if high < math.inf else "")
        raise ConfigError(f"{name} = {value!r} is out of range: give a number {limit}.")


def _typed(settings: Any) -> None:
    """Check every field's type, and bring values into the form that TOML would give back."""
    hints = get_type_hints(type(settings))
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if not dataclasses.is_dataclass(hints[f.name]):
            object.__setattr__(settings, f.name, _coerce(hints[f.name], value, f.name))
        elif not isinstance(value, hints[f.name]):
            raise ConfigError(f"{f.name} must be a {hints[f.name].__name__}, not {value!r}.")


def _plain(value: Any, where: str) -> Any:
    """A value as TOML would give it back."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if not isinstance(value, str | int | float | bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{where} = {value!r} cannot be written to a configuration file; leave it out or use text.")
    return value


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a half is trained. The same fields serve client and server."""

    epochs: int = 10
    batch: int = 64
    optimizer: str = "sgd"
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "cosine"
    clip: float = 0.0
    """Largest gradient norm; 0 leaves gradients as they are."""
    precision: str = "float32"
    """What layers compute in. 'bfloat16' is for GPUs: weights, losses and sums stay in float32, all else is faster."""
    device: str = "cpu"
    threads: int = 0
    """Threads torch computes with; 0 takes torch's setting, or the cores this process may use if they are fewer. The
    number is part of the fingerprint."""

    def __post_init__(self) -> None:
        _typed(self)
        for name, low, high in (("epochs", 1, 10**6), ("batch", 1, 10**9), ("threads", 0, 1024)):
            _bounded(self, name, low, high=high)
        _bounded(self, "lr", 0, strict=True, high=1e38)
        _bounded(self, "momentum", 0, high=1)
        _bounded(self, "weight_decay", 0)
        _bounded(self, "clip", 0)
        _choice(self, "optimizer", OPTIMIZERS)
        _choice(self, "schedule", SCHEDULES)
        _choice(self, "precision", PRECISIONS)
        if self.precision == "bfloat16" and not self.device.startswith("cuda"):
            raise ConfigError(
                "precision = 'bfloat16' is for a GPU (device = 'cuda'): CPUs are slower with it, or crash; drop it."
            )


@dataclass(frozen=True, kw_only=True)
class ServerConfig(Recipe):
    """What the server knows: M epochs over the cache, and where re-training starts from."""

    epochs: int = 30
    start: str = "initial"
    """'initial' re-trains from the federation's first weights and is exact; 'warm' goes on from the present
    model, and says of itself that it is not exact."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _choice(self, "start", ("initial", "warm"))


@dataclass(frozen=True, kw_only=True)
class ClientConfig(Recipe):
    """What only clients know: N epochs of pre-training, slices, and how the local head is built."""

    epochs: int = 10
    init: str = "shared"
    """'shared': every client starts from the federation's first weights; 'independent': from its own stream."""
    slices: int = 1
    """Parts of the local data with a checkpoint after each; more slices forget faster and learn slower."""
    slice_epochs: int = 0
    """Epochs over the slices so far, after each slice is added; 0 takes round(2·epochs / (slices + 1)), which
    costs about as many row passes as `epochs` over everything."""
    head_width: int = 128
    """Hidden width of the throw-away local head; 0 makes it linear."""
    standardise: bool = False
    """Shift and scale each input feature by the mean and deviation of the client's own surviving rows."""
    codec: str = "none"
    """How activations are written down: 'none' as computed, 'float16', 'bfloat16', 'int8' or 'int4' with fewer bytes.
    The ranges of integers are fitted to the client's surviving rows."""
    transfer: str = "none"
    """'zstd' compresses uploads on their way; what arrives and is stored is the same file."""
    keys: str = "random"
    """'random': each client's key comes from the operating system; 'seeded': from the root seed and its name, so that
    an experiment can be repeated bit for bit. A seeded key is no secret: whoever knows the seed knows it."""
    labels: tuple[str | int, ...] = ()
    """The closed set of labels rows may carry; empty allows any."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _choice(self, "init", ("shared", "independent"))
        _choice(self, "keys", ("random", "seeded"))
        _choice(self, "codec", CODECS)
        _choice(self, "transfer", TRANSFERS)
        _bounded(self, "slices", 1, high=10_000)
        _bounded(self, "slice_epochs", 0, high=10**6)
        _bounded(self, "head_width", 0, high=10**5)
        if len(set(self.labels)) != len(self.labels):
            raise ConfigError(f"labels = {list(self.labels)} names a label twice; name each once.")

    @property
    def stage_epochs(self) -> int:
        """Epochs of one stage of the slice schedule."""
        if self.slices == 1:
            return self.slice_epochs or self.epochs
        return self.slice_epochs or max(1, round(2 * self.epochs / (self.slices + 1)))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network by import path, so that a run can be reopened without Python code."""

    factory: str = ""
    """``package.module:callable`` that returns the unsplit nn.Module."""
    args: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The model's inputs, one row of each: ``{x = "float32[1,8,8]"}``. A single one is passed by position, several
    by keyword."""
    at: str = ""
    head: str = ""
    shared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _typed(self)
        for name in ("args", "inputs"):  # as they come back from TOML
            object.__setattr__(self, name, _plain(getattr(self, name), f"model.{name}"))
        if self.factory and not all(self.factory.partition(":")):
            raise ConfigError(f"factory = {self.factory!r} must read 'package.module:callable'.")
        if self.factory and not self.at:
            raise ConfigError("model.at is missing: name the submodule after which to cut.")
        if self.factory and not self.inputs:
            raise ConfigError('model.inputs is missing: say what one row is, as in inputs = {x = "float32[1,8,8]"}.')


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a federation."""

    seed: int = 0
    server: ServerConfig = field(default_factory=ServerConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    model: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        _typed(self)
        _bounded(self, "seed", 0, high=2**62)


def from_dict(kind: type[_T], values: Mapping[str, Any], *, where: str = "") -> _T:
    """Build a settings dataclass from plain values; unknown keys and wrong types are errors.

    Raises:
        ConfigError: naming the key and, for an unknown one, the nearest valid key.
    """
    hints = get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    built: dict[str, Any] = {}
    for key, value in values.items():
        if key not in names:
            hint = nearest(key, names) or f" Known keys: {', '.join(names)}."
            raise ConfigError(f"unknown key {where + key!r}.{hint}")
        built[key] = _coerce(hints[key], value, where + key)
    return kind(**built)


def _coerce(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a table, not {value!r}.")
        return from_dict(kind, value, where=f"{where}.")  # type: ignore[arg-type]
    origin = get_origin(kind)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} must be a list, not {value!r}.")
        return tuple(_coerce(get_args(kind)[0], item, where) for item in value)
    if origin in (Union, types.UnionType):
        allowed = get_args(kind)
        if type(value) not in allowed:
            raise ConfigError(f"{where} must be {' or '.join(a.__name__ for a in allowed)}, not {value!r}.")
        return value
    if origin is not None:  # Mapping[str, Any]
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a table, not {value!r}.")
        return dict(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ConfigError(f"{where} must be {kind.__name__}, not {value!r}.")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain values.

    Raises:
        ConfigError: the file is missing or not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        raise ConfigError(f"no configuration file {path}.") from problem
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}") from problem


def to_toml(settings: Any) -> str:
    """A settings dataclass as TOML; `from_dict` of its parsed text gives the same settings back.

    >>> to_toml(ModelConfig(at="stem")).splitlines()[:2]
    ['factory = ""', 'args = {}']
    """
    plain, tables = [], []
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if dataclasses.is_dataclass(value):
            tables.append(f"\n[{f.name}]\n{to_toml(value)}")
        else:
            plain.append(f"{f.name} = {_toml_value(value)}\n")
    return "".join(plain + tables)


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def config_digest(settings: Any, *, seed: int) -> str:
    """Digest of a settings dataclass and the root seed, for receipts."""
    return digest("config", seed, type(settings).__name__, to_toml(settings))
