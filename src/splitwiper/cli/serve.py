"""``splitwiper serve``: the server, for clients that are elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.runs import look_here

Store = Annotated[Path, typer.Option("--store", metavar="DIR", help="The server's folder; made on the first start.")]


def serve(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The server's TOML file.", show_default=False)],
    store: Store,
    host: Annotated[str, typer.Option("--host", help="In place of the file's own.", show_default=False)] = "",
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="In place of the file's own.")] = None,
) -> None:
    """Serve clients over HTTPS: take shards, train, predict, forget.

    Clients open all connections and are known by their certificates ('splitwiper
    certs' makes them). Training runs in a process of its own. The file has
    seed, [model], [server] and [service]; clients' settings are in their own files.
    Stop it with Ctrl-C or SIGTERM: unfinished work is completed, or started again by
    the next start. Logs are JSON lines on standard error.

    Example:
      splitwiper certs init certs --name ward --host splitwiper.example.org
      splitwiper serve server.toml --store store
    """
    import dataclasses

    from splitwiper.service.logs import to_stderr
    from splitwiper.service.running import serve as run
    from splitwiper.service.storing import read_server

    look_here()
    settings = read_server(config)
    own = settings.service
    own = dataclasses.replace(own, host=host or own.host, port=own.port if port is None else port)
    settings = dataclasses.replace(settings, service=own)
    to_stderr()
    run(store, settings, config=config, ready=lambda url: output.line(output.output(), f"Serving {url}"))
