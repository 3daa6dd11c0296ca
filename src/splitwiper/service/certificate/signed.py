"""Signed messages: a dataclass's fields as canonical JSON in a DSSE envelope, signed with the key that it names.

Each message is a frozen dataclass that inherits from `SignedMessage`. The types of its fields, such as `Text` and
`Count`, say what pydantic accepts when a message is read. Unknown, missing and mistyped fields are refused. Sequences
are marked `FailFast`: without it, a message of 32,000 wrong elements would have as many errors, and collecting them
stops the service for everybody.

A site signs its registration, requests to be forgotten, and every shard or withdrawal. Its key is made at the site and
never leaves it; it does not come from the operator's authority. So an issuer of certificates cannot make requests in a
client's name. A thief of the site's TLS key can connect in its name, but can neither replace nor withdraw its shard. A
server that trains on a shard other than the site's has no signature to show for it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads_canonical
from splitwiper.service.certificate.envelope import Envelope, PublicKey, SigningKey


def printable(text: str) -> str:
    """Refuse a text that could not be shown on a terminal as it is."""
    if not text.isprintable():
        raise ValueError("it has characters that cannot be printed")
    return text


OptionalText = Annotated[str, Field(max_length=200), AfterValidator(printable)]
"""A short printable text, which may be empty."""
Text = Annotated[OptionalText, Field(min_length=1)]
Reason = Annotated[str, Field(max_length=1000), AfterValidator(printable)]
# JSON readers of other languages keep integers exact up to 2**53 only
Count = Annotated[int, Field(ge=0, lt=2**53)]
# one spelling of each value: a key with two would have two identities for the comparisons that follow
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Key = Hash
"""An Ed25519 public key in hex."""


def refusal(problem: ValidationError) -> str:
    """Return why a message was refused: its first field that is wrong."""
    first = problem.errors(include_url=False, include_context=False)[0]
    # names and values are the sender's: shown with repr, and cut before that, since they may be long
    field, value = ".".join(map(str, first["loc"]))[:60], first["input"]
    value = value[:60] if isinstance(value, str) else reprlib.repr(value)[:60]
    known = {"missing": "is missing", "extra_forbidden": "is unknown", "model_type": "should be an object"}
    reason = known.get(first["type"], f"is {value!r}: {first['msg']}")
    return f"its field {field!r} {reason}"


@dataclass(frozen=True)
class SignedMessage:
    """A message signed with the key that it names.

    Fields of several messages: ``federation`` is the id of the server's store, so that a message counts nowhere else;
    ``made`` or ``time`` is the time by the signer's clock; ``key`` is the public key that signs.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")
    PAYLOAD_TYPE: ClassVar[str]
    """The envelope's payload type, which is signed too, so that a message cannot pass for one of another kind."""
    TITLE: ClassVar[str]
    """What errors call it, with an article."""
    SIGNER: ClassVar[str] = "key"
    """The field with the public key that signs; empty if no field names it."""

    def envelope(self, key: SigningKey) -> Envelope:
        """Return the message in an envelope signed with ``key``."""
        values = self._adapter().dump_python(self, by_alias=True, warnings=False)
        return Envelope.sign(dumps(values), [key], payload_type=self.PAYLOAD_TYPE)

    def sign(self, key: SigningKey) -> dict[str, Any]:
        """Return the message as a signed DSSE envelope, in plain values."""
        return self.envelope(key).to_dict()

    @property
    def signer(self) -> PublicKey:
        """The public key that the message names as its signer."""
        return PublicKey(bytes.fromhex(getattr(self, self.SIGNER)))

    @classmethod
    def read(cls, envelope: Mapping[str, Any]) -> Self:
        """Return a message signed with the key that it names, or raise `FormatError`. The caller decides on the key."""
        signed = Envelope.from_dict(envelope)
        message = cls.unpack(signed)
        if not signed.signers([message.signer]):
            raise FormatError(f"this is not {cls.TITLE}: its signature is not that of the key it names.")
        return message

    @classmethod
    def unpack(cls, envelope: Envelope) -> Self:
        """Return the message in an envelope without checking the signature, or raise `FormatError`."""
        wrong = f"this is not {cls.TITLE}"
        if envelope.payload_type != cls.PAYLOAD_TYPE:
            raise FormatError(f"{wrong}: its type is {envelope.payload_type[:60]!r}, not {cls.PAYLOAD_TYPE!r}.")
        # first: pydantic would accept duplicate keys and other spellings of the same values
        values = loads_canonical(envelope.payload, cls.TITLE.partition(" ")[2])
        if not isinstance(values, dict):
            raise FormatError(f"{wrong}: it should be an object.")
        # also before pydantic, which copies the whole message into the error of every field that is missing
        for name in cls._field_names():
            if name not in values:
                raise FormatError(f"{wrong}: its field {name!r} is missing.")
        if unknown := values.keys() - set(cls._field_names()):
            raise FormatError(f"{wrong}: its field {min(unknown)[:60]!r} is unknown.")
        try:
            message: Self = cls._adapter().validate_json(envelope.payload)
        except ValidationError as problem:
            raise FormatError(f"{wrong}: {refusal(problem)}.") from problem
        return message

    @classmethod
    @cache
    def _adapter(cls) -> TypeAdapter[Any]:
        return TypeAdapter(cls)

    @classmethod
    @cache
    def _field_names(cls) -> tuple[str, ...]:
        return tuple(cls._adapter().json_schema(by_alias=True)["required"])


@dataclass(frozen=True)
class Registration(SignedMessage):
    """A site's statement of its signing key. Signing with that key proves that the site holds the private half."""

    PAYLOAD_TYPE = "application/vnd.splitwiper.registration+json"
    TITLE = "a signed registration"

    federation: Text
    client: Text
    made: Text
    key: Key


@dataclass(frozen=True)
class SignedRequest(SignedMessage):
    """A request as a client signs it. It does not say what is to be forgotten.

    Attributes:
        ticket: the request's id, drawn by the client: sending the request again repeats the same one.
        commitment: commits to the rows that the client suppresses; only the client can open it.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.request+json"
    TITLE = "a signed request"

    federation: Text
    client: Text
    ticket: Text
    level: Annotated[str, Field(pattern="^(class|sample|client)$")]
    commitment: Text
    made: Text
    key: Key


@dataclass(frozen=True)
class ShardStatement(SignedMessage):
    """A site's statement of its current shard, or that it has none.

    Attributes:
        serial: a number larger than in every earlier statement, so that an old one cannot be replayed.
        digest: the shard's digest; empty if the shard is withdrawn.
        commitment: the commitment to the shard, under the site's own salt; empty if it is withdrawn.
        codebook: the name of the codebook that its label codes come from; empty if labels are not hidden.
        outputs: the number of codes in that codebook.
        tickets: the requests that it answers.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.shard+json"
    TITLE = "a signed statement about a shard"

    federation: Text
    client: Text
    serial: Count
    digest: OptionalText
    commitment: OptionalText
    codebook: OptionalText
    outputs: Count
    tickets: Annotated[tuple[Text, ...], Field(max_length=1000), FailFast()]
    made: Text
    key: Key
