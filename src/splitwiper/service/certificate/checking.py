"""Checking a certificate with only a public key: signature, form, ledger, the requester's leaf, pinned heads."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from splitwiper.errors import ForkError, FormatError
from splitwiper.service.certificate import manifest
from splitwiper.service.certificate.attestation import FIELD, attested
from splitwiper.service.certificate.canonical import loads
from splitwiper.service.certificate.envelope import PAYLOAD_TYPE, Envelope
from splitwiper.service.certificate.findings import Checked, CheckFailed, Finding, found
from splitwiper.service.certificate.keys import PublicKey
from splitwiper.service.certificate.log import TreeHead, receipt_mark, shows
from splitwiper.service.certificate.manifest import Opening
from splitwiper.service.certificate.pins import Consistency, Pins, compare
from splitwiper.service.certificate.site import SignedRequest
from splitwiper.service.certificate.standing import Keys
from splitwiper.service.certificate.structure import parse
from splitwiper.store import merkle
from splitwiper.store.tickets import receipt_digest
from splitwiper.wire import Receipt
from splitwiper.wire.commitments import shard_commitment

_COMMON = ("ticket", "client", "level", "commitment", "exact", "settled", "before", "after", "context", "fingerprint")


def check(
    envelope: Envelope | Mapping[str, Any] | bytes,
    trusted: Iterable[PublicKey],
    *,
    pins: Pins | Iterable[TreeHead] | None = None,
    head: TreeHead | None = None,
    consistency: Consistency | None = None,
    opening: Opening | None = None,
    receipt: Receipt | None = None,
    client_key: PublicKey | None = None,
    attesters: Iterable[PublicKey] = (),
) -> Checked:
    """Check a certificate. Problems are reported as findings, not raised.

    Args:
        envelope: the certificate, as `certify` returned it or as a file's bytes.
        trusted: public keys, one of which must have signed; empty if none is trusted yet. If given as `Keys`, revoked
            keys count only for ledgers proved to be a prefix of one that a key in good standing signed.
        pins: ledger heads that the client remembers.
        head: the head that the server shows now.
        consistency: the server's proofs between heads; without them only heads of equal size can be compared.
        opening: the requester's secret, to open its leaf.
        receipt: the requester's receipt, to compare; checking it against the ledger also takes the opening.
        client_key: the requester's signing key; if given, the certificate must contain its signed request.
        attesters: keys of sites and auditors whose attestations count.
    """
    try:
        made, attestations = _read(envelope)
    except FormatError as problem:
        return Checked((Finding("envelope", "mismatch", str(problem).removesuffix(".")),))
    keys = trusted if isinstance(trusted, Keys) else Keys(tuple(trusted))
    signature = found("signature", lambda: _signature(made, keys.keys))
    if signature.outcome == "mismatch":
        return Checked((signature,))
    try:
        certificate = parse(made.payload)
    except FormatError as problem:
        return Checked((signature, Finding("statement", "mismatch", str(problem).removesuffix("."))))
    checks = [signature, Finding("statement", "holds", f"a certificate of ticket {certificate['ticket']}")]
    for what, rule in (("ledger entry", _entry), ("manifest", _manifest), ("changed", _changed)):
        checks.append(found(what, partial(rule, certificate)))
    if certificate["request"] is not None or client_key is not None:
        checks.append(found("request", lambda: _request(certificate, client_key)))
    if opening is not None and (opening.salt or certificate["after"]["shard"] is not None):
        checks.append(found("own shard", lambda: _own_shard(certificate, opening)))
    if receipt is not None:
        checks.append(found("receipt", lambda: _receipt(certificate, opening, receipt)))
    pinned = pins.heads()[-1:] if isinstance(pins, Pins) else tuple(pins or ())  # the last one continues all others
    if pinned or head is not None:
        checks.append(found("pinned heads", lambda: _heads(certificate, pinned, head, consistency)))
    if signature.outcome == "holds" and not keys.signed(made):
        online = consistency is not None and bool(pinned or head)
        checks.append(found("signing key", lambda: _revoked(certificate, made, keys, online)))
    # the server's own keys do not count as attesters: nobody attests to itself
    checks += attested(certificate, attestations, [key for key in attesters if key not in keys.keys])
    return Checked(tuple(checks), certificate)


def _read(envelope: Envelope | Mapping[str, Any] | bytes) -> tuple[Envelope, Any]:
    """Return the envelope, and the attestations stored with it."""
    if isinstance(envelope, Envelope):
        return envelope, []
    values = loads(envelope, "certificate") if isinstance(envelope, bytes) else envelope
    return Envelope.from_dict(values), values.get(FIELD, [])


# Each check returns an explanation if it holds, and raises otherwise; see `found`.


def _revoked(certificate: Mapping[str, Any], made: Envelope, keys: Keys, online: bool) -> str:
    """Check a certificate that only revoked keys signed."""
    size = certificate["ledger"]["size"]
    revocation = keys.doubtful(made, size)
    if revocation is None:
        raise CheckFailed(f"the key that signed it was revoked before the ledger had {size} entries")
    if online:  # a key in good standing signed the pinned or current head
        return f"the key was {revocation}; the ledger it signed is the beginning of the present"
    raise CheckFailed(
        f"the key that signed it was {revocation}: a thief of that key may have made it. Fetch the certificate from "
        "the server again, which adds a signature by its present key",
        "unverifiable",
    )


def _signature(made: Envelope, trusted: Sequence[PublicKey]) -> str:
    if made.payload_type != PAYLOAD_TYPE:
        raise CheckFailed(f"the payload's type is {made.payload_type[:60]!r}, not {PAYLOAD_TYPE!r}")
    if not made.signatures:
        raise CheckFailed("the certificate is not signed")
    # hints are not signed, and are printed on terminals
    hints = ", ".join(s.keyid[:16] if s.keyid.isalnum() else "of unknown name" for s in made.signatures)
    if not trusted:
        why = f"no public key was given to check it with; get the signer's (key {hints}) on a way you trust"
        raise CheckFailed(why, "unverifiable")
    if not (by := made.signers(trusted)):
        known = ", ".join(key.id[:16] for key in trusted)
        raise CheckFailed(f"it is not that of a trusted key (signed by key {hints}, trusted are {known}), or altered")
    return f"signed by key {', '.join(key.id[:16] for key in by)}"


def _entry(certificate: Mapping[str, Any]) -> str:
    ledger = certificate["ledger"]
    entry = ledger["entry"]
    if entry["ticket"] != certificate["ticket"]:
        raise CheckFailed(f"the entry shown settles ticket {entry['ticket']}, not {certificate['ticket']}")
    if not shows(ledger):
        raise CheckFailed("the entry that settles the ticket is not in the ledger with this head")
    return f"entry {entry['seq']} of {ledger['size']} settles the ticket"


def _manifest(certificate: Mapping[str, Any]) -> str:
    shown, shard = certificate["manifest"], certificate["after"]["shard"]
    if shown is None:
        return "not shown: shard or model were replaced before the certificate was made, their salts erased"
    leaf = shown["leaf"]
    if (leaf is None) != (shard is None) or (shown["size"] == 0) != (certificate["after"]["model"] is None):
        raise CheckFailed("the manifest shown is not that of the shard and model committed to")
    if leaf is None:
        return f"{certificate['client']} has no shard among the {shown['size']}; no proof can show absence"
    proof, root = [bytes.fromhex(item) for item in leaf["proof"]], bytes.fromhex(shown["root"])
    mine = manifest.leaf_of(bytes.fromhex(leaf["blind"]), shard)
    if not merkle.verify_inclusion(mine, leaf["index"], shown["size"], proof, root):
        raise CheckFailed("the requester's shard is not in the manifest with this root")
    return f"the shard of {certificate['client']} is one of {shown['size']}"


def _changed(certificate: Mapping[str, Any]) -> str:
    """Check that shard and model changed: a site salts each answer to a request afresh, and models are retrained."""
    before, after = certificate["before"], certificate["after"]
    if before["shard"] is None and after["shard"] is None:
        return (
            f"the server held no shard of {certificate['client']}, so there was nothing to erase and nothing to retrain"
        )
    # without this, a server that did nothing at all could certify that
    same = [name for name in ("shard", "model") if before[name] is not None and before[name] == after[name]]
    if same:
        raise CheckFailed(f"nothing was forgotten: the commitment to the {' and '.join(same)} is the one from before")
    if before["shard"] is None:
        return f"the server held no shard of {certificate['client']} when it was asked"
    return "shard and model are not those from before"


def _request(certificate: Mapping[str, Any], client_key: PublicKey | None) -> str:
    """Check that the client itself made the request."""
    if certificate["request"] is None:
        raise CheckFailed("the certificate does not show that the client asked")
    made = SignedRequest.read(certificate["request"])
    for name in ("federation", "ticket", "client", "level", "commitment"):
        if getattr(made, name) != certificate[name]:
            raise CheckFailed(f"the request shown is for ticket {made.ticket}, not for this one")
    if client_key is not None and made.signer != client_key:
        raise CheckFailed(f"the request was signed by key {made.signer.id[:16]}, not by the client's")
    whose = "the client's key" if client_key is not None else "key"
    return f"{certificate['client']} asked at {made.made}, signed by {whose} {made.signer.id[:16]}"


def _own_shard(certificate: Mapping[str, Any], opening: Opening) -> str:
    """Open the commitment to the shard, which only the requester can."""
    if not opening.salt:
        raise CheckFailed("the shard was replaced since, and its salt erased", "unchecked")
    shard = certificate["after"]["shard"]
    if shard is None or not hmac.compare_digest(shard_commitment(bytes.fromhex(opening.salt), opening.digest), shard):
        raise CheckFailed("the commitment is not to the shard that the opening is about")
    return f"it is the shard with digest {opening.digest[:16]}…, {opening.rows} rows"


def _receipt(certificate: Mapping[str, Any], opening: Opening | None, receipt: Receipt) -> str:
    values = receipt.to_dict()
    if odd := [name for name in _COMMON if certificate[name] != values[name]]:
        raise CheckFailed(f"the certificate says something else than the receipt: {', '.join(odd)}")
    if opening is None:
        return "it says the same; that the ledger's entry is about it takes the opening"
    if (
        receipt_mark(bytes.fromhex(opening.receipt_key), receipt_digest(receipt))
        != certificate["ledger"]["entry"]["receipt"]
    ):
        raise CheckFailed("the receipt is not the one that the ledger's entry is about")
    return "it is the receipt that the ledger's entry is about"


def _heads(
    certificate: Mapping[str, Any], pinned: Sequence[TreeHead], head: TreeHead | None, consistency: Consistency | None
) -> str:
    own = TreeHead(certificate["ledger"]["size"], certificate["ledger"]["root"])
    known = [*pinned, *([head] if head else [])]
    if head is not None and (latest := max(*pinned, own, key=lambda old: old.size)).size > head.size:
        raise CheckFailed(f"the server's ledger was rolled back: it shows {head}, and had {latest}")
    if consistency is None:  # heads of equal size can still be compared
        apart = [old for old in known if old.size != own.size]
        if apart and all(old == own for old in known if old.size == own.size):
            why = f"without the server's proof nobody can tell whether {own} and {apart[0]} are of one ledger"
            raise CheckFailed(why, "unverifiable")
    try:
        compare(known, own, consistency or (lambda _old, _new: None))
        if head is not None:
            compare(pinned, head, consistency or (lambda _old, _new: None))
    except ForkError as problem:
        raise CheckFailed(str(problem).removesuffix(".")) from problem
    return f"of one ledger with {len(known)} known"
