"""``splitwiper forget``: have rows forgotten at a client's site, and by its server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.certificate import leave_with_worst, print_certified, write_certificate
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.join import say_retrying
from splitwiper.cli.options import Classes, Everything, Json, ReceiptFile, Samples, SiteFolder, Yes, confirm_everything
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import open_site
from splitwiper.errors import InputError, NotFoundError, RequestError

if TYPE_CHECKING:
    from splitwiper.service.site import Certified, Site
    from splitwiper.wire import Receipt

CertificateFile = Annotated[
    Path | None, typer.Option("--certificate", metavar="FILE", help="Write the certificate here, for outsiders.")
]


@dataclass
class Forgotten:
    """What came of one call of the command."""

    ticket: str = ""
    """The request that it made, or whose receipt and certificate are wanted; empty if there is none."""
    estimate: Mapping[str, Any] | None = None
    proofs: Mapping[str, Certified] = field(default_factory=dict)
    receipt: Receipt | None = None
    trouble: str = ""


def forget(
    site: SiteFolder,
    classes: Classes = None,
    samples: Samples = None,
    everything: Everything = False,
    receipt: ReceiptFile = None,
    certificate: CertificateFile = None,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Longest time to retry and wait, in seconds.")
    ] = 600.0,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Forget rows at this client, and have the server forget them.

    They are suppressed here first, immediately and permanently, even if the server
    cannot be reached; the command then retries until the server has answered. Without
    --class, --sample or --everything, the command finishes earlier requests and fetches
    their certificates.

    The certificate is checked against what this site signed and sent, and against
    the model that answers it. The exit code is 0 only if every check holds, and 3
    if one fails.

    Example:
      splitwiper forget sites/north --class bird --certificate bird.json
      splitwiper forget sites/north
    """
    from splitwiper.service.site import resuming

    if sum((bool(classes), bool(samples), everything)) > 1:
        raise InputError("name one thing to forget: --class, --sample or --everything.")
    if everything and not yes:
        confirm_everything(f"Everything that was ever sent from {site} will be forgotten. This cannot be undone.")
    advice = f"What was suppressed stays suppressed: 'splitwiper forget {site}' finishes the request."
    done = Forgotten()
    with Bars(quiet=as_json) as bars, when_interrupted(advice), open_site(site, bars) as opened:
        if classes or samples or everything:
            names = _as_labelled(opened, classes)
            done.estimate = opened.estimate()  # before the request, which would count as waiting
            if not as_json:
                _print_estimate(done.estimate)
            done.ticket = _request(opened, names, samples, everything)
        opened.settle(patience=patience, on_retry=say_retrying(patience))
        _finish(opened, done, patience, wanted=bool(receipt or certificate))
    if done.receipt is not None and receipt is not None:
        done.receipt.save(receipt)
    if done.ticket and certificate is not None:
        write_certificate(certificate, done.proofs[done.ticket])
    _report(opened, done, certificate, as_json=as_json)
    resuming.finish(opened)  # all that was asked for is delivered: the next call is a new one
    leave_with_worst(done.proofs.values())


def _as_labelled(site: Site, classes: list[str] | None) -> list[str | int] | None:
    """Return classes as rows are labelled: integers where labels are."""
    if not classes:
        return None
    held = {str(label.name): label.name for label in site.client.labels()}
    return [held.get(name, name) for name in classes]


def _print_estimate(estimate: Mapping[str, Any] | None) -> None:
    """Say what is asked of the server, before it is asked."""
    if estimate is None:
        output.note("The server gave no estimate of how long this takes; the request is sent anyway.")
        return
    seconds = estimate["training_seconds"]
    took = f"which took {output.seconds(seconds)} the last time" if seconds is not None else "for the first time"
    waiting = f", together with {output.plural(estimate['waiting'], 'waiting request')}" if estimate["waiting"] else ""
    output.note(
        f"The server re-trains{waiting}, {took}. No other client is contacted. The request must be "
        f"settled within {estimate['deadline_days']:g} days."
    )


def _request(opened: Site, classes: list[str | int] | None, samples: list[int] | None, everything: bool) -> str:
    """Suppress rows and make the request, or find the one that an interrupted run of this command made."""
    from splitwiper.service.site import resuming

    try:
        return resuming.forget(opened, classes=classes, samples=samples or None, everything=everything)
    except RequestError as problem:
        waiting = opened.client.store.requests("open", "sent")
        if not waiting:
            raise
        raise RequestError(
            f"{problem} A request is waiting already (ticket {waiting[-1]['ticket'][:8]}): if it is this one, finish "
            f"it with 'splitwiper forget {opened.path}'."
        ) from problem


def _finish(opened: Site, done: Forgotten, patience: float, *, wanted: bool) -> None:
    """Wait for what was asked for, and fetch its certificates.

    Args:
        opened: the site.
        done: is completed.
        patience: seconds to wait for each request.
        wanted: whether a receipt or certificate is to be written, so that there must be a request.
    """
    if done.ticket:
        done.receipt = opened.await_receipt(done.ticket, patience=patience)
        done.proofs = {done.ticket: opened.certificate(done.ticket)}
    else:
        settled = {ticket.id for ticket in opened.requests() if ticket.state == "settled"}
        # the site's own list of requests, because a server may lose some
        for request in opened.client.store.requests("open", "sent", "done"):
            if request["ticket"] not in settled:
                opened.await_receipt(request["ticket"], patience=patience)
        done.proofs = opened.certificates(missing=True)
        if wanted:
            done.ticket = _finished_ticket(opened, done.proofs)
            done.proofs = done.proofs or {done.ticket: opened.certificate(done.ticket)}
            done.receipt = opened.await_receipt(done.ticket, patience=patience)
    done.trouble = opened.client.trouble()


def _finished_ticket(opened: Site, proofs: Mapping[str, Certified]) -> str:
    """Return the request whose receipt and certificate are wanted where none was named: the one finished just now.

    Raises:
        InputError: several were.
        NotFoundError: the site has made no request.
    """
    if len(proofs) > 1:
        raise InputError(
            f"{len(proofs)} requests were finished, and their certificates are kept in "
            f"{opened.kept_certificate('x').parent}; --certificate and --receipt take one. 'splitwiper certificate "
            f"{opened.path} TICKET --out FILE' writes one of them: {', '.join(ticket[:8] for ticket in proofs)}."
        )
    if proofs:
        return next(iter(proofs))
    settled = [ticket.id for ticket in opened.requests() if ticket.state == "settled"]
    if not settled:
        raise NotFoundError(f"{opened.path} has asked to forget nothing: name a --class, --sample or --everything.")
    return settled[-1]


def _report(opened: Site, done: Forgotten, certificate: Path | None, *, as_json: bool) -> None:
    if done.trouble:
        output.note(f"Note: {done.trouble}")
    if not as_json:
        for ticket, proof in done.proofs.items():
            print_certified(ticket, proof.checked)
        if not done.proofs:
            output.say("Nothing is left to do.")
        elif certificate is not None:
            keys = opened.path / opened.config.name / "server-keys"
            output.say(f"Check it: splitwiper verify {certificate} --key {keys}")
        return
    fields: dict[str, Any] = {
        "site": opened.path,
        "ticket": done.ticket,
        "estimate": done.estimate,
        "trouble": done.trouble,
        "certificates": {ticket: proof.checked.outcome for ticket, proof in done.proofs.items()},
    }
    if done.receipt is not None:
        checked = done.proofs[done.ticket].checked
        fields |= {
            "receipt": done.receipt.to_dict(),
            "certificate": checked.outcome,
            "checks": checked.to_dict()["checks"],
        }
    output.emit(fields)
