"""Creating a client's folder: settings, first weights, key, and what federation it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from splitwiper.config import ClientConfig, config_digest, to_toml
from splitwiper.seeding import seeded_key
from splitwiper.store import ClientStore


def create_client(
    folder: Path,
    config: ClientConfig,
    *,
    initial: Mapping[str, Tensor],
    seed: int,
    federation: str,
    network: str,
    task: str = "",
    group: bytes | None = None,
    **more: str,
) -> ClientStore:
    """Create a client's folder, named after the client, and return its store. An existing one is kept.

    ``network`` is the identity of the client half; ``more`` are further values for the client's database.
    """
    store = ClientStore(folder)
    store.create(
        config=to_toml(config),
        initial=initial,
        meta={
            "name": folder.name,
            "task": task,
            "seed": str(seed),
            "config": config_digest(config, seed=seed),
            "federation": federation,
            "model": network,
            **more,
        },
        key=seeded_key(seed, folder.name) if config.keys == "seeded" else None,
        group=group,
    )
    return store
