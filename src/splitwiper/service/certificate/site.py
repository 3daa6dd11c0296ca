"""What a site signs with its own key: its registration, requests to be forgotten, and every shard or withdrawal.

The key is made at the site and never leaves it; it does not come from the operator's authority. So an issuer of
certificates cannot make requests in a client's name. A thief of the site's TLS key can connect in its name, but can
neither replace nor withdraw its shard; and a server that trains on a shard other than the site's has no signature to
show for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from splitwiper.service.certificate.signed import SignedMessage


@dataclass(frozen=True)
class Registration(SignedMessage):
    """A site's statement of its signing key.

    Attributes:
        federation: the id of the store it joins, so that the registration counts nowhere else.
        client: the site's name.
        made: the time, by the site's clock.
        key: the public key, in hex. Signing with it proves that the site holds the private half.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.registration+json"
    TITLE = "a signed registration"

    federation: str
    client: str
    made: str
    key: str


@dataclass(frozen=True)
class SignedRequest(SignedMessage):
    """A request as a client signs it. It does not say what is to be forgotten.

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


@dataclass(frozen=True)
class ShardStatement(SignedMessage):
    """A site's statement of its current shard, or that it has none.

    Attributes:
        federation: the id of the store it is for.
        client: the site's name.
        serial: a number larger than in every earlier statement, so that an old one cannot be replayed.
        digest: the shard's digest; empty if the shard is withdrawn.
        commitment: the commitment to the shard, under the site's own salt; empty if it is withdrawn.
        codebook: the name of the codebook that its label codes come from; empty if labels are not hidden.
        outputs: the number of codes in that codebook.
        tickets: the requests that it answers.
        made: the time, by the site's clock.
        key: the public key that signs, in hex.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.shard+json"
    TITLE = "a signed statement about a shard"
    MAY_BE_EMPTY = ("digest", "commitment", "codebook")

    federation: str
    client: str
    serial: int
    digest: str
    commitment: str
    codebook: str
    outputs: int
    tickets: tuple[str, ...]
    made: str
    key: str
