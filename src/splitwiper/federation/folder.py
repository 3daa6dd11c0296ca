"""Creating and reopening a run folder."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from splitwiper.config import Config, config_digest, to_toml
from splitwiper.errors import ConfigError, InputError, NotFoundError, StoreError
from splitwiper.extensions import check_settings_of
from splitwiper.masking.modes import mode_for
from splitwiper.masking.sealing import GroupKey
from splitwiper.numerics import pick_device
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.splitting import Halves, ServerHalf, TensorSpec, identity
from splitwiper.store import ServerStore, files, ledger
from splitwiper.store.blobs import new_record
from splitwiper.training.parts import make_loss, make_optimizer, make_schedule
from splitwiper.wire import Column
from splitwiper.wire.codecs import prepare
from splitwiper.wire.columns import DTYPES, TORCH

_log = logging.getLogger("splitwiper")
FINISHED = "federation.toml"
"""The file with a run's settings, written last."""
_FOLDERS = {"server", "clients", "pending"}
_DTYPES = {TORCH[name]: name for name in DTYPES}


def refuse_used(path: Path) -> None:
    """Refuse a folder for a new run unless it is empty, or its creation was interrupted."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; give a folder for the run.")
    strange = [entry.name for entry in files.listed(path) if entry.name not in _FOLDERS]
    if strange or any((path / "clients").glob("*/client.db")):
        holds = f" (it holds {', '.join(strange[:3])}…)" if strange else ""
        raise InputError(f"{path} is not empty and not a run{holds}; give another folder.")


def identities(halves: Halves) -> dict[str, str]:
    """Return the identity of each half, whatever its weights, as a server's database stores it."""
    return {"architecture": identity(halves.client), "model": identity(halves.server)}


def make(
    path: Path,
    halves: Halves,
    config: Config,
    server: Mapping[str, Tensor],
    client: Mapping[str, Tensor],
    *,
    run: str | None = None,
) -> bool:
    """Create a run folder; its configuration is written last, to mark the creation as finished.

    ``server`` and ``client`` are first weights. The run's id is drawn unless it is given, for a twin; no computation
    depends on it.

    Returns:
        False if another process created a run there meanwhile, and nothing was done.
    """
    columns_of(halves.boundary)  # refuse tensors that cannot cross the cut before anything is created
    check_parts(config)
    if not path.is_dir():
        refuse_used(path)
        files.make_folder(path)
    with files.locked(path):
        if (path / FINISHED).exists():
            return False
        refuse_used(path)  # again, under the lock
        for name in sorted(_FOLDERS):
            files.make_folder(path / name)
        store = ServerStore(path / "server")
        _refuse_lost(store)
        for suffix in ("", "-journal"):  # of an interrupted creation: its ledger would record its start twice
            files.erase(store.database.path.with_name(f"{store.database.path.name}{suffix}"))
        store.create(
            config=to_toml(config.server),
            # each model gets an output layer of its own; the size of the first one would reveal the number of labels
            initial=without_output_layer(halves.server, server) if config.client.masking.is_on else server,
            client_initial=client,
            meta=remembered(halves, config, codec=config.client.encoding, run=run),
            blobs=new_record(*config.store.place),
        )
        files.write_bytes(path / FINISHED, to_toml(config).encode())
    return True


def without_output_layer(half: ServerHalf, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a server half without those of its output layer."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(f"{half.output_layer_name}.")}


def _refuse_lost(store: ServerStore) -> None:
    """Refuse to create a run over one that was in use and lost its configuration."""
    used = False
    for name in ("shards", "models", "epochs"):
        used |= any((store.root / name).glob("*"))
    if not used and store.database.path.exists():
        with suppress(StoreError, NotFoundError), closing(store.database):  # an unreadable one was never finished
            used = len(ledger.entries(store.database)) > 1
    if used:
        raise InputError(
            f"{store.root} is that of a run whose {FINISHED} is gone: restore {FINISHED} from a backup, or give "
            "another folder. Nothing was changed."
        )


def remembered(halves: Halves, config: Config, *, codec: str, run: str | None = None) -> dict[str, str]:
    """Return what a server's database stores about how it was created."""
    columns = columns_of(halves.boundary)
    return {
        "seed": str(config.seed),
        "config": config_digest(config.server, seed=config.seed),
        "start": config.server.start,
        "columns": json.dumps([[c.name, c.dtype, list(c.shape)] for c in columns]),
        "codec": codec,
        "at": halves.at,
        "run": run or secrets.token_hex(16),
        **identities(halves),
    }


def columns_of(boundary: Sequence[TensorSpec]) -> tuple[Column, ...]:
    """Return the tensors that cross the cut as columns of a shard."""
    for spec in boundary:
        if spec.dtype not in _DTYPES:
            raise InputError(
                f"{spec.name} crosses the cut as {spec.dtype}, which shards do not carry; cast it to float32."
            )
    return tuple(Column(spec.name, _DTYPES[spec.dtype], tuple(spec.shape)) for spec in boundary)


def check_devices(config: Config) -> None:
    """Refuse a device that is not available, before anything is stored."""
    for side in (config.client, config.server):
        pick_device(side.device)


def check_parts(config: Config) -> None:
    """Refuse parts from outside that are not installed or do not take their settings, before anything is stored."""
    prepare(config.client.encoding)
    masking = config.client.masking
    if masking.is_on:
        mode_for(masking, GroupKey("", b""))
    with isolated_rng(Stream(config.seed, "parts")):  # layers and parts from outside may draw their first values
        for side in (config.client, config.server):
            make_loss(side, torch.device("cpu"))
            make_schedule(side)
            make_optimizer(nn.Linear(1, 1), side)
    path, args = config.store.place
    if path:  # not made: it may create what it needs
        check_settings_of(path, args, "root", "owner")


def warn_of_seeds(config: Config) -> None:
    """Warn that keys derived from the seed hide nothing."""
    client = config.client
    if client.keys == "seeded" and (client.masking.is_on or client.noise.is_on):
        _log.warning(
            "client.keys = 'seeded' lets anybody who knows the seed, the server too, compute codebook and noise: for "
            "experiments only."
        )


def check_same_settings(stored: Config, given: Config | None, path: Path) -> Config:
    """Return the stored settings, after checking that any given ones agree with them."""
    if given is not None and given != stored:
        kept, asked, odd = _flat(stored), _flat(given), []
        for key, value in kept.items():
            if value != asked[key]:
                odd.append(f"{key} is {value!r}, given {asked[key]!r}")
        raise ConfigError(
            f"{path} was made with other settings ({'; '.join(odd)}). They are part of what exactness is relative to: "
            "reopen it without a config, or start a new run."
        )
    return stored


def _flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return all settings by their full names."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        name, value = f"{prefix}{field.name}", getattr(config, field.name)
        flat |= _flat(value, f"{name}.") if dataclasses.is_dataclass(value) else {name: value}
    return flat


def drawn(half: nn.Module, stream: Stream) -> dict[str, Tensor]:
    """Draw a client's own initial weights, for the independent initialisation."""
    fresh = copy.deepcopy(half)
    with isolated_rng(stream):
        for name, module in fresh.named_modules():
            if next(module.parameters(recurse=False), None) is None:
                continue
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
            else:
                raise ConfigError(
                    f"init = 'independent' cannot re-initialise {name or 'the client half'} ({type(module).__name__} "
                    "has no reset_parameters); use init = 'shared'."
                )
    return dict(fresh.state_dict())
