"""Checking a certificate with access to the store: against ledger and receipts, and by recomputing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from splitwiper.errors import CorruptError, NotFoundError
from splitwiper.federation import Verification
from splitwiper.service.certificate import manifest
from splitwiper.service.certificate.checking import check
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.findings import Checked, CheckFailed, Finding, found
from splitwiper.service.certificate.keyring import Keyring
from splitwiper.service.certificate.keys import PublicKey
from splitwiper.service.certificate.log import Log, TreeHead
from splitwiper.service.certificate.statement import describe
from splitwiper.store import ServerStore
from splitwiper.wire import Receipt


def check_with_store(
    envelope: Envelope | Mapping[str, Any] | bytes,
    server_store: ServerStore,
    verify: Callable[[Receipt], Verification],
    *,
    trusted: Iterable[PublicKey] | None = None,
    attesters: Iterable[PublicKey] = (),
) -> Checked:
    """Check a certificate against the store that it is about, and recompute what it commits to.

    Args:
        envelope: the certificate.
        server_store: the server's store.
        verify: recomputes what a receipt is about; `Federation.verify` is one.
        trusted: keys, one of which must have signed; the store's own keys by default.
        attesters: keys of sites and auditors whose attestations count.
    """
    offline = check(envelope, Keyring.of(server_store).keys() if trusted is None else trusted, attesters=attesters)
    if not offline.certificate or offline.outcome == "mismatch":
        return offline
    certificate = offline.certificate
    store = found("store", lambda: _store(server_store, certificate))
    if store.outcome == "mismatch":
        return Checked((*offline.checks, store), certificate)
    receipt = server_store.receipt(certificate["ticket"])
    standing = manifest.is_standing(server_store, receipt)
    # the store's ledger proves what the signature of a revoked key alone cannot
    checks = [check for check in offline.checks if (check.what, check.outcome) != ("signing key", "unverifiable")]
    checks.append(store)
    checks += [Finding(check.what, check.outcome, check.detail) for check in verify(receipt).checks]
    return Checked(tuple(checks), certificate, "current" if standing else "superseded")


def _store(server_store: ServerStore, certificate: Mapping[str, Any]) -> str:
    """Check that the store agrees: ledger, receipt, and the manifest if it is still the same."""
    try:
        log, ledger = Log.of(server_store), certificate["ledger"]
        if ledger["size"] > len(log.entries):
            raise CheckFailed(
                f"the ledger has {len(log.entries)} entries and had {ledger['size']} when the certificate was made: it "
                "was truncated, or rolled back to a backup"
            )
        # the ledger may have grown since, so the present head is no use: the head of that size must be the same
        if (now := log.head(ledger["size"])) != TreeHead(ledger["size"], ledger["root"]):
            raise CheckFailed(f"the ledger is another one: its first {now}, not root {ledger['root'][:16]}…")
        due = certificate["deadline"]["due"] if certificate["deadline"] else None
        size, request = ledger["size"], certificate["request"]
        expected = describe(server_store, log, certificate["ticket"], size=size, due=due, request=request)
    except (CorruptError, NotFoundError) as problem:
        raise CheckFailed(str(problem).removesuffix(".")) from problem
    if expected["manifest"] is None:  # replaced since, so the one in the certificate cannot be compared
        expected["manifest"] = certificate["manifest"]
    if odd := [name for name in expected if expected[name] != certificate[name]]:
        raise CheckFailed(f"the store says something else of this ticket: {', '.join(odd)}")
    return f"ledger and receipt say the same; the ledger has {len(log.entries)} entries now"
