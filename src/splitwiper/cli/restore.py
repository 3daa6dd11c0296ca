"""``splitwiper restore`` at the server, and ``splitwiper accept-restore`` at each site: continue from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import INTERRUPTED
from splitwiper.cli.join import SiteFolder
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import look_here
from splitwiper.cli.unlearn import Json, on_terminal
from splitwiper.errors import InputError

_LONGEST = 200


def restore(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The server's folder.", show_default=False)],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; every site is shown it.")],
    as_json: Json = False,
) -> None:
    """Put on record that a store was restored from a backup, before it is served.

    Stop the server, put the backup in place, run this, start the server. The
    ledger gets a signed entry. Sites that know a longer ledger than the backup
    had refuse to go on until somebody there accepts it; sites that know a shorter
    one notice nothing. Without it, sites treat the server as one that cheats.

    Example:
      splitwiper restore store --reason "disk failed on 3 May, backup of 2 May"
    """
    from splitwiper.service.storing import restore as record

    if not reason.strip() or not reason.isprintable() or len(reason) > _LONGEST:
        raise InputError(f"--reason is one line of at most {_LONGEST} characters that sites are shown.")
    made = record(store, reason.strip())
    if as_json:
        output.emit({"store": store, "restored": made})
        return
    output.line(output.output(), f"On record: restored from a backup whose ledger had {made.size} entries.")
    output.line(
        output.output(),
        "Start the server. Sites that know more run 'splitwiper accept-restore', and ask again for what is lost.",
    )


def accept_restore(
    site: SiteFolder,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before going on.")] = False,
    as_json: Json = False,
) -> None:
    """Go on with a server that was restored from a backup.

    Shows the operator's reason and what is lost, and asks. Then this site pins the
    server's ledger, keeps the heads of the one before as evidence, asks again for
    every request that the server no longer knows, and sends its shard again.

    Example:
      splitwiper accept-restore sites/north
    """
    from splitwiper.service.site import Site

    look_here()
    with Bars(quiet=as_json) as bars:
        opened = Site(site, bars)
        try:
            found, known = opened.restored(), opened.guard.pins.newest()
            output.line(output.errors(), f"The operator restored a backup on {found.time}: {found.reason}")
            output.line(
                output.errors(),
                f"Its ledger had {found.size} entries, and this site has seen {known}. What was forgotten in between "
                "is known to the server again until the sites concerned have accepted this.",
            )
            if not yes:
                _confirm()
            kept = opened.accept_restore(found)
        finally:
            opened.close()
    if as_json:
        output.emit({"site": site, "restored": found, "evidence": kept})
        return
    output.line(output.output(), f"Accepted. The heads of the ledger before are in {kept}.")
    output.line(output.output(), f"'splitwiper forget {site}' finishes requests that are still open.")


def _confirm() -> None:
    if not on_terminal():
        raise InputError("this needs a person's consent: add --yes to go on without being asked.")
    if not typer.confirm("Go on with this server?", err=True):
        output.line(output.errors(), "Nothing was changed.")
        raise typer.Exit(INTERRUPTED)
