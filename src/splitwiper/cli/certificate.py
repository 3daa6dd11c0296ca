"""Certificates on the command line: fetched by ``certificate``, written by ``receipt``, checked by ``verify CERT``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import MISMATCH, OUTCOMES, when_interrupted
from splitwiper.cli.options import Json, SiteFolder
from splitwiper.cli.outcomes import conclude
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import look_here, open_run, open_site
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from splitwiper.checks import Verification
    from splitwiper.service.certificate import Checked
    from splitwiper.service.site import Certified, Site
    from splitwiper.wire import Receipt, Ticket


def write_run_certificate(run: Path, ticket: str, file: Path) -> None:
    """Write the certificate of a settled ticket to a file, and say what checks it."""
    from splitwiper.service.certificate import Keyring, certify_run
    from splitwiper.service.certificate.issuing import to_bytes
    from splitwiper.store import ServerStore, files

    envelope = certify_run(run, ticket)
    files.write_bytes(file, to_bytes(envelope))
    ring = Keyring.of(ServerStore(run / "server"))
    public = {key.id: key for key in ring.public()}
    paths = []
    for signature in reversed(envelope["signatures"]):  # the present key signed last, and is named first
        if (key := public.get(signature["keyid"])) is not None:
            paths.append(ring.path_of(key))
    output.say(f"Certificate: {file}")
    output.say(f"Public key: {', '.join(map(str, paths))}")
    output.say(f"Check it: splitwiper verify {file} --key {paths[0] if paths else 'PUB'}")


@dataclass(frozen=True)
class Against:
    """What a certificate is checked against."""

    keys: Sequence[Path] = ()
    attesters: Sequence[Path] = ()
    run: Path | None = None
    store: Path | None = None
    site: Path | None = None


def verify_file(file: Path, against: Against, *, as_json: bool) -> NoReturn:
    """Check a certificate or evidence of a fork, offline or against folders, and leave with the outcome's code."""
    from splitwiper.service.certificate import read_keys
    from splitwiper.service.certificate.envelope import read_limited
    from splitwiper.service.certificate.heads import KIND, check_evidence

    data = read_limited(file)
    values = _json_object(data)
    if values.get("kind") == KIND:
        conclude(check_evidence(values, read_keys(against.keys)), {"evidence": file}, as_json=as_json)
    if {"ticket", "others", "context"} <= values.keys():  # fields that every receipt has, and no certificate
        raise InputError(f"{file} is a receipt, which takes its run: splitwiper verify RUN {file}.")
    with Bars(quiet=as_json) as bars, when_interrupted("Verifying changes nothing: run it again."):
        checked = _check(data, against, bars)
    contents = checked.certificate
    says = contents.get("says")
    fields = {
        "certificate": file,
        "run": against.run,
        "ticket": contents.get("ticket"),
        "client": contents.get("client"),
        "exact": checked.exact,
        "standing": checked.standing,
        "says": says,
    }
    limits = says.get("does_not_prove", []) if says and checked.holds else []
    conclude(checked, fields, as_json=as_json, notes=map("Note: {}".format, limits))


def _check(data: bytes, against: Against, bars: Bars) -> Checked:
    from splitwiper.service.certificate import check, check_with_store, read_keys, read_public
    from splitwiper.store import ServerStore

    trusted = read_keys(against.keys)
    attesters = [key for path in against.attesters for key in read_public(path)]
    verify: Callable[[Receipt], Verification]
    if against.run is not None:
        verify, server_store = open_run(against.run, bars).verify, ServerStore(against.run / "server")
    elif against.store is not None:
        from splitwiper.service.site import Site
        from splitwiper.service.site.verifying import verify_site
        from splitwiper.service.verification import verify_both

        look_here()
        site = partial(verify_site, Site(against.site, bars)) if against.site is not None else None
        verify, server_store = verify_both(against.store, site), ServerStore(against.store)
    else:
        return check(data, trusted, attesters=attesters)
    # without keys, any key of that server may have signed: whoever recomputes has its folder
    return check_with_store(data, server_store, verify, trusted=trusted if against.keys else None, attesters=attesters)


