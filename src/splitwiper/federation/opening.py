"""Opening a run: settings and halves must be those the run was created with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from torch import Tensor

from splitwiper.config import Config
from splitwiper.errors import InputError
from splitwiper.federation.folder import columns_of, identities, without_output_layer
from splitwiper.federation.registry import ClientRegistry
from splitwiper.numerics import isolated_call
from splitwiper.server import Server
from splitwiper.splitting import Halves, libraries


class _Opened(Protocol):
    """An object that works on an open run."""

    _registry: ClientRegistry


_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S", bound=_Opened)


def public_call(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Make a method check first that run and halves are unchanged since opening, and run it isolated."""

    @wraps(method)
    def checked(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with isolated_call(), self._registry.call():
            return method(self, *args, **kwargs)

    return checked


def check_halves(path: Path, halves: Halves, config: Config, server: Server) -> None:
    """Check that the given halves are those the run was created with, whatever their weights."""
    for side, half, kept in (
        ("server", halves.server, server.store.initial()),
        ("client", halves.client, server.store.client_initial()),
    ):
        weights = half.state_dict()
        if half is halves.server and config.client.masking.is_on:
            weights = without_output_layer(halves.server, weights)
        now, then = _shapes(weights), _shapes(kept)
        if now != then:
            odd = sorted({name for name, _ in now ^ then})
            raise InputError(
                f"the {side} half does not fit this run: {', '.join(odd[:3])} differ. Reopen {path} with the "
                "model and cut it was made with."
            )
    if columns_of(halves.boundary) != server.columns:
        raise InputError(f"the cut at {halves.at!r} sends other tensors than this run was made with.")
    if (at := server.store.database.meta("at")) != halves.at:
        raise InputError(f"this run was made with the cut at {at!r}, not at {halves.at!r}: cut it there.")
    for side, (name, found) in zip(("client", "server"), identities(halves).items(), strict=True):
        if found != server.store.database.meta(name):
            half = halves.client if side == "client" else halves.server
            raise InputError(
                f"the {side} half is not the network that {path} was made with: weights have the same "
                "shapes, but the model's code or constants differ, or the version of a library it comes from"
                f"{libraries(half)}. Reopen the run with the model and the libraries as they were."
            )


def _shapes(state: Mapping[str, Tensor]) -> set[tuple[str, tuple[int, ...]]]:
    return {(name, tuple(tensor.shape)) for name, tensor in state.items()}


def check_settings(path: Path, registry: ClientRegistry) -> None:
    """Check federation.toml against the databases of the server and one client."""
    if whose := registry.altered_settings():
        names = ", ".join(registry.outside_parts())
        changed = (
            f" Or the code or the version of {names} has changed: install what the run was made with." if names else ""
        )
        raise InputError(
            f"{path}: {whose} part of federation.toml is not what this run was made with: bring back the settings as "
            f"they were. Other settings need a new run.{changed}"
        )
