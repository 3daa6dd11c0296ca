"""Signed messages: a dataclass's fields as canonical JSON in a DSSE envelope, signed with the key that it names.

Each message is a frozen dataclass that inherits from `SignedMessage`. The types of its fields determine what is
accepted when it is read: short printable texts, counts, lists of either, or a small mapping of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps, loads_canonical
from splitwiper.service.certificate.envelope import Envelope
from splitwiper.service.certificate.keys import PublicKey, SigningKey


@dataclass(frozen=True)
class SignedMessage:
    """A message signed with the key that it names."""

    PAYLOAD_TYPE: ClassVar[str]
    """The envelope's payload type, which is signed too, so that a message cannot pass for one of another kind."""
    TITLE: ClassVar[str]
    """What errors call it, with an article."""
    SIGNER: ClassVar[str] = "key"
    """The field with the signing public key, as 64 lower-case hexadecimal digits; empty if no field names it."""
    MAY_BE_EMPTY: ClassVar[tuple[str, ...]] = ()
    """Fields whose text may be empty."""
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Fields whose text must be one of these."""
    LONGEST: ClassVar[int] = 200
    """The largest number of characters in a text."""
    SPELLED: ClassVar[Mapping[str, str]] = {}
    """Names of fields in the payload, if Python does not allow them as names of attributes."""

    def envelope(self, key: SigningKey) -> Envelope:
        """Return the message in an envelope signed with ``key``."""
        payload = {self.SPELLED.get(name, name): value for name, value in asdict(self).items()}
        return Envelope.sign(dumps(payload), [key], payload_type=self.PAYLOAD_TYPE)

    def sign(self, key: SigningKey) -> dict[str, Any]:
        """Return the message as a signed DSSE envelope, in plain values."""
        return self.envelope(key).to_dict()

    @property
    def signer(self) -> PublicKey:
        """The public key that the message names as its signer."""
        return PublicKey(bytes.fromhex(getattr(self, self.SIGNER)))

    @classmethod
    def read(cls, envelope: Mapping[str, Any]) -> Self:
        """Return a message signed with the key that it names. The caller decides whether to trust that key.

        Raises:
            FormatError: it is not such a message, or its signature is wrong.
        """
        made = Envelope.from_dict(envelope)
        message = cls.unpack(made)
        if not made.signers([message.signer]):
            raise FormatError(f"this is not {cls.TITLE}: its signature is not that of the key it names.")
        return message

    @classmethod
    def unpack(cls, made: Envelope) -> Self:
        """Return the message in an envelope, without checking the signature.

        Raises:
            FormatError: it is not such a message.
        """
        wrong = f"this is not {cls.TITLE}"
        if made.payload_type != cls.PAYLOAD_TYPE:
            raise FormatError(f"{wrong}: its type is {made.payload_type[:60]!r}, not {cls.PAYLOAD_TYPE!r}.")
        found = loads_canonical(made.payload, cls.TITLE.partition(" ")[2])
        spelled = {field.name: cls.SPELLED.get(field.name, field.name) for field in fields(cls)}
        if not isinstance(found, dict) or found.keys() != set(spelled.values()):
            raise FormatError(f"{wrong}: it has other fields than {', '.join(spelled.values())}.")
        values: dict[str, Any] = {}
        for field in fields(cls):
            value = found[spelled[field.name]]
            if not cls._fits(field.name, str(field.type), value):
                raise FormatError(f"{wrong}: its {spelled[field.name]} is {str(value)[:60]!r}.")
            values[field.name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)

    @classmethod
    def _fits(cls, name: str, kind: str, value: Any) -> bool:
        """Return whether a value is valid for a field of this type."""
        # one spelling of each key: two would be two identities for the comparisons that follow
        if name == cls.SIGNER and not is_key(value):
            return False
        if name in cls.CHOICES:
            return value in cls.CHOICES[name]
        if kind == "str":
            return (value == "" and name in cls.MAY_BE_EMPTY) or _is_text(value, cls.LONGEST)
        return _KINDS[kind](value)


def is_key(value: Any) -> bool:
    """Return whether a value is an Ed25519 key in the one spelling that is accepted: 64 lower-case hex digits."""
    return isinstance(value, str) and len(value) == 64 and all(character in "0123456789abcdef" for character in value)


def _is_text(value: Any, longest: int = SignedMessage.LONGEST) -> bool:
    return isinstance(value, str) and 0 < len(value) <= longest and value.isprintable()


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


_KINDS: dict[str, Callable[[Any], bool]] = {
    "int": _is_count,
    "tuple[int, ...]": lambda value: isinstance(value, list) and len(value) <= 10_000 and all(map(_is_count, value)),
    "tuple[str, ...]": lambda value: isinstance(value, list) and len(value) <= 1000 and all(map(_is_text, value)),
    "Mapping[str, str]": lambda value: (
        isinstance(value, dict) and len(value) <= 64 and all(isinstance(text, str) for text in value.values())
    ),
}
"""Validators of field values, by the type's spelling in the dataclass."""
