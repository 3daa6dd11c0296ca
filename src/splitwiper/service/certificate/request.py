"""Signed requests: a client states under a key of its own that it asks to be forgotten.

The key is made in the client's home and never leaves it. It does not come from the operator's authority, so that nobody
who can issue certificates can ask in a client's name. The request does not say what is to be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from splitwiper.service.certificate.signed import SignedMessage


@dataclass(frozen=True)
class SignedRequest(SignedMessage):
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
