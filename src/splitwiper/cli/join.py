"""``splitwiper join`` and ``group``: become a client of a server that is elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import helping
from splitwiper.cli.options import Json
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import look_here
from splitwiper.errors import ConfigError, check_keys

if TYPE_CHECKING:
    from splitwiper.config import ClientConfig
    from splitwiper.service.site import SiteConfig

# Keys of the client's file that the site remembers; the others are for this call.
_OF_SITE = ("name", "url", "certs", "token", "task", "spot_check", "attesters", "model")
GroupFile = Annotated[
    Path | None,
    typer.Option("--group", metavar="FILE", help="The group's key, where labels are hidden; see 'splitwiper group'."),
]
Members = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="CLIENT", help="Agree on labels with this client, too. May be repeated."),
]


@helping("""
    The file:
      name = "north"                       # as the certificate has it
      url = "https://splitwiper.example.org:8443"
      certs = "certs/north"                # what 'splitwiper certs client' made
      data = "rows.npz"                    # or a .csv file; label = "COLUMN"
      [model]                              # as the server has it
      [client]                             # epochs, slices, codec…

    Example:
      splitwiper join north.toml --site sites/north
      splitwiper join north.toml --site sites/north --group ward.group --with east
""")
def join(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The client's TOML file.", show_default=False)],
    site: Annotated[Path, typer.Option("--site", metavar="DIR", help="The client's own folder; created if missing.")],
    group: GroupFile = None,
    members: Members = None,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Abandon an agreement that somebody never joined, and begin another with --with."),
    ] = False,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to wait for the others, and for a server that is away.")
    ] = 600.0,
    as_json: Json = False,
) -> None:
    """Join a server: pre-train on your own rows, and send the activations once.

    Data, half and keys stay in the site folder. Learning the same rows again
    changes nothing; an interrupted upload continues where it stopped.

    Where labels are hidden, clients first agree on them. Each needs the group's key.
    The first clients name everybody who takes part (--with). A client that joins
    later names nobody and takes the existing agreement, which must contain its
    labels. Clients wait for each other; to continue, run the same command again.
    """
    from splitwiper.client.agreeing import Gathering
    from splitwiper.data.files import read_data
    from splitwiper.service.site import join as make_site
    from splitwiper.service.site.invited import read_secret

    look_here()
    gathering = Gathering(members=members or (), anew=anew, patience=patience, on_wait=output.note)
    settings, client, values = _read(config)
    # the variable may be there for another run; a file is named for this one, and refused where nothing is hidden
    secret = os.environ.get("SPLITWIPER_INVITATION") if client.masking.is_on else None
    if group:
        secret = read_secret(group)
    with Bars(quiet=as_json) as bars:
        bars("reading data", 0, 1)
        rows = read_data(config.parent / values["data"], label=values.get("label") or None)
        with closing(make_site(site, settings, client, invitation=secret, progress=bars)) as opened:
            added = opened.learn(rows, gathering=gathering, patience=patience, on_retry=say_retrying(patience))
    if as_json:
        output.emit({"site": site, "name": settings.name, "url": settings.url, "added": added})
        return
    result = f"learned from {output.plural(added.new, 'row')}" if added.new else "no new rows"
    if added.refused:
        result += f"; {output.plural(added.refused, 'row')} refused, because forgotten rows stay forgotten"
    output.say(f"{settings.name} has joined {settings.url}: {result}.")


def say_retrying(patience: float) -> Callable[[str], None]:
    """Return a function that says what is wrong with the server, and that it is tried again."""
    return lambda text: output.note(f"{text} Trying again for up to {patience:.0f} seconds.")


def _read(path: Path) -> tuple[SiteConfig, ClientConfig, Mapping[str, Any]]:
    """Return what the client's file says of the site and of training, and all of its values."""
    from splitwiper.config import ClientConfig, from_dict, read_toml
    from splitwiper.service.site import SiteConfig

    if not path.is_file():
        raise ConfigError(f"there is no configuration file {path}.")
    values = read_toml(path)
    try:
        check_keys(values, (*_OF_SITE, "client", "data", "label"))
        for key in ("name", "url", "data"):
            if not values.get(key):
                raise ConfigError(f"{key} is missing.")
        of_site = {key: values[key] for key in _OF_SITE if key in values}
        for key in ("certs", "token", "attesters"):  # what the site remembers must hold wherever it is opened from
            if of_site.get(key):
                of_site[key] = str((path.parent / of_site[key]).resolve())
        client = from_dict(ClientConfig, values.get("client", {}), where="client.")
        return from_dict(SiteConfig, of_site), client, values
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from problem


def group(file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.", show_default=False)]) -> None:
    """Make the key that clients of a group share to hide labels from the server.

    One client makes it. Give the others a copy over a channel that neither the
    server nor its operator can see; they join with it. Whoever has it reads all
    labels.

    Example:
      splitwiper group ward.group
    """
    from splitwiper.service.site.invited import make_secret

    make_secret(file)
    output.say(f"{file} has the group's key. Give it to the other clients, and never to the server.")
