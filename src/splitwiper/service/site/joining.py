"""Joining a federation: ask its server for the settings it was made with, and create the client's site."""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from safetensors.torch import load

from splitwiper.client.context import create_client
from splitwiper.config import ClientConfig, Config, from_dict, read_toml, to_toml
from splitwiper.errors import ConfigError, InputError
from splitwiper.federation.build import build_halves
from splitwiper.progress import Progress
from splitwiper.service.site.config import FILE, SiteConfig, check_name, connect, read_site
from splitwiper.service.site.invited import first_key, take_key
from splitwiper.service.site.site import Site
from splitwiper.splitting import Halves, identity, libraries
from splitwiper.store import files

_SAME = "Set it as it was, or join in a new folder."


def join(
    folder: Path,
    config: SiteConfig,
    client: ClientConfig,
    *,
    invitation: str | None = None,
    progress: Progress | None = None,
) -> Site:
    """Create a client's site, or open the existing one.

    The seed is taken from the server, which never learns the client's own settings. The invitation is the group's
    secret, if labels are hidden: all clients have it, and the server does not. A site that joined with another secret
    changes to this one, unless it has already agreed on labels.

    Raises:
        ConfigError: labels are to be hidden without a secret, or there is a secret although they are not. Or the folder
            is another client's, or joined with other settings.
        InputError: the client's half is not the one that the federation was made with.
    """
    if (folder / FILE).exists():
        _keep_up(folder, config, client)
        site = Site(folder, progress)
        if invitation is not None:
            take_key(site.client, invitation)
        return site
    check_name(folder, config)
    with closing(connect(folder, config)) as link:
        made, first = link.federation(), load(link.initial())  # tensors alone: nothing from the server is executed
    config = dataclasses.replace(config, seed=int(made["seed"]))
    halves = build_halves(Config(seed=config.seed, model=config.model, client=client))
    _check(halves, made, client)
    federation = str(made["run"])
    group = first_key(client, invitation, federation=federation, seed=config.seed)
    files.make_folder(folder)
    create_client(
        folder / config.name,
        client,
        initial=first,
        seed=config.seed,
        federation=federation,
        network=made["architecture"],
        task=config.task,
        group=group,
        columns=json.dumps(made["columns"]),
    )
    files.write_bytes(folder / FILE, to_toml(config).encode())  # last: it marks the site as made
    site = Site(folder, progress)
    site.register()
    return site


def _keep_up(folder: Path, config: SiteConfig, client: ClientConfig) -> None:
    """Store a changed server address or credentials; refuse settings that a site cannot change after joining."""
    joined = read_site(folder)
    kept = from_dict(ClientConfig, read_toml(folder / joined.name / "config.toml"))
    for name, before, now in (("name", joined.name, config.name), ("task", joined.task, config.task)):
        if before != now:
            raise ConfigError(f"{name} = {now!r}, and {folder} joined with {before!r}. {_SAME}")
    for table, old, new in (("[model]", joined.model, config.model), ("[client]", kept, client)):
        if old != new:
            raise ConfigError(f"{table} is not what {folder} joined with: {_differing(old, new)}. {_SAME}")
    wanted = dataclasses.replace(config, seed=joined.seed)
    if wanted != joined:
        files.write_bytes(folder / FILE, to_toml(wanted).encode())


def _differing(before: Any, now: Any) -> str:
    """Describe the first setting that differs."""
    for field in dataclasses.fields(before):
        old, new = getattr(before, field.name), getattr(now, field.name)
        if old != new:
            return f"{field.name} was {old!r}, and is {new!r} now"
    return ""


def _check(halves: Halves, made: dict[str, Any], client: ClientConfig) -> None:
    """Refuse a half or a codec that is not what the federation was made with."""
    if made["at"] != halves.at:
        raise InputError(
            f"the client half is not what the federation was made with (the cut is at {made['at']!r} there, at "
            f"{halves.at!r} here): take the model's settings from its operator."
        )
    if made["architecture"] != identity(halves.client):
        raise InputError(
            "the client half is not what the federation was made with: the model's settings, code or constants "
            f"differ, or the version of a library it comes from{libraries(halves.client)}. Take them from its operator."
        )
    if made["codec"] != client.encoding:
        raise InputError(
            f"this federation's activations are written as {made['codec']!r}: set client.codec to that. (Here it is "
            f"{client.encoding!r}.)"
        )