def _json_object(data: bytes) -> dict[str, Any]:
    """Return a file's JSON object, to find out what kind of file it is; empty if it is not JSON."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def certificate(
    site: SiteFolder,
    ticket: Annotated[
        str | None,
        typer.Argument(metavar="TICKET", help="A ticket (its first characters will do).", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the certificate here, for outsiders.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch and check a certificate of this site again; or list its tickets.

    A certificate is fetched again, so that it comes with the attestations made
    meanwhile, and compared with everything that this site knows. The
    exit code is that of 'splitwiper verify'.

    Example:
      splitwiper certificate sites/north
      splitwiper certificate sites/north 841c3c7d --out bird.json
    """
    if out is not None and ticket is None:
        raise InputError(f"--out goes with a ticket: 'splitwiper certificate {site}' lists them.")
    advice = "Nothing is changed: run it again."
    with Bars(quiet=as_json) as bars, when_interrupted(advice), open_site(site, bars) as opened:
        tickets = opened.requests()
        if ticket is None:
            _list(opened, tickets, as_json=as_json)
            return
        chosen = _settled_ticket(tickets, ticket)
        certified = opened.certificate(chosen)
    if out is not None:
        write_certificate(out, certified)
    conclude(certified.checked, {"ticket": chosen}, as_json=as_json)


def _list(opened: Site, tickets: Sequence[Ticket], *, as_json: bool) -> None:
    kept = [opened.kept_certificate(ticket.id).exists() for ticket in tickets]
    if as_json:
        listed = [{**dataclasses.asdict(ticket), "kept": there} for ticket, there in zip(tickets, kept, strict=True)]
        output.emit({"tickets": listed})
        return
    rows = []
    for ticket, there in zip(tickets, kept, strict=True):
        rows.append((ticket.id, ticket.level, ticket.state, ticket.settled or "–", "kept" if there else "–"))
    output.show(("ticket", "level", "state", "settled", "certificate"), rows)


def _settled_ticket(tickets: Sequence[Ticket], start: str) -> str:
    """Return the one settled ticket whose id begins so."""
    matching = [ticket for ticket in tickets if start and ticket.id.startswith(start)]
    if len(matching) != 1:
        many = f"{len(matching)} tickets start" if matching else "no ticket starts"
        raise NotFoundError(f"{many} with {start!r}: 'splitwiper certificate SITE' lists them.")
    if matching[0].state != "settled":
        raise NotFoundError(f"ticket {start!r} is {matching[0].state}: there is a certificate once it is settled.")
    return matching[0].id


def write_certificate(path: Path, certified: Certified) -> None:
    """Write a certificate for outsiders."""
    from splitwiper.service.certificate.issuing import to_bytes
    from splitwiper.store import files

    files.write_bytes(path, to_bytes(certified.envelope))


def print_certified(ticket: str, checked: Checked) -> None:
    """Say what became of a request: as much as somebody checked, and who did."""
    settled = f"Ticket {ticket[:8]} is settled."
    contents = checked.certificate
    if not checked.holds:
        text = f"Forgotten at this site. The server's certificate of ticket {ticket[:8]} is not accepted."
    elif not contents["before"]["shard"] and not contents["after"]["shard"]:
        text = f"Forgotten at this site; the server certifies that it held nothing of this site. {settled}"
    elif not contents["exact"]:
        text = f"Forgotten, not exactly: the server starts warm. {settled}"
    elif checked.exact:
        recomputed = next(check.detail for check in checked.checks if check.outcome == "exact")
        text = f"Forgotten, exactly. {settled} Recomputed: {recomputed}."
    else:
        text = f"Forgotten at this site; the server certifies that it has retrained without the rows. {settled}"
    output.say(text)
    output.say(f"Certificate: {checked.outcome}; {checked.reason}.")
    for check in checked.checks:
        if check.outcome == "unchecked":
            output.say(f"Not checked: {check.what}: {check.detail}.")


def leave_with_worst(proofs: Iterable[Certified]) -> None:
    """Leave with the code of the worst outcome, where it is not that all holds; a mismatch is the worst."""
    codes = {OUTCOMES[proof.checked.outcome] for proof in proofs} - {0}
    if codes:  # a mismatch accuses somebody, and the others have higher codes
        raise typer.Exit(MISMATCH if MISMATCH in codes else max(codes))
