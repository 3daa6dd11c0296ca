"""``splitwiper verify``: recompute, and compare bit for bit; or check a certificate, with or without the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splitwiper.cli import certificate, show
from splitwiper.cli.exits import OUTCOMES, when_interrupted
from splitwiper.cli.opening import open_run
from splitwiper.cli.progress import Bars
from splitwiper.cli.unlearn import Json
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from splitwiper.federation import Federation
    from splitwiper.wire import Receipt


def verify(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN|CERT", help="The run folder, or a certificate file.", show_default=False),
    ],
    receipt: Annotated[
        str | None,
        typer.Argument(
            metavar="RECEIPT",
            help="A receipt file, or a ticket (its first characters will do). Without it: the whole run as it is.",
            show_default=False,
        ),
    ] = None,
    keys: Annotated[
        list[Path] | None,
        typer.Option(
            "--key",
            metavar="PUB",
            help="A public key that may have signed the certificate, or a folder of them. May be repeated.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--run", metavar="RUN", help="The run that the certificate is about: recompute it too."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head", metavar="SIZE:HASH", help="A ledger head kept outside the run: notices an older copy of the run."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that rows are gone, the state follows from the rest, the history only grew.

    Everything is recomputed from the surviving data and compared bit for bit.

    The exit code is 0 only if all is exact; 3 on a mismatch, 4 if the numerics
    here are not comparable, 5 if it cannot be verified any more.

    A certificate is checked offline with the signer's public key: signature,
    form and ledger. With --run it is recomputed as well, and may be signed by
    any key of that run unless --key says which. A folder of keys may hold what
    was said of them, so that keys that were revoked do not count. Evidence that
    a server kept two ledgers (evidence-….json) is checked in the same way; the
    exit code is 3 if it proves that.

    Example:
      splitwiper verify runs/ward
      splitwiper verify runs/ward bird.json
      splitwiper verify runs/ward --head 12:5d4140…
      splitwiper verify bird.cert --key server.pem
      splitwiper verify bird.cert --run runs/ward
      splitwiper verify evidence-0f3a.json --key sites/north/north/server-keys
    """
    if run.exists() and not run.is_dir():
        if receipt is not None:
            raise InputError(f"{run} is a file: give the run first ('splitwiper verify RUN {run.name}'), or it alone.")
        certificate.verify(run, keys or [], store, as_json=as_json)
    if keys or store is not None:
        raise InputError(f"--key and --run go with a certificate file, and {run} is none.")
    with Bars(quiet=as_json) as bars, when_interrupted("Verifying changes nothing: run it again."):
        federation = open_run(run, bars)
        chosen = _find(federation, receipt) if receipt is not None else None
        found = federation.verify(chosen, head=head)
    if as_json:
        show.emit(
            {
                "run": run,
                "ticket": chosen.ticket if chosen else None,
                "exact": found.exact,
                "outcome": found.outcome,
                "reason": found.reason,
                "claims": found.claims,
                "head": str(federation.head()),
                "checks": found.checks,
            }
        )
    else:
        show.verdict(show.output(), found)
    raise typer.Exit(OUTCOMES[found.outcome])


def _find(federation: Federation, text: str) -> Receipt:
    """The receipt in a file, or the one whose ticket starts with ``text``."""
    from splitwiper.wire import Receipt

    path = Path(text)
    if path.is_file() or path.suffix or len(path.parts) > 1:
        return Receipt.load(path)
    tickets = federation.status().tickets
    fitting = [ticket for ticket in tickets if text and ticket.id.startswith(text)]
    if len(fitting) > 1:
        raise InputError(f"{len(fitting)} tickets start with {text!r}; give more characters.")
    if not fitting:
        raise NotFoundError(
            f"there is no receipt file and no ticket {text!r}; 'splitwiper status {federation.path}' lists the tickets."
        )
    if fitting[0].state != "settled":
        raise NotFoundError(
            f"ticket {text!r} has no receipt yet: it waits. Run 'splitwiper settle {federation.path}' first."
        )
    return federation.receipt(fitting[0].id)
