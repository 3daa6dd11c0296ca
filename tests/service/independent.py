"""Check a certificate and its auditor's attestation with securesystemslib, and nothing of splitwiper.

    python independent.py CERTIFICATE SERVER_KEY AUDITOR_KEY

Prints what the auditor attests to. It ends with an error if a signature, the tie between both or the proof that both
were made with one ledger (RFC 9162, 2.1.4.2) is wrong.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey


def payload(envelope: dict, pem: bytes) -> dict:
    """What a key signed; an exception if it did not."""
    fields = {name: envelope[name] for name in ("payload", "payloadType", "signatures")}
    made = Envelope.from_dict(json.loads(json.dumps(fields)))
    found = None
    for keyid in made.signatures:
        key = SSlibKey.from_crypto(load_pem_public_key(pem), keyid=keyid)
        found = made.verify([key], 1)
    assert found
    return json.loads(made.payload)


def attested(attestations: list[dict], pem: bytes) -> tuple[dict, dict]:
    """The attestation that a key signed, as it came and what it says; others may have attested besides."""
    for attestation in attestations:
        try:
            return attestation, payload(attestation, pem)
        except VerificationError:
            continue
    raise VerificationError("no attestation is signed with the auditor's key")


def grew(old: int, old_root: bytes, new: int, new_root: bytes, proof: list[bytes]) -> bool:
    """Whether a consistency proof shows that one Merkle tree is the beginning of another."""
    if old == new:
        return old_root == new_root and not proof
    path = ([old_root] if old & (old - 1) == 0 else []) + proof
    fn, sn = old - 1, new - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    left = right = path[0]
    for item in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            left = hashlib.sha256(b"\x01" + item + left).digest()
            right = hashlib.sha256(b"\x01" + item + right).digest()
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            right = hashlib.sha256(b"\x01" + right + item).digest()
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and left == old_root and right == new_root


def main(certificate: str, server_key: str, auditor_key: str) -> None:
    envelope = json.loads(Path(certificate).read_bytes())
    said = payload(envelope, Path(server_key).read_bytes())["predicate"]
    attestation, told = attested(envelope["attestations"], Path(auditor_key).read_bytes())
    assert (told["federation"], told["model"]) == (said["federation"], said["after"]["model"])
    ledger = said["ledger"]
    assert told["size"] >= ledger["entry"]["seq"]
    heads = sorted([(told["size"], bytes.fromhex(told["root"])), (ledger["size"], bytes.fromhex(ledger["root"]))])
    assert grew(*heads[0], *heads[1], [bytes.fromhex(item) for item in attestation["consistency"]])
    assert "splitwiper" not in sys.modules
    names = ("outcome", "epochs", "of")
    sys.stdout.write(
        json.dumps({"ticket": said["ticket"], "auditor": told["name"], **{name: told[name] for name in names}})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
