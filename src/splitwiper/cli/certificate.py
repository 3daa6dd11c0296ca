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
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import look_here, open_run
from splitwiper.cli.unlearn import Json
from splitwiper.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from splitwiper.federation import Verification
    from splitwiper.service.certificate import Checked
    from splitwiper.service.site import Certified, Site
    from splitwiper.wire import Receipt, Ticket


def write(run: Path, ticket: str, file: Path) -> None:
    """Write the certificate of a settled ticket to a file, and say what checks it."""
    from splitwiper.service.certificate import Keyring, certify_run
    from splitwiper.service.certificate.issuing import to_bytes
    from splitwiper.store import ServerStore, files

    made = certify_run(run, ticket)
    files.write_bytes(file, to_bytes(made))
    ring = Keyring.of(ServerStore(run / "server"))
    public = {key.id: key for key in ring.public()}
    hints = [signature["keyid"] for signature in reversed(made["signatures"])]  # the present key first
    paths = [ring.path_of(public[hint]) for hint in hints if hint in public]
    output.line(output.output(), f"Certificate: {file}")
    output.line(output.output(), f"Public key: {', '.join(map(str, paths))}")
    output.line(output.output(), f"Check it: splitwiper verify {file} --key {paths[0] if paths else 'PUB'}")


@dataclass(frozen=True)
class Against:
    """What a certificate is checked against."""

    keys: Sequence[Path] = ()
    attesters: Sequence[Path] = ()
    run: Path | None = None
    store: Path | None = None
    site: Path | None = None


def verify(file: Path, against: Against, *, as_json: bool) -> NoReturn:
    """Check a certificate or evidence of a fork, offline or against folders, and leave with the outcome's code."""
    from splitwiper.service.certificate import read_keys
    from splitwiper.service.certificate.envelope import read_limited
    from splitwiper.service.certificate.heads import KIND, check_evidence

    data = read_limited(file)
    values = _values(data)
    if values.get("kind") == KIND:
        proved = check_evidence(values, read_keys(against.keys))
        if as_json:
            output.emit({"evidence": file, "outcome": proved.outcome, "reason": proved.reason, "checks": proved.checks})
        else:
            output.verdict(output.output(), proved)
        raise typer.Exit(OUTCOMES[proved.outcome])
    if {"ticket", "others", "context"} <= values.keys():
        raise InputError(f"{file} is a receipt, which takes its run: splitwiper verify RUN {file}.")
    with Bars(quiet=as_json) as bars, when_interrupted("Verifying changes nothing: run it again."):
        found = _checked(data, against, bars)
    run = against.run
    if as_json:
        said = found.certificate
        output.emit(
            {
                "certificate": file,
                "run": run,
                "ticket": said.get("ticket"),
                "client": said.get("client"),
                "exact": found.exact,
                "outcome": found.outcome,
                "reason": found.reason,
                "standing": found.standing,
                "checks": found.checks,
                "says": said.get("says"),
            }
        )
    else:
        output.verdict(output.output(), found)
        for text in found.certificate.get("says", {}).get("does_not_prove", []) if found.holds else []:
            output.line(output.output(), f"Note: {text}")
    raise typer.Exit(OUTCOMES[found.outcome])


def _checked(data: bytes, against: Against, bars: Bars) -> Checked:
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
    return check_with_store(data, server_store, verify, trusted=trusted if against.keys else None, attesters=attesters)


def certificate(
    site: Annotated[Path, typer.Argument(metavar="SITE", help="The client's own folder.", show_default=False)],
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
    from splitwiper.service.site import Site

    if out is not None and ticket is None:
        raise InputError(f"--out goes with a ticket: 'splitwiper certificate {site}' lists them.")
    look_here()
    with Bars(quiet=as_json) as bars, when_interrupted("Nothing is changed: run it again."):
        opened = Site(site, bars)
        try:
            listed = opened.requests()
            if ticket is None:
                _list(opened, listed, as_json=as_json)
                return
            chosen = _chosen(listed, ticket)
            proof = opened.certificate(chosen)
        finally:
            opened.close()
    if out is not None:
        write_certificate(out, proof)
    if as_json:
        found = proof.checked
        output.emit({"ticket": chosen, "outcome": found.outcome, "reason": found.reason, "checks": found.checks})
    else:
        output.verdict(output.output(), proof.checked)
    leave([proof])


def _list(opened: Site, listed: Sequence[Ticket], *, as_json: bool) -> None:
    kept = {one.id: opened.kept_certificate(one.id) for one in listed}
    if as_json:
        output.emit({"tickets": [{**dataclasses.asdict(one), "kept": kept[one.id].exists()} for one in listed]})
        return
    rows = [
        (one.id, one.level, one.state, one.settled or "–", "kept" if kept[one.id].exists() else "–") for one in listed
    ]
    output.output().print(output.table(("ticket", "level", "state", "settled", "certificate"), rows))


def _chosen(listed: Sequence[Ticket], text: str) -> str:
    fitting = [one for one in listed if text and one.id.startswith(text)]
    if len(fitting) != 1:
        many = f"{len(fitting)} tickets start" if fitting else "no ticket starts"
        raise NotFoundError(f"{many} with {text!r}: 'splitwiper certificate SITE' lists them.")
    if fitting[0].state != "settled":
        raise NotFoundError(f"ticket {text!r} is {fitting[0].state}: there is a certificate once it is settled.")
    return fitting[0].id


def write_certificate(path: Path, proof: Certified) -> None:
    """Write a certificate for outsiders."""
    from splitwiper.service.certificate.issuing import to_bytes
    from splitwiper.store import files

    files.write_bytes(path, to_bytes(proof.envelope))


def tell_certificate(ticket: str, proof: Certified) -> None:
    """Say what became of a request: as much as somebody checked, and who did."""
    found, out = proof.checked, output.output()
    if not found.holds:
        output.line(out, f"Forgotten at this site. The server's certificate of ticket {ticket[:8]} is not accepted.")
    elif not found.certificate["before"]["shard"] and not found.certificate["after"]["shard"]:
        told = "Forgotten at this site; the server certifies that it held nothing of this site"
        output.line(out, f"{told}. Ticket {ticket[:8]} is settled.")
    elif not found.certificate["exact"]:
        output.line(out, f"Forgotten, not exactly: the server starts warm. Ticket {ticket[:8]} is settled.")
    elif found.exact:
        told = next(check.detail for check in found.checks if check.outcome == "exact")
        output.line(out, f"Forgotten, exactly. Ticket {ticket[:8]} is settled. Recomputed: {told}.")
    else:
        output.line(
            out,
            f"Forgotten at this site; the server certifies that it has retrained without the rows. Ticket {ticket[:8]} "
            "is settled.",
        )
    output.line(out, f"Certificate: {found.outcome}; {found.reason}.")
    for check in found.checks:
        if check.outcome == "unchecked":
            output.line(out, f"Not checked: {check.what}: {check.detail}.")


def leave(proofs: Iterable[Certified]) -> None:
    """Leave with the code of the worst outcome, where it is not that all holds; a mismatch is the worst."""
    codes = {OUTCOMES[proof.checked.outcome] for proof in proofs} - {0}
    if codes:
        raise typer.Exit(MISMATCH if MISMATCH in codes else max(codes))


def _values(data: bytes) -> dict[str, Any]:
    """Return a file's JSON object, to find out what kind of file it is; empty if it is not JSON."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
