"""``splitwiper audit``: recompute a server's half from its signed shards, and attest to what came out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import helping, when_interrupted
from splitwiper.cli.options import Json
from splitwiper.cli.outcomes import conclude
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import look_here
from splitwiper.errors import InputError

if TYPE_CHECKING:
    from splitwiper.service.audit import Audited

_FORGED = (1, 2, 5)
"""Numbers of forged epochs for which the chance of having caught one is shown."""


@helping("""
    The file:
      name = "tuv"                         # as the certificate has it
      url = "https://splitwiper.example.org:8443"
      certs = "certs/tuv"                  # what 'splitwiper certs auditor' made
      sites = "sites"                      # NAME.pem, the key of every site
      [model]                              # as the federation agreed on it

    Example:
      splitwiper audit tuv.toml --out audit
      splitwiper audit tuv.toml --out audit --epochs 3
""")
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
        typer.Option(
            "--patience", min=0, help="Seconds to keep retrying while the server is training or shards are changing."
        ),
    ] = 600.0,
    as_json: Json = False,
) -> None:
    """Audit a server with only an auditor's certificate.

    The whole ledger and all shards are downloaded; each shard must be signed by a
    site whose key the auditor has. Take these keys from the sites themselves
    ('sites' in the file): only they expose a site that the server made up. Without
    'sites', that is reported as unchecked. The server half is recomputed, wholly
    or in a random choice of epochs, and compared bit for bit. The result is signed
    with the auditor's key and sent to the server, whose certificates carry it from
    then on. Exit codes are those of 'splitwiper verify'.
    """
    from splitwiper.service.audit import audit as run
    from splitwiper.service.audit import read_audit
    from splitwiper.service.audit.auditing import PUBLIC

    look_here()
    if every and epochs is not None:
        raise InputError("give --epochs or --all, not both.")
    settings = read_audit(config)
    with Bars(quiet=as_json) as bars, when_interrupted("An audit changes nothing: run it again."):
        audited = run(settings, config.parent, out, epochs=epochs, keep=keep, progress=bars, patience=patience)
    fields = {
        "epochs": audited.epochs,
        "of": audited.of,
        "seconds": audited.seconds,
        "share": audited.share,
        "bytes": audited.received,
        "caught": {str(forged): audited.caught(forged) for forged in _FORGED},
        "attested": audited.attested,
    }
    conclude(audited.checked, fields, as_json=as_json, notes=_notes(audited, out / PUBLIC))


def _notes(audited: Audited, key: Path) -> Iterator[str]:
    """Yield what is said below the checks: how much was recomputed, and what that would have found."""
    if audited.of and audited.epochs:
        chances = []
        for forged in _FORGED:
            if forged <= audited.of:
                chances.append(f"{forged}: {output.percent(audited.caught(forged))}")
        yield (
            f"{len(audited.epochs)} of {audited.of} epochs recomputed in {output.seconds(audited.seconds)}, "
            f"{output.percent(audited.share)} of the server's training. Chance of catching a server that "
            "forged this many epochs: "
            f"{', '.join(chances)}."
        )
    yield f"Downloaded: {output.size(audited.received)}."
    if audited.attested:
        yield f"Signed and sent. Others check it with the public key {key}."
