"""``splitwiper head`` and ``accept-restore``: what a site has seen of its server's ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.options import Json, SiteFolder, confirm
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import open_site


def head(
    site: SiteFolder,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the signed head here, for other sites.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option("--compare", metavar="FILE", help="A head that another site wrote: compare it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the newest signed head of the server's ledger, and when other sites were last heard of.

    Two sites that compare heads find out whether the server shows them one ledger. The
    server relays countersigned heads between sites by itself, and could withhold some;
    files that sites give each other do not depend on it. On a fork the exit code is 3,
    and the file that proves it to others is named.

    Example:
      splitwiper head sites/north --out north-head.json
      splitwiper head sites/south --compare north-head.json
    """
    from splitwiper.service.certificate import SignedHead
    from splitwiper.service.certificate.canonical import dumps
    from splitwiper.service.certificate.envelope import Envelope
    from splitwiper.store import files

    with open_site(site, Bars(quiet=True)) as opened:
        if compare is not None:
            other = SignedHead.read(Envelope.load(compare))
            opened.witnessing.compare(other, whose=f"whoever wrote {compare}")
        newest, seen = opened.witnessing.newest(), opened.witnessing.seen()
    signed = newest.envelope.to_dict()
    if out is not None:
        files.write_bytes(out, dumps(signed) + b"\n")
    if as_json:
        about = {"site": site, "federation": newest.federation, **newest.head.to_dict(), "time": newest.time}
        output.emit({**about, "signed": signed, "sites": seen, "compared": compare})
        return
    output.say(f"{newest.head}, signed {newest.time}.")
    if compare is not None:
        output.say(f"{compare} is of the same ledger: {other.head}.")
    if out is not None:
        output.say(f"Written to {out}.")
    rows = []
    for name, latest in sorted(seen.items()):
        rows.append((name, str(latest.size), latest.countersigned, latest.note))
    if rows:
        output.show(("site", ">entries", "last countersigned", ""), rows)


def accept_restore(
    site: SiteFolder,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before continuing.")] = False,
    as_json: Json = False,
) -> None:
    """Continue with a server that was restored from a backup.

    Shows the operator's reason and what is lost, and asks. Then this site pins the
    server's ledger, keeps the heads of the previous ledger as evidence, asks again for
    every request that the server no longer knows, and sends its shard again.

    Example:
      splitwiper accept-restore sites/north
    """
    with Bars(quiet=as_json) as bars, open_site(site, bars) as opened:
        restored, known = opened.restored(), opened.guard.pins.newest()
        output.note(f"The operator restored a backup on {restored.time}: {restored.reason}")
        output.note(
            f"Its ledger had {restored.size} entries, and this site has seen {known}. What was forgotten in between "
            "is known to the server again until the sites concerned have accepted this."
        )
        if not yes:
            confirm(
                "Continue with this server?",
                declined="Nothing was changed.",
                unasked="this needs a person's consent: add --yes to continue without being asked.",
            )
        kept = opened.accept_restore(restored)
    if as_json:
        output.emit({"site": site, "restored": restored, "evidence": kept})
        return
    output.say(f"Accepted. The heads of the previous ledger are in {kept}.")
    output.say(f"'splitwiper forget {site}' finishes requests that are still open.")
