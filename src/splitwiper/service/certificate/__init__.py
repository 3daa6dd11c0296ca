"""Certificates of unlearning: signed statements that third parties can check, and pinned heads that expose forks.

`certify` issues one for a settled ticket, `check` checks it with only a public key, `check_with_store` recomputes it.
`SignedHead` is the server's signed claim about its ledger, `Pins` keeps a client's view of the ledger, and `Keys` says
which signing keys count.
"""

from splitwiper.service.certificate.attestation import Attestation
from splitwiper.service.certificate.checking import Checked, check, check_with_store
from splitwiper.service.certificate.envelope import Envelope, PublicKey, SigningKey, read_public
from splitwiper.service.certificate.heads import SignedHead
from splitwiper.service.certificate.issuing import certify, certify_run, opening
from splitwiper.service.certificate.keyring import Keyring
from splitwiper.service.certificate.log import Log, TreeHead
from splitwiper.service.certificate.manifest import Opening
from splitwiper.service.certificate.pins import Pins
from splitwiper.service.certificate.signed import SignedRequest
from splitwiper.service.certificate.standing import Keys, Revocation, read_keys

__all__ = [
    "Attestation",
    "Checked",
    "Envelope",
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
    "TreeHead",
    "certify",
    "certify_run",
    "check",
    "check_with_store",
    "opening",
    "read_keys",
    "read_public",
]
