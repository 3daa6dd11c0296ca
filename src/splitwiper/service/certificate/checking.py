"""Checking a certificate with only a public key (`check`), or against its store, and by recomputing."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from splitwiper.checks import Check, CheckFailed, Verification, failed_check, run_check
from splitwiper.errors import CorruptError, ForkError, FormatError, NotFoundError
from splitwiper.service.certificate import manifest
from splitwiper.service.certificate.attestation import FIELD, attested
from splitwiper.service.certificate.canonical import loads
from splitwiper.service.certificate.envelope import PAYLOAD_TYPE, Envelope, PublicKey
from splitwiper.service.certificate.keyring import Keyring
from splitwiper.service.certificate.log import Log, TreeHead, receipt_mark, shows
from splitwiper.service.certificate.manifest import Opening
from splitwiper.service.certificate.pins import Consistency, Pins, compare
from splitwiper.service.certificate.signed import SignedRequest
from splitwiper.service.certificate.standing import Keys
from splitwiper.service.certificate.statement import COMMON, describe, parse
from splitwiper.store import ServerStore, merkle
from splitwiper.store.tickets import receipt_digest
from splitwiper.wire import Receipt
from splitwiper.wire.commitments import shard_commitment

Standing = Literal["unknown", "current", "superseded"]


@dataclass(frozen=True)
class Checked(Verification):
    """A checked certificate: the verification, and what it was about.

    Attributes:
        certificate: the certificate's contents; empty if unreadable. Rely on them only if nothing is wrong.
        standing: whether shard and model are still those of the certificate, as far as is known. A superseded
            certificate is a true statement about the past: signature and ledger can be checked, but not recomputed.
    """

    certificate: Mapping[str, Any] = field(default_factory=dict)
    standing: Standing = "unknown"

    @property
    def reason(self) -> str:
        """The reason for the outcome, in one sentence."""
        if self.standing == "superseded" and self.outcome == "unverifiable":
            return f"signature and ledger hold, as a statement about the past; {super().reason}"
        return super().reason


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
    """Check a certificate. Problems are reported as checks, not raised.

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
        signed, attestations = _read(envelope)
    except FormatError as problem:
        return Checked((failed_check("envelope", problem),))
    keys = trusted if isinstance(trusted, Keys) else Keys(tuple(trusted))
    signature = run_check("signature", partial(_signature, signed, keys.keys))
    if signature.outcome == "mismatch":
        return Checked((signature,))
    try:
        certificate = parse(signed.payload)
    except FormatError as problem:
        return Checked((signature, failed_check("statement", problem)))
    checks = [signature, Check("statement", "holds", f"a certificate of ticket {certificate['ticket']}")]
    checks += _contents(certificate, client_key, opening, receipt)
    pinned = pins.heads()[-1:] if isinstance(pins, Pins) else tuple(pins or ())  # the last one continues all others
    if pinned or head is not None:
        checks.append(run_check("pinned heads", partial(_heads, certificate, pinned, head, consistency)))
    if signature.outcome == "holds" and not keys.signed(signed):
        online = consistency is not None and bool(pinned or head)
        checks.append(run_check("signing key", partial(_revoked, certificate, signed, keys, online)))
    # the server's own keys do not count as attesters: nobody attests to itself
    checks += attested(certificate, attestations, set(attesters) - set(keys.keys))
    return Checked(tuple(checks), certificate)


def _read(envelope: Envelope | Mapping[str, Any] | bytes) -> tuple[Envelope, Any]:
    """Return the envelope, and the attestations stored with it."""
    if isinstance(envelope, Envelope):
        return envelope, []
    values = loads(envelope, "certificate") if isinstance(envelope, bytes) else envelope
    return Envelope.from_dict(values), values.get(FIELD, [])


def _contents(
    certificate: Mapping[str, Any], client_key: PublicKey | None, opening: Opening | None, receipt: Receipt | None
) -> Iterator[Check]:
    """Check what the certificate says, also with the requester's own key, secret and receipt if they are given."""
    for what, rule in (("ledger entry", _entry), ("manifest", _manifest), ("changed", _changed)):
        yield run_check(what, partial(rule, certificate))
    if certificate["request"] is not None or client_key is not None:
        yield run_check("request", partial(_request, certificate, client_key))
    if opening is not None and (opening.salt or certificate["after"]["shard"] is not None):
        yield run_check("own shard", partial(_own_shard, certificate, opening))
    if receipt is not None:
        yield run_check("receipt", partial(_receipt, certificate, opening, receipt))


def check_with_store(
    envelope: Envelope | Mapping[str, Any] | bytes,
    server_store: ServerStore,
    verify: Callable[[Receipt], Verification],
    *,
    trusted: Iterable[PublicKey] | None = None,
    attesters: Iterable[PublicKey] = (),
) -> Checked:
    """Check a certificate against the store that it is about, and recompute what it commits to; see `check`.

    ``verify`` recomputes what a receipt is about, as `Federation.verify` does. The store's own keys are trusted by
    default.
    """
    offline = check(envelope, Keyring.of(server_store).keys() if trusted is None else trusted, attesters=attesters)
    certificate = offline.certificate
    if not certificate or offline.outcome == "mismatch":
        return offline
    store = run_check("store", lambda: _store(server_store, certificate))
    if store.outcome == "mismatch":
        return Checked((*offline.checks, store), certificate)
    receipt = server_store.receipt(certificate["ticket"])
    standing = manifest.is_standing(server_store, receipt)
    # the store's ledger proves what the signature of a revoked key alone cannot
    checks = [check for check in offline.checks if (check.what, check.outcome) != ("signing key", "unverifiable")]
    checks.append(store)
    for part in verify(receipt).checks:
        checks.append(replace(part, claim=None))  # one list, of which not all are about one of the claims
    return Checked(tuple(checks), certificate, "current" if standing else "superseded")


