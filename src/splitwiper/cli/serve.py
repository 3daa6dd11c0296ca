"""``splitwiper serve`` and ``restore``: the server, for clients that are elsewhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.options import LONGEST_REASON, Json, is_reason
from splitwiper.cli.runs import look_here
from splitwiper.errors import InputError


def serve(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The server's TOML file.", show_default=False)],
    store: Annotated[
        Path, typer.Option("--store", metavar="DIR", help="The server's folder; created on the first start.")
    ],
    host: Annotated[str, typer.Option("--host", help="Overrides the file's host.", show_default=False)] = "",
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Overrides the file's port.")] = None,
) -> None:
    """Serve clients over HTTPS: take shards, train, predict, forget.

    Clients open all connections and are identified by their certificates ('splitwiper
    certs' makes them). Training runs in a process of its own. The file has seed,
    [model], [server] and [service]; clients' settings are in their own files. Stop it
    with Ctrl-C or SIGTERM: calls in progress are finished, and interrupted training is
    repeated after the next start. Logs are JSON lines on standard error.

    Example:
      splitwiper certs init certs --name ward --host splitwiper.example.org
      splitwiper serve server.toml --store store
    """
    from splitwiper.service.logs import to_stderr
    from splitwiper.service.running import serve as run
    from splitwiper.service.storing import read_server

    look_here()
    settings = read_server(config)
    service = settings.service
    service = dataclasses.replace(service, host=host or service.host, port=service.port if port is None else port)
    settings = dataclasses.replace(settings, service=service)
    to_stderr()  # only now: what is wrong with the settings is said as an error, and not as a log line
    run(store, settings, config=config, ready=lambda url: output.say(f"Serving {url}"))


def restore(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The server's folder.", show_default=False)],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason; every site sees it.")],
    as_json: Json = False,
) -> None:
    """Put on record that a store was restored from a backup, before it is served.

    Stop the server, put the backup in place, run this, start the server. The
    ledger gets a signed entry. Sites that know a longer ledger than the backup
    had refuse to continue until somebody there accepts it; sites that know a shorter
    one notice nothing. Without this entry, sites treat the server as dishonest.

    Example:
      splitwiper restore store --reason "disk failed on 3 May, backup of 2 May"
    """
    from splitwiper.service.storing import restore as record

    if not is_reason(reason):
        raise InputError(f"--reason is one line of at most {LONGEST_REASON} characters, which sites see.")
    restored = record(store, reason.strip())
    if as_json:
        output.emit({"store": store, "restored": restored})
        return
    output.say(f"On record: restored from a backup whose ledger had {restored.size} entries.")
    output.say(
        "Start the server. Sites that know more run 'splitwiper accept-restore', and ask again for what is lost."
    )
