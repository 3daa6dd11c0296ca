"""Certificates on the command line: what ``splitwiper receipt --certificate`` writes and ``verify CERT`` checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import typer

from splitwiper.cli import show
from splitwiper.cli.exits import OUTCOMES, when_interrupted
from splitwiper.cli.opening import open_run
from splitwiper.cli.progress import Bars
from splitwiper.errors import InputError


def write(run: Path, ticket: str, file: Path) -> None:
    """Write the certificate of a settled ticket to a file, and say what checks it."""
    from splitwiper.service.certificate import Keyring, certify_run
    from splitwiper.service.certificate.issuing import to_bytes
    from splitwiper.store import ServerTree, files

    made = certify_run(run, ticket)
    files.write_bytes(file, to_bytes(made))
    ring = Keyring.of(ServerTree(run / "server"))
    hints = {signature["keyid"] for signature in made["signatures"]}
    paths = [ring.path_of(key) for key in ring.public() if key.id in hints]
    show.line(show.output(), f"Certificate: {file}")
    show.line(show.output(), f"Public key: {', '.join(map(str, paths))}")
    show.line(show.output(), f"Check it: splitwiper verify {file} --key {paths[0] if paths else 'PUB'}")


def verify(file: Path, keys: list[Path], run: Path | None, *, as_json: bool) -> NoReturn:
    """Check a certificate file, offline or against a run, and leave with the outcome's code."""
    from splitwiper.service.certificate import check, check_with_store, read_public
    from splitwiper.service.certificate.envelope import read_limited
    from splitwiper.store import ServerTree

    data = read_limited(file)
    _refuse_receipt(file, data)
    trusted = [key for path in keys for key in read_public(path)]
    with Bars(quiet=as_json) as bars, when_interrupted("Verifying changes nothing: run it again."):
        if run is None:
            found = check(data, trusted)
        else:
            federation = open_run(run, bars)
            tree = ServerTree(run / "server")
            found = check_with_store(data, tree, federation.verify, trusted=trusted if keys else None)
    if as_json:
        said = found.certificate
        show.emit(
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
        show.verdict(show.output(), found)
        for text in found.certificate.get("says", {}).get("does_not_prove", []) if found.holds else []:
            show.line(show.output(), f"Note: {text}")
    raise typer.Exit(OUTCOMES[found.outcome])


def _refuse_receipt(file: Path, data: bytes) -> None:
    """Tell who gives a receipt that it takes the run."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(values, dict) and {"ticket", "others", "context"} <= values.keys():
        raise InputError(f"{file} is a receipt, which takes its run: splitwiper verify RUN {file}.")
