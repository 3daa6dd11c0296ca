"""What a site signs with its own key besides requests: its registration, every shard it sends, every withdrawal.

The key never leaves the site and does not come from the operator's authority. Someone who steals the site's TLS key can
connect in its name, yet can neither replace nor withdraw its shard; and a server that trains on another shard than the
site's cannot show a signature for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads_canonical
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.keys import PublicKey, SigningKey

REGISTRATION = "application/vnd.splitwiper.registration+json"
SHARD = "application/vnd.splitwiper.shard+json"
_T = TypeVar("_T", "Registration", "ShardStatement")


@dataclass(frozen=True)
class Registration:
    """A site states which key it signs with.

    Attributes:
        federation: the store it joins, so that the registration counts nowhere else.
        client: its name.
        made: when, by the site's clock.
        key: the public key, in hex. Signing with it shows that the site holds the private half.
    """

    federation: str
    client: str
    made: str
    key: str


@dataclass(frozen=True)
class ShardStatement:
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


def sign(made: Registration | ShardStatement, key: SigningKey) -> dict[str, Any]:
    """Return a statement as a DSSE envelope."""
    kind = REGISTRATION if isinstance(made, Registration) else SHARD
    return Envelope.sign(dumps(asdict(made)), [key], payload_type=kind).to_dict()


def read_registration(envelope: Mapping[str, Any]) -> Registration:
    """Return a registration that was signed by the key it names.

    Raises:
        FormatError: it is none, or its signature is wrong.
    """
    return _read(envelope, Registration, REGISTRATION, "registration")


def read_shard_statement(envelope: Mapping[str, Any]) -> ShardStatement:
    """Return a statement about a shard that was signed by the key it names.

    Whether that key is the site's own, only a registration can tell.

    Raises:
        FormatError: it is none, or its signature is wrong.
    """
    return _read(envelope, ShardStatement, SHARD, "statement about a shard")


def _read(envelope: Mapping[str, Any], kind: type[_T], payload_type: str, what: str) -> _T:
    made = Envelope.from_dict(envelope)
    if made.payload_type != payload_type:
        raise FormatError(f"this is no signed {what}: its type is {made.payload_type[:60]!r}, not {payload_type!r}.")
    found = loads_canonical(made.payload, f"signed {what}")
    names = kind.__dataclass_fields__
    if not isinstance(found, dict) or found.keys() != names.keys():
        raise FormatError(f"this is no signed {what}: it has other fields than {', '.join(names)}.")
    if odd := [name for name, value in found.items() if not _fits(name, value)]:
        raise FormatError(f"this is no signed {what}: its {odd[0]} is {str(found[odd[0]])[:60]!r}.")
    if "tickets" in found:
        found["tickets"] = tuple(found["tickets"])
    statement = kind(**found)
    if not made.signers([PublicKey(bytes.fromhex(statement.key))]):
        raise FormatError(f"the signature of the {what} is not that of the key it names.")
    return statement


def _fits(name: str, value: Any) -> bool:
    if name in ("serial", "outputs"):
        return type(value) is int and 0 <= value < 2**53
    if name == "tickets":
        return isinstance(value, list) and len(value) <= 1000 and all(_is_text(one) for one in value)
    if name in ("digest", "commitment", "codebook"):
        return value == "" or _is_text(value)
    return _is_text(value) and (name != "key" or is_key(value))


def is_key(text: str) -> bool:
    """Whether a text is an Ed25519 key in the one spelling that is accepted: 64 lower-case hex digits."""
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()
