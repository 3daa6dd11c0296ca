"""Certificates on the command line: what ``splitwiper receipt --certificate`` writes and ``verify CERT`` checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

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
    public = {key.id: key for key in ring.public()}
    hints = [signature["keyid"] for signature in reversed(made["signatures"])]  # the present key first
    paths = [ring.path_of(public[hint]) for hint in hints if hint in public]
    show.line(show.output(), f"Certificate: {file}")
    show.line(show.output(), f"Public key: {', '.join(map(str, paths))}")
    show.line(show.output(), f"Check it: splitwiper verify {file} --key {paths[0] if paths else 'PUB'}")


def verify(file: Path, keys: list[Path], run: Path | None, *, as_json: bool) -> NoReturn:
    """Check a certificate or evidence of a fork, offline or against a run, and leave with the outcome's code."""
    from splitwiper.service.certificate import check, check_with_store, read_keys
    from splitwiper.service.certificate.envelope import read_limited
    from splitwiper.service.certificate.evidence import KIND, check_evidence
    from splitwiper.store import ServerTree

    data = read_limited(file)
    values = _values(data)
    trusted = read_keys(keys)
    if values.get("kind") == KIND:
        proved = check_evidence(values, trusted)
        if as_json:
            show.emit({"evidence": file, "outcome": proved.outcome, "reason": proved.reason, "checks": proved.checks})
        else:
            show.verdict(show.output(), proved)
        raise typer.Exit(OUTCOMES[proved.outcome])
    if {"ticket", "others", "context"} <= values.keys():
        raise InputError(f"{file} is a receipt, which takes its run: splitwiper verify RUN {file}.")
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


def _values(data: bytes) -> dict[str, Any]:
    """A file's JSON object, to tell what kind of file it is; empty where it is not one."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
