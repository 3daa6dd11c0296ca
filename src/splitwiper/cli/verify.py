"""``splitwiper verify``: recompute, and compare bit for bit; or check a certificate, with or without the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from splitwiper.cli import certificate, output
from splitwiper.cli.exit_codes import OUTCOMES, when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import look_here, open_run
from splitwiper.cli.unlearn import Json
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from splitwiper.federation import Federation
    from splitwiper.wire import Receipt


def verify(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|SITE|STORE|CERT",
            help="A run, a site's or server's folder, or a certificate file.",
            show_default=False,
        ),
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
    attesters: Annotated[
        list[Path] | None,
        typer.Option(
            "--attester",
            metavar="PUB",
            help="The public key of a site or auditor whose attestations count, or a folder. May be repeated.",
        ),
    ] = None,
    of_run: Annotated[
        Path | None,
        typer.Option("--run", metavar="RUN", help="The run that the certificate is about: recompute it too."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head", metavar="SIZE:HASH", help="A ledger head kept outside the run: notices an older copy of the run."
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="STORE", help="The server's folder: recompute the server half from it."),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option("--site", metavar="SITE", help="The requester's folder: recompute its half and shard, too."),
    ] = None,
    attest: Annotated[
        bool, typer.Option("--attest", help="Sign what the site recomputed, and send that to its server.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that rows are gone, the state follows from the rest, the history only grew.

    Everything is recomputed from the surviving data and compared bit for bit.

    The exit code is 0 only if all is exact; 3 on a mismatch, 4 if the numerics
    here are not comparable, 5 if it cannot be verified any more.

    A site's folder gives its half and shard, a server's folder its records and
    the server half; nothing is changed, and nobody is asked. A certificate is
    checked offline with the signer's public key: signature, form, ledger, and
    what those attest to whose keys are given as --attester. With --run, or with
    --store and --site, it is recomputed as well, and may be signed by any key
    of that server unless --key says which. A folder of keys may hold statements
    about them, so that revoked keys do not count. Evidence that a
    server kept two ledgers (evidence-….json) is checked in the same way; the
    exit code is 3 if it proves that.

    Example:
      splitwiper verify runs/ward
      splitwiper verify runs/ward bird.json
      splitwiper verify runs/ward --head 12:5d4140…
      splitwiper verify sites/north --attest
      splitwiper verify bird.cert --key server.pem --attester auditor.pem
      splitwiper verify bird.cert --store store --site sites/north
      splitwiper verify evidence-0f3a.json --key sites/north/north/server-keys
    """
    against = certificate.Against(keys or (), attesters or (), of_run, store, site)
    if run.exists() and not run.is_dir():
        if receipt is not None:
            raise InputError(
                f"{run} is a file: give the run first ('splitwiper verify RUN {run.name}'), or only the file."
            )
        if site is not None and store is None:
            raise InputError("--site goes with --store: the site alone is 'splitwiper verify SITE'.")
        if attest:
            raise InputError("--attest goes with a site's folder: splitwiper verify SITE --attest.")
        certificate.verify(run, against, as_json=as_json)
    if against != certificate.Against():
        if not run.exists():
            raise NotFoundError(f"there is no certificate {run}.")
        raise InputError(
            f"--key, --attester, --run, --store and --site go with a certificate file, and {run} is not one."
        )
    if (run / "site.toml").exists() or (run / "server.db").exists():
        if receipt is not None:
            raise InputError(f"{run} is not a run: give only its folder, or a certificate with --store and --site.")
        _folder(run, attest=attest, as_json=as_json)
    if attest:
        raise InputError(f"--attest goes with a site's folder, and {run} is not one.")
    with Bars(quiet=as_json) as bars, when_interrupted("Verifying changes nothing: run it again."):
        federation = open_run(run, bars)
        chosen = _find(federation, receipt) if receipt is not None else None
        found = federation.verify(chosen, head=head)
    if as_json:
        output.emit(
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
        output.verdict(output.output(), found)
    raise typer.Exit(OUTCOMES[found.outcome])


def _folder(folder: Path, *, attest: bool, as_json: bool) -> NoReturn:
    """Recompute a site, or a server's store, and leave with the outcome's code."""
    from splitwiper.service.site import Site
    from splitwiper.service.site.verifying import fingerprint_of, verify_site
    from splitwiper.service.verification import verify_store

    look_here()
    is_site = (folder / "site.toml").exists()
    if attest and not is_site:
        raise InputError(
            f"--attest goes with a site's folder; {folder} is a server's. Auditors use 'splitwiper audit'."
        )
    with Bars(quiet=as_json) as bars, when_interrupted("Verifying changes nothing: run it again."):
        site = Site(folder, bars) if is_site else None
        found = verify_site(site) if site else verify_store(folder)
        if site and attest:
            if found.outcome == "unverifiable":
                raise NotFoundError(f"there is nothing to attest to: {found.reason}.")
            site.attest(found.outcome, fingerprint_of(site))
        if site:
            site.close()
    if as_json:
        kind = "site" if is_site else "store"
        told = {kind: folder, "exact": found.exact, "outcome": found.outcome, "reason": found.reason}
        output.emit({**told, "checks": found.checks, "attested": attest})
    else:
        output.verdict(output.output(), found)
        if attest:
            output.line(output.output(), "Signed, and sent to the server: certificates carry it from now on.")
    raise typer.Exit(OUTCOMES[found.outcome])


def _find(federation: Federation, text: str) -> Receipt:
    """Return the receipt in a file, or the one whose ticket starts with ``text``."""
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
        raise NotFoundError(f"ticket {text!r} has no receipt yet. Run 'splitwiper settle {federation.path}' first.")
    return federation.receipt(fitting[0].id)
