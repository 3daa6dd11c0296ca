"""``splitwiper verify``: recompute, and compare bit for bit; or check a certificate, with or without the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from splitwiper.cli.certificate import Against, verify_file
from splitwiper.cli.exit_codes import helping, when_interrupted
from splitwiper.cli.options import Json
from splitwiper.cli.outcomes import conclude
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import is_site, look_here, open_run, open_site
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from splitwiper.federation import Federation
    from splitwiper.wire import Receipt

_ADVICE = "Verifying changes nothing: run it again."

Verifiable = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|SITE|STORE|CERT",
        help="A run, a site's or server's folder, or a certificate file.",
        show_default=False,
    ),
]
ReceiptOf = Annotated[
    str | None,
    typer.Argument(
        metavar="RECEIPT",
        help="A receipt file, or a ticket (its first characters will do). Without it: the whole run as it is.",
        show_default=False,
    ),
]
Keys = Annotated[
    list[Path] | None,
    typer.Option(
        "--key",
        metavar="PUB",
        help="A public key that may have signed the certificate, or a folder of them. May be repeated.",
    ),
]
Attesters = Annotated[
    list[Path] | None,
    typer.Option(
        "--attester",
        metavar="PUB",
        help="The public key of a site or auditor whose attestations count, or a folder. May be repeated.",
    ),
]
OfRun = Annotated[
    Path | None, typer.Option("--run", metavar="RUN", help="The run that the certificate is about: recompute it too.")
]
KeptHead = Annotated[
    str | None,
    typer.Option(
        "--head", metavar="SIZE:HASH", help="A ledger head kept outside the run: notices an older copy of the run."
    ),
]
OfStore = Annotated[
    Path | None,
    typer.Option("--store", metavar="STORE", help="The server's folder: recompute the server half from it."),
]
OfSite = Annotated[
    Path | None,
    typer.Option("--site", metavar="SITE", help="The requester's folder: recompute its half and shard, too."),
]
Attest = Annotated[bool, typer.Option("--attest", help="Sign what the site recomputed, and send that to its server.")]


@helping("""
    Example:
      splitwiper verify runs/ward
      splitwiper verify runs/ward bird.json
      splitwiper verify runs/ward --head 12:5d4140…
      splitwiper verify sites/north --attest
      splitwiper verify bird.cert --key server.pem --attester auditor.pem
      splitwiper verify bird.cert --store store --site sites/north
      splitwiper verify evidence-0f3a.json --key sites/north/north/server-keys
