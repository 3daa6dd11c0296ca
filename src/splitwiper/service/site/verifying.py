"""Recomputing a site's half and shard from its own rows, without changing anything or asking the server."""

from __future__ import annotations

from collections.abc import Mapping

from splitwiper.errors import FormatError
from splitwiper.federation import Verification
from splitwiper.federation.verify import Check, guarded, verify_client, verify_gone, verify_record
from splitwiper.numerics import isolated_call
from splitwiper.service.certificate import Envelope
from splitwiper.service.certificate.statement import parse
from splitwiper.service.site.site import Site
from splitwiper.store import undisturbed
from splitwiper.wire import Receipt, Request


@isolated_call()
def verify_site(site: Site, receipt: Receipt | None = None) -> Verification:
    """Recompute a site's half and shard from its surviving rows, and check that forgotten rows are gone.

    The shard is compared with the one that the server acknowledged, by its digest in the site's own database.

    Args:
        site: the site. Its server is not asked.
        receipt: check only this receipt's request; all of the site's by default.

    Raises:
        BusyError: another process changed the site meanwhile, so that the data read is inconsistent.
    """
    with undisturbed() as watch:
        watch.add(site.client.store.database)
        return Verification.of(_checks(site, receipt))


def _checks(site: Site, receipt: Receipt | None) -> list[Check]:
    client = site.client
    name, store = client.name, client.store
    checks = [verify_record(f"site {name}", store.database.check)]
    if checks[0].outcome == "exact":
        asked = [
            Request(row["ticket"], name, row["level"], row["commitment"])
            for row in store.requests("open", "sent", "done")
        ]
        asked += [certified for certified in _certified(site) if certified not in asked]
        if receipt is not None:
            asked = [Request(receipt.ticket, name, receipt.level, receipt.commitment)]
        accepted = store.database.meta("accepted") or None
        for check in (lambda: verify_gone(client, asked), lambda: verify_client(client, accepted)):
            checks.append(guarded(f"site {name}", check))
            if checks[-1].outcome != "exact":
                break
    return checks


def _certified(site: Site) -> list[Request]:
    """Return the requests named in the stored certificates."""
    found = []
    for path in sorted((site.client.store.root / "certificates").glob("*.json")):
        try:
            said = parse(Envelope.load(path).payload)
        except FormatError:
            continue
        found.append(Request(said["ticket"], said["client"], said["level"], said["commitment"]))
    return found


def fingerprint_of(site: Site) -> Mapping[str, str]:
    """Return the numerics that a site's half was computed with."""
    half = site.client.store.half()
    return half[1] if half else {}
