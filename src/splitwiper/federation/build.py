"""Build halves from settings: the model by import path, one example row from its description."""

from __future__ import annotations

import importlib
import math
import re
from typing import Any

import torch
from torch import Tensor, nn

from splitwiper.config import Config
from splitwiper.errors import ConfigError
from splitwiper.numerics import prepare
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.splitting import Halves, split

_DTYPES = ("float16", "float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64")
_LARGEST = 10**8
"""The largest number of values in the example row."""
_INPUT = re.compile(r"(\w+)\[([\d,\s]*)\]")


def build_halves(config: Config) -> Halves:
    """Cut the model that the settings name.

    Raises:
        ConfigError: there is no such factory, it does not return a module, or portable numerics are not available.
    """
    spec = config.model
    if not spec.factory:
        raise ConfigError(
            "this run's configuration does not name its model: pass the halves, Federation(path, halves), or set "
            "factory, at and inputs under [model] in the run's federation.toml."
        )
    prepare(config.client.numerics, config.server.numerics)  # the model's first weights are the first thing computed
    module, _, name = spec.factory.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except Exception as problem:  # whatever the user's module raises when it is imported
        raise ConfigError(f"model.factory = {spec.factory!r} cannot be imported ({problem}).") from problem
    with isolated_rng(Stream(config.seed, "model")):
        try:
            model = factory(**spec.args)
        except ConfigError:
            raise
        except Exception as problem:  # whatever the user's factory raises
            raise ConfigError(f"model.args do not fit {spec.factory} ({problem}).") from problem
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{spec.factory} returned a {type(model).__name__}, not an nn.Module.")
    return split(model, at=spec.at, example=_example(config), head=spec.head or None, shared=spec.shared)


def _example(config: Config) -> Any:
    tensors = {name: _tensor(str(text), config.seed) for name, text in config.model.inputs.items()}
    return tensors.popitem()[1] if len(tensors) == 1 else tensors


def _tensor(text: str, seed: int) -> Tensor:
    """Make one row as described, for example ``float32[1,8,8]``: normal deviates, or ones for an integer dtype."""
    match = _INPUT.fullmatch(text.strip())
    shape = [1]
    for size in match[2].split(",") if match else ():
        if size.strip():
            shape.append(int(size))
    if match is None or match[1] not in _DTYPES or math.prod(shape) > _LARGEST:
        raise ConfigError(f"model.inputs: {text!r} is not like 'float32[3,32,32]' or 'int64[128]'.")
    dtype: torch.dtype = getattr(torch, match[1])
    if dtype.is_floating_point:
        return torch.randn(shape, generator=Stream(seed, "example").generator()).to(dtype)
    return torch.ones(shape, dtype=dtype)
