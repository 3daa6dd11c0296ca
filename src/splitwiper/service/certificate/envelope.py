"""DSSE envelopes: a payload with its type, and signatures over both (secure-systems-lab, DSSE 1.0)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitwiper.errors import FormatError, NotFoundError
from splitwiper.service.certificate.canonical import LIMIT, loads
from splitwiper.service.certificate.keys import PublicKey, SigningKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MOST_SIGNATURES = 16


def pae(payload_type: str, payload: bytes) -> bytes:
    """What is signed: type and payload, each with its length.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True)
class Signature:
    """A signature, and a hint at its key. The hint is not signed: it only narrows the keys that are tried."""

    sig: bytes
    keyid: str = ""


@dataclass(frozen=True)
class Envelope:
    """A payload and who signed it."""

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]

    @classmethod
    def sign(cls, payload: bytes, keys: Iterable[SigningKey], *, payload_type: str = PAYLOAD_TYPE) -> Envelope:
        """An envelope signed by each key."""
        message = pae(payload_type, payload)
        return cls(payload, payload_type, tuple(Signature(key.sign(message), key.public.id) for key in keys))

    def signers(self, trusted: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
        """The trusted keys that signed this; those of unknown keys count for nothing."""
        message, found = pae(self.payload_type, self.payload), dict[str, PublicKey]()
        keys = {key.id: key for key in trusted}
        for signature in self.signatures:
            tried = [keys[signature.keyid]] if signature.keyid in keys else []
            for key in tried if signature.keyid else keys.values():
                if key.verifies(signature.sig, message):
                    found[key.id] = key
        return tuple(found.values())

    def to_dict(self) -> dict[str, Any]:
        """The envelope as plain values, as the specification spells it."""
        return {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": s.keyid, "sig": base64.b64encode(s.sig).decode()} for s in self.signatures],
        }

    @classmethod
    def from_dict(cls, values: Any) -> Envelope:
        """An envelope from plain values; fields that the specification does not know are passed over, as it says.

        Raises:
            FormatError: it is no envelope.
        """
        wrong = FormatError("this is no certificate: a DSSE envelope has payload, payloadType and signatures.")
        if not isinstance(values, Mapping) or not isinstance(values.get("payloadType"), str):
            raise wrong
        listed = values.get("signatures")
        if not isinstance(listed, list) or not all(isinstance(s, Mapping) for s in listed):
            raise wrong
        if len(listed) > MOST_SIGNATURES:
            raise FormatError(f"this certificate has {len(listed)} signatures; at most {MOST_SIGNATURES} are read.")
        signatures = []
        for s in listed:
            hint = s.get("keyid") or ""
            if not isinstance(hint, str):
                raise wrong
            signatures.append(Signature(_decoded(s.get("sig"), "sig"), hint))
        return cls(_decoded(values.get("payload"), "payload"), values["payloadType"], tuple(signatures))

    @classmethod
    def from_bytes(cls, data: bytes) -> Envelope:
        """An envelope from its JSON.

        Raises:
            FormatError: it is no envelope.
        """
        return cls.from_dict(loads(data, "certificate"))

    @classmethod
    def load(cls, path: str | Path) -> Envelope:
        """An envelope from a file.

        Raises:
            NotFoundError: there is no file.
            FormatError: it is no envelope.
        """
        return cls.from_bytes(read_limited(Path(path)))


def read_limited(path: Path) -> bytes:
    """A file's bytes, and of a huge one no more than tells that it is huge.

    Raises:
        NotFoundError: there is no file.
    """
    try:
        with path.open("rb") as file:
            return file.read(LIMIT + 1)
    except FileNotFoundError as problem:
        raise NotFoundError(f"there is no certificate {path}. Check the path.") from problem


def _decoded(text: Any, what: str) -> bytes:
    """Bytes from base64, plain or URL-safe, with one spelling for each."""
    try:
        if not isinstance(text, str):
            raise ValueError
        plain = text.replace("-", "+").replace("_", "/")
        out = base64.b64decode(plain, validate=True)
        if base64.b64encode(out).decode() != plain:
            raise ValueError
    except (ValueError, binascii.Error) as problem:
        raise FormatError(f"this is no certificate: its {what} is not base64.") from problem
    return out
