"""Recomputing a site's half and shard from its own rows, without changing anything or asking the server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from splitwiper.checks import Verification, run_check
from splitwiper.errors import FormatError
from splitwiper.federation.verify import verify_client, verify_gone, verify_record
from splitwiper.numerics import isolated_call
from splitwiper.service.certificate import Envelope
from splitwiper.service.certificate.statement import parse
from splitwiper.service.site.site import Site
from splitwiper.store import databases_unchanged
from splitwiper.wire import Receipt, Request


@isolated_call()
def verify_site(site: Site, receipt: Receipt | None = None) -> Verification:
    """Recompute a site's half and shard from its surviving rows, and check that forgotten rows are gone.

    The shard is compared with the one that the server acknowledged, by its digest in the site's own database.

    If a receipt is given, only its request is checked. The server is not asked.

    Raises:
        BusyError: another process changed the site meanwhile, so that the data read is inconsistent.
    """
    client = site.client
    name, store = client.name, client.store
    with databases_unchanged() as watch:
        watch.add(store.database)
        checks = [verify_record(f"site {name}", store.database.check)]
        if checks[0].outcome == "exact":
            if receipt is None:
                asked = _requests(site)
            else:
                asked = [Request(receipt.ticket, name, receipt.level, receipt.commitment)]
            checks.append(run_check(f"client {name}", partial(verify_gone, client, asked), "rows"))
        if checks[-1].claim == "rows" and checks[-1].outcome == "exact":
            accepted = store.database.meta("accepted") or None
            checks.append(run_check(f"client {name}", partial(verify_client, client, accepted), "state"))
        return Verification(tuple(checks))


def _requests(site: Site) -> list[Request]:
    """Return the requests that the site's database has, and those that only its certificates still name."""
    client = site.client
    asked = []
    for row in client.store.requests("open", "sent", "done"):
        asked.append(Request(row["ticket"], client.name, row["level"], row["commitment"]))
    for path in sorted((client.store.root / "certificates").glob("*.json")):
        try:
            contents = parse(Envelope.load(path).payload)
        except FormatError:
            continue
        certified = Request(contents["ticket"], contents["client"], contents["level"], contents["commitment"])
        if certified not in asked:
            asked.append(certified)
    return asked


def fingerprint_of(site: Site) -> Mapping[str, str]:
    """Return the numerics that a site's half was computed with."""
    half = site.client.store.half()
    return half[1] if half else {}