# Each check returns an explanation if it holds, and raises otherwise; see `run_check`.


def _revoked(certificate: Mapping[str, Any], envelope: Envelope, keys: Keys, online: bool) -> str:
    """Check a certificate that only revoked keys signed."""
    size = certificate["ledger"]["size"]
    revocation = keys.doubtful(envelope, size)
    if revocation is None:
        raise CheckFailed(f"the key that signed it was revoked before the ledger had {size} entries")
    if online:  # a key in good standing signed the pinned or current head
        return f"the key was {revocation}; the ledger it signed is the beginning of the present"
    raise CheckFailed(
        f"the key that signed it was {revocation}: a thief of that key may have made it. Fetch the certificate from "
        "the server again, which adds a signature by its present key",
        "unverifiable",
    )


def _signature(envelope: Envelope, trusted: Sequence[PublicKey]) -> str:
    if envelope.payload_type != PAYLOAD_TYPE:
        raise CheckFailed(f"the payload's type is {envelope.payload_type[:60]!r}, not {PAYLOAD_TYPE!r}")
    if not envelope.signatures:
        raise CheckFailed("the certificate is not signed")
    # hints are not signed, and are printed on terminals
    hints = ", ".join(s.keyid[:16] if s.keyid.isalnum() else "of unknown name" for s in envelope.signatures)
    if not trusted:
        why = f"no public key was given to check it with; get the signer's (key {hints}) on a way you trust"
        raise CheckFailed(why, "unverifiable")
    if not (signers := envelope.signers(trusted)):
        known = _ids(trusted)
        raise CheckFailed(f"it is not that of a trusted key (signed by key {hints}, trusted are {known}), or altered")
    return f"signed by key {_ids(signers)}"


def _ids(keys: Iterable[PublicKey]) -> str:
    return ", ".join(key.id[:16] for key in keys)


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
    own = manifest.leaf_of(bytes.fromhex(leaf["blind"]), shard)
    if not merkle.verify_inclusion(own, leaf["index"], shown["size"], proof, root):
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
    request = SignedRequest.read(certificate["request"])
    # a client's request for another ticket must not pass for this one
    for name in ("federation", "ticket", "client", "level", "commitment"):
        if getattr(request, name) != certificate[name]:
            raise CheckFailed(f"the request shown is for ticket {request.ticket}, not for this one")
    signer = request.signer.id[:16]
    if client_key is not None and request.signer != client_key:
        raise CheckFailed(f"the request was signed by key {signer}, not by the client's")
    whose = "the client's key" if client_key is not None else "key"
    return f"{certificate['client']} asked at {request.made}, signed by {whose} {signer}"


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
    if different := [name for name in COMMON if certificate[name] != values[name]]:
        raise CheckFailed(f"the certificate says something else than the receipt: {', '.join(different)}")
    if opening is None:
        return "it says the same; that the ledger's entry is about it takes the opening"
    mark = receipt_mark(bytes.fromhex(opening.receipt_key), receipt_digest(receipt))
    if mark != certificate["ledger"]["entry"]["receipt"]:
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
        raise CheckFailed(problem) from problem
    return f"of one ledger with {len(known)} known"


def _store(server_store: ServerStore, certificate: Mapping[str, Any]) -> str:
    """Check that the store agrees: ledger, receipt, and the manifest if it is still the same."""
    try:
        log, ledger = Log.of(server_store), certificate["ledger"]
        size = ledger["size"]
        if size > len(log.entries):
            raise CheckFailed(
                f"the ledger has {len(log.entries)} entries and had {size} when the certificate was made: it was "
                "truncated, or rolled back to a backup"
            )
        # the ledger may have grown since, so the present head is no use: the head of that size must be the same
        if (head := log.head(size)) != TreeHead(size, ledger["root"]):
            raise CheckFailed(f"the ledger is another one: its first {head}, not root {ledger['root'][:16]}…")
        due = certificate["deadline"]["due"] if certificate["deadline"] else None
        request = certificate["request"]
        expected = describe(server_store, log, certificate["ticket"], size=size, due=due, request=request)
    except (CorruptError, NotFoundError) as problem:
        raise CheckFailed(problem) from problem
    if expected["manifest"] is None:  # replaced since, so the one in the certificate cannot be compared
        expected["manifest"] = certificate["manifest"]
    if different := [name for name in expected if expected[name] != certificate[name]]:
        raise CheckFailed(f"the store says something else of this ticket: {', '.join(different)}")
    return f"ledger and receipt say the same; the ledger has {len(log.entries)} entries now"
