"""What a site signs with its own key besides requests: its registration, every shard it sends, every withdrawal.

The key never leaves the site and does not come from the operator's authority. Someone who steals the site's TLS key can
connect in its name, yet can neither replace nor withdraw its shard; and a server that trains on another shard than the
site's cannot show a signature for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from splitwiper.service.certificate.signed import SignedMessage


@dataclass(frozen=True)
class Registration(SignedMessage):
    """A site states which key it signs with.

    Attributes:
        federation: the store it joins, so that the registration counts nowhere else.
        client: its name.
        made: when, by the site's clock.
        key: the public key, in hex. Signing with it shows that the site holds the private half.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.registration+json"
    TITLE = "a signed registration"

    federation: str
    client: str
    made: str
    key: str


@dataclass(frozen=True)
class ShardStatement(SignedMessage):
    """A site states which shard is its own from now on, or that it has none.

    Attributes:
        federation: the store it is for.
        client: whose it is.
        serial: larger than in every earlier statement, so that an old one cannot be sent again.
        digest: the shard's digest; empty where the shard is withdrawn.
        commitment: to the shard, under the site's own salt; empty where it is withdrawn.
        codebook: the name of the codebook that its labels are codes of; empty where labels are not hidden.
        outputs: the number of codes of that codebook.
        tickets: the requests that it answers.
        made: when, by the site's clock.
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
