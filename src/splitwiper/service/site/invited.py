"""The group's secret at a client's site: made by one client, and passed to the others over a channel of their own.

It hides labels from the server and its operator, so it is independent of certificates: their issuer must not have it.
"""

from __future__ import annotations

from pathlib import Path

from splitwiper.client import Client
from splitwiper.config import ClientConfig
from splitwiper.errors import ConfigError, NotFoundError
from splitwiper.masking.sealing import GroupKey, check_sealing, invitation
from splitwiper.seeding import seeded_key
from splitwiper.store import files
from splitwiper.store.keys import check_private

_HOW = (
    "one client makes it (splitwiper group FILE), all others get a copy over a channel that neither the server nor its "
    "operator can see, and each joins with it (join --group FILE)"
)


def make_secret(path: Path) -> None:
    """Write a fresh secret, readable only by its owner."""
    check_sealing()
    if path.exists():
        raise ConfigError(
            f"{path} is there already: a group whose key is replaced cannot read what it said. Name another."
        )
    files.make_folder(path.resolve().parent)
    # never over a file that another process has just written: two halves of a group would have two secrets
    files.write_bytes(path, f"{invitation()}\n".encode(), replace=False)


def read_secret(path: Path) -> str:
    """Return the secret in a file.

    Raises:
        NotFoundError: there is no such file.
        IdentityError: others may read it.
        ConfigError: it does not contain a secret.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no group key {path}: {_HOW}.")
    check_private(path, remedy="if somebody may have, make another group with 'splitwiper group'")
    try:
        secret = path.read_text(encoding="ascii").strip()
    except UnicodeDecodeError as problem:
        raise ConfigError(f"{path} is not a group key: {_HOW}.") from problem
    GroupKey.of(secret, federation="")  # reports too short a secret before anything is made
    return secret


def first_key(client: ClientConfig, secret: str | None, *, federation: str, seed: int) -> bytes | None:
    """Return the group key that a client joins with; None if it hides no labels."""
    if not client.masking.is_on:
        if secret is not None:
            raise ConfigError("client.masking is not set, so the group key would hide nothing: set its mode.")
        return None
    check_sealing()
    if secret is not None:
        return GroupKey.of(secret, federation=federation).raw
    if client.keys == "seeded":
        return seeded_key(seed, "@group")
    raise ConfigError(f"hidden labels need a key that all clients of the group share: {_HOW}.")


def take_key(client: Client, secret: str) -> None:
    """Give a client that has already joined the group's key, if it has another one."""
    raw = first_key(client.config, secret, federation=client.store.database.meta("federation") or "", seed=client.seed)
    if raw is None or raw == client.store.group():
        return
    if client.group.has_codebook():
        raise ConfigError(
            f"client {client.name!r} has agreed on labels under another group key: leave this one out, or join in a "
            "new folder with it."
        )
    files.write_bytes(client.store.root / "group", raw.hex().encode())
