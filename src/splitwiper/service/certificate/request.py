"""Signed requests: a client states under a key of its own that it asks to be forgotten.

The key is made in the client's home and never leaves it. It does not come from the operator's authority, so that nobody
who can issue certificates can ask in a client's name. The request does not say what is to be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads_canonical
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.keys import PublicKey, SigningKey

PAYLOAD_TYPE = "application/vnd.splitwiper.request+json"
_LEVELS = ("class", "sample", "client")


@dataclass(frozen=True)
class SignedRequest:
    """What a client signs.

    Attributes:
        federation: the store that is asked, so that a request counts nowhere else.
        client: who asks.
        ticket: the request's name, drawn by the client: a request that is sent again is the same one.
        level: class, sample or client.
        commitment: to the rows that the client suppresses; the client alone can open it.
        made: when, by the client's clock.
        key: the public key that signs, in hex.
    """

    federation: str
    client: str
    ticket: str
    level: str
    commitment: str
    made: str
    key: str

    def sign(self, key: SigningKey) -> dict[str, Any]:
        """The request as a DSSE envelope."""
        return Envelope.sign(dumps(asdict(self)), [key], payload_type=PAYLOAD_TYPE).to_dict()

    @property
    def signer(self) -> PublicKey:
        """The key that signs it."""
        return PublicKey(bytes.fromhex(self.key))


def read_request(envelope: Mapping[str, Any]) -> SignedRequest:
    """A request whose signature is right. Whether the key is the client's is another question.

    Raises:
        FormatError: it is no signed request, or its signature is wrong.
    """
    made = Envelope.from_dict(envelope)
    if made.payload_type != PAYLOAD_TYPE:
        raise FormatError(f"this is no signed request: its type is {made.payload_type[:60]!r}, not {PAYLOAD_TYPE!r}.")
    found = loads_canonical(made.payload, "signed request")
    names = SignedRequest.__dataclass_fields__
    if not isinstance(found, dict) or found.keys() != names.keys():
        raise FormatError(f"this is no signed request: it has other fields than {', '.join(names)}.")
    if not all(isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() for value in found.values()):
        raise FormatError("this is no signed request: a field is no short text.")
    request = SignedRequest(**found)
    if request.level not in _LEVELS:
        raise FormatError(f"this is no signed request: its level is {request.level!r}.")
    try:
        by = made.signers([request.signer])
    except ValueError as problem:
        raise FormatError("this is no signed request: its key is no Ed25519 key.") from problem
    if not by:
        raise FormatError("the request's signature is not that of the key it names.")
    return request
