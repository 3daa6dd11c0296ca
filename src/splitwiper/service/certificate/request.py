"""Signed requests: a client states under a key of its own that it asks to be forgotten.

The key is made in the client's site and never leaves it. It does not come from the operator's authority, so that an
issuer of certificates cannot make requests in a client's name. The request does not say what is to be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from splitwiper.service.certificate.signed import SignedMessage


@dataclass(frozen=True)
class SignedRequest(SignedMessage):
    """A request as a client signs it.

    Attributes:
        federation: the id of the server's store, so that the request counts nowhere else.
        client: the name of the client.
        ticket: the request's id, drawn by the client: sending the request again repeats the same one.
        level: class, sample or client.
        commitment: commits to the rows that the client suppresses; only the client can open it.
        made: the time, by the client's clock.
        key: the public key that signs, in hex.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.request+json"
    TITLE = "a signed request"
    CHOICES: ClassVar = {"level": ("class", "sample", "client")}

    federation: str
    client: str
    ticket: str
    level: str
    commitment: str
    made: str
    key: str
