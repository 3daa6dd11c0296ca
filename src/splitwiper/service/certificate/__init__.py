"""Certificates of unlearning: signed statements that outsiders can check, and what clients pin so that nobody forks.

`certify` makes one for a settled ticket, `check` checks it with a public key alone, `check_with_store` recomputes it.
`SignedHead` is what the server says its ledger is, `Pins` keeps a client's view of it, `Keys` tells which signing keys
count.
"""

from splitwiper.service.certificate.attestation import Attestation
from splitwiper.service.certificate.checking import check
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.findings import Checked, Finding
from splitwiper.service.certificate.heads import SignedHead
from splitwiper.service.certificate.issuing import certify, certify_run, opening
from splitwiper.service.certificate.keys import PublicKey, SigningKey, read_public
from splitwiper.service.certificate.log import Head, Log
from splitwiper.service.certificate.manifest import Opening
from splitwiper.service.certificate.pins import Pins
from splitwiper.service.certificate.recomputing import check_with_store
from splitwiper.service.certificate.request import SignedRequest
from splitwiper.service.certificate.signing import Keyring
from splitwiper.service.certificate.standing import Keys, Revocation, read_keys
from splitwiper.service.certificate.succession import followed

__all__ = [
    "Attestation",
    "Checked",
    "Envelope",
    "Finding",
    "Head",
    "Keyring",
    "Keys",
    "Log",
    "Opening",
    "Pins",
    "PublicKey",
    "Revocation",
    "SignedHead",
    "SignedRequest",
    "SigningKey",
    "certify",
    "certify_run",
    "check",
    "check_with_store",
    "followed",
    "opening",
    "read_keys",
    "read_public",
]