""")
def verify(
    run: Verifiable,
    receipt: ReceiptOf = None,
    keys: Keys = None,
    attesters: Attesters = None,
    of_run: OfRun = None,
    head: KeptHead = None,
    store: OfStore = None,
    site: OfSite = None,
    attest: Attest = False,
    as_json: Json = False,
) -> None:
    """Check that rows are gone, the state follows from the rest, the history only grew.

    Everything is recomputed from the surviving data and compared bit for bit.

    The exit code is 0 only if all is exact; 3 on a mismatch, 4 if the numerics
    here are not comparable, 5 if it cannot be verified any more.

    A site's folder gives its half and shard, a server's folder its records and
    the server half; nothing is changed, and nobody is asked. A certificate is
    checked offline with the signer's public key: its signature, its form, its
    ledger proofs, and the attestations signed with the keys given as --attester.
    With --run, or with --store and --site, it is recomputed as well, and may be
    signed by any key of that server unless --key says which. A folder of keys may
    hold statements about them, so that revoked keys do not count. Evidence that a
    server kept two ledgers (evidence-….json) is checked in the same way; the
    exit code is 3 if it proves that.
    """
    against = Against(keys or (), attesters or (), of_run, store, site)
    # what the path is decides what is verified: a file, one side's folder, or else a run
    if run.exists() and not run.is_dir():
        _check_file_options(run, receipt, against, attest)
        verify_file(run, against, as_json=as_json)
    if against != Against():
        if not run.exists():
            raise NotFoundError(f"there is no certificate {run}.")
        raise InputError(
            f"--key, --attester, --run, --store and --site go with a certificate file, and {run} is not one."
        )
    if is_site(run) or (run / "server.db").exists():
        if receipt is not None:
            raise InputError(f"{run} is not a run: give only its folder, or a certificate with --store and --site.")
        _verify_one_side(run, attest=attest, as_json=as_json)
    if attest:
        raise InputError(f"--attest goes with a site's folder, and {run} is not one.")
    _verify_run(run, receipt, head, as_json=as_json)


def _check_file_options(file: Path, receipt: str | None, against: Against, attest: bool) -> None:
    """Refuse options that do not go with a certificate file."""
    if receipt is not None:
        raise InputError(
            f"{file} is a file: give the run first ('splitwiper verify RUN {file.name}'), or only the file."
        )
    if against.site is not None and against.store is None:
        raise InputError("--site goes with --store: the site alone is 'splitwiper verify SITE'.")
    if attest:
        raise InputError("--attest goes with a site's folder: splitwiper verify SITE --attest.")


def _verify_run(run: Path, receipt: str | None, head: str | None, *, as_json: bool) -> NoReturn:
    """Recompute a run, and leave with the outcome's code."""
    with Bars(quiet=as_json) as bars, when_interrupted(_ADVICE):
        federation = open_run(run, bars)
        chosen = _receipt(federation, receipt) if receipt is not None else None
        verification = federation.verify(chosen, head=head)
    fields = {
        "run": run,
        "ticket": chosen.ticket if chosen else None,
        "exact": verification.exact,
        "claims": verification.claims,
        "head": str(federation.head()),
    }
    conclude(verification, fields, as_json=as_json)


def _verify_one_side(folder: Path, *, attest: bool, as_json: bool) -> NoReturn:
    """Recompute a site, or a server's store, and leave with the outcome's code."""
    from splitwiper.service.site.verifying import fingerprint_of, verify_site
    from splitwiper.service.verification import verify_store

    with Bars(quiet=as_json) as bars, when_interrupted(_ADVICE):
        if is_site(folder):
            kind = "site"
            with open_site(folder, bars) as site:
                verification = verify_site(site)
                if attest:
                    if verification.outcome == "unverifiable":  # nothing was recomputed that could be vouched for
                        raise NotFoundError(f"there is nothing to attest to: {verification.reason}.")
                    site.attest(verification.outcome, fingerprint_of(site))
        else:
            kind = "store"
            if attest:
                raise InputError(
                    f"--attest goes with a site's folder; {folder} is a server's. Auditors use 'splitwiper audit'."
                )
            look_here()
            verification = verify_store(folder)
    notes = ["Signed, and sent to the server: certificates carry it from now on."] if attest else []
    fields = {kind: folder, "exact": verification.exact, "attested": attest}
    conclude(verification, fields, as_json=as_json, notes=notes)


def _receipt(federation: Federation, text: str) -> Receipt:
    """Return the receipt in a file, or the one whose ticket starts with ``text``."""
    from splitwiper.wire import Receipt

    path = Path(text)
    if path.is_file() or path.suffix or len(path.parts) > 1:  # no ticket looks so: a missing file is said to be missing
        return Receipt.load(path)
    matching = [ticket for ticket in federation.status().tickets if text and ticket.id.startswith(text)]
    if len(matching) > 1:
        raise InputError(f"{len(matching)} tickets start with {text!r}; give more characters.")
    if not matching:
        raise NotFoundError(
            f"there is no receipt file and no ticket {text!r}; 'splitwiper status {federation.path}' lists the tickets."
        )
    if matching[0].state != "settled":
        raise NotFoundError(f"ticket {text!r} has no receipt yet. Run 'splitwiper settle {federation.path}' first.")
    return federation.receipt(matching[0].id)
