"""``splitwiper audit``: recompute a server's half from its signed shards, and attest to what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import OUTCOMES, when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import look_here
from splitwiper.cli.unlearn import Json
from splitwiper.errors import InputError

if TYPE_CHECKING:
    from splitwiper.service.audit import Audited

_FORGED = (1, 2, 5)


def audit(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The auditor's TOML file.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="The auditor's own folder: key, ledger heads, downloads.")
    ],
    epochs: Annotated[
        int | None, typer.Option("--epochs", metavar="N", min=1, help="Recompute N epochs, drawn at random.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Recompute all epochs, which is the default.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep what was downloaded: every client's activations.")] = False,
    patience: Annotated[
        float,
        typer.Option("--patience", min=0, help="Seconds to begin again while the server trains or shards change."),
    ] = 600.0,
    as_json: Json = False,
) -> None:
    """Audit a server with only an auditor's certificate.

    The whole ledger and all shards are downloaded; each shard must carry its
    site's own signature, and be of a site that the auditor has a key of: a server
    could make one up, which shows only with keys that the sites themselves gave
    (without 'sites', that is told to be unchecked). The server half is recomputed,
    wholly or in a random choice of epochs, and compared bit for bit. What came out
    is signed with the auditor's key and sent to the server, whose certificates
    carry it from then on. Exit codes are those of 'splitwiper verify'.

    The file:
      name = "tuv"                         # as the certificate has it
      url = "https://splitwiper.example.org:8443"
      certs = "certs/tuv"                  # what 'splitwiper certs auditor' made
      sites = "site-keys"                  # NAME.pem, the key of every site
      [model]                              # as the federation agreed on it

    Example:
      splitwiper audit tuv.toml --out audit
      splitwiper audit tuv.toml --out audit --epochs 3
    """
    from splitwiper.service.audit import audit as run
    from splitwiper.service.audit import read_audit
    from splitwiper.service.audit.auditing import PUBLIC

    look_here()
    if every and epochs is not None:
        raise InputError("give --epochs or --all, not both.")
    settings = read_audit(config)
    with Bars(quiet=as_json) as bars, when_interrupted("An audit changes nothing: run it again."):
        found = run(settings, config.parent, out, epochs=epochs, keep=keep, progress=bars, patience=patience)
    if as_json:
        output.emit(_plain(found))
    else:
        _tell(found, out / PUBLIC)
    raise typer.Exit(OUTCOMES[found.checked.outcome])


def _plain(found: Audited) -> dict[str, Any]:
    return {
        "outcome": found.checked.outcome,
        "reason": found.checked.reason,
        "checks": found.checked.checks,
        "epochs": found.epochs,
        "of": found.of,
        "seconds": found.seconds,
        "share": found.share,
        "bytes": found.received,
        "caught": {str(forged): found.caught(forged) for forged in _FORGED},
        "attested": found.attested,
    }


def _tell(found: Audited, key: Path) -> None:
    out = output.output()
    output.verdict(out, found.checked)
    if found.of and found.epochs:
        chances = ", ".join(
            f"{forged}: {output.percent(found.caught(forged))}" for forged in _FORGED if forged <= found.of
        )
        output.line(
            out,
            f"{len(found.epochs)} of {found.of} epochs recomputed in {output.seconds(found.seconds)}, "
            f"{output.percent(found.share)} of the server's training. Caught if so many epochs were forged: {chances}.",
        )
    output.line(out, f"Downloaded: {output.size(found.received)}.")
    if found.attested:
        output.line(out, f"Signed and sent. Others check it with the public key {key}.")
