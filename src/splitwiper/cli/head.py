"""``splitwiper head``: the server's signed ledger head, to be compared with the heads of other sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.join import SiteFolder
from splitwiper.cli.runs import look_here
from splitwiper.cli.unlearn import Json


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

    Two sites that compare heads find out whether the server shows them one ledger.
    The server relays countersigned heads between sites by itself, and could keep
    some back; files that pass from site to site do not depend on it. On a fork the
    exit code is 3, and the file that proves it to others is named.

    Example:
      splitwiper head sites/north --out north-head.json
      splitwiper head sites/south --compare north-head.json
    """
    from splitwiper.service.certificate import SignedHead
    from splitwiper.service.certificate.canonical import dumps
    from splitwiper.service.certificate.envelope import Envelope
    from splitwiper.service.site import Site
    from splitwiper.store import files

    look_here()
    opened = Site(site)
    try:
        if compare is not None:
            other = SignedHead.read(Envelope.load(compare))
            opened.witnessing.compare(other, whose=f"whoever wrote {compare}")
        newest, seen = opened.witnessing.newest(), opened.witnessing.seen()
    finally:
        opened.close()
    if out is not None:
        files.write_bytes(out, dumps(newest.envelope.to_dict()) + b"\n")
    if as_json:
        told = {"site": site, "federation": newest.federation, **newest.head.to_dict(), "time": newest.time}
        output.emit({**told, "signed": newest.envelope.to_dict(), "sites": seen, "compared": compare})
        return
    output.line(output.output(), f"{newest.head}, signed {newest.time}.")
    if compare is not None:
        output.line(output.output(), f"{compare} is of the same ledger: {other.head}.")
    if out is not None:
        output.line(output.output(), f"Written to {out}.")
    rows = [(name, str(one.size), one.countersigned, one.note) for name, one in sorted(seen.items())]
    if rows:
        output.output().print(output.table(("site", ">entries", "last countersigned", ""), rows))
