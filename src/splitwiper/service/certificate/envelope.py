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
    """Return the bytes to sign: type and payload, each with its length.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True)
class Signature:
    """A signature, with its key's id as a hint. The hint is not signed: it only narrows the keys that are tried."""

    sig: bytes
    keyid: str = ""


@dataclass(frozen=True)
class Envelope:
    """A payload and its signatures."""

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]

    @classmethod
    def sign(cls, payload: bytes, keys: Iterable[SigningKey], *, payload_type: str = PAYLOAD_TYPE) -> Envelope:
        """Return an envelope signed with each key."""
        message = pae(payload_type, payload)
        return cls(payload, payload_type, tuple(Signature(key.sign(message), key.public.id) for key in keys))

    def signers(self, trusted: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
        """Return the trusted keys that signed this; signatures of other keys are ignored."""
        message, found = pae(self.payload_type, self.payload), dict[str, PublicKey]()
        keys = {key.id: key for key in trusted}
        for signature in self.signatures:
            # without a hint every key is tried; a wrong hint finds nothing, because it is never ignored
            tried = [keys[signature.keyid]] if signature.keyid in keys else []
            for key in tried if signature.keyid else keys.values():
                if key.verifies(signature.sig, message):
                    found[key.id] = key
        return tuple(found.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the envelope as plain values, spelled as in the specification."""
        return {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": s.keyid, "sig": base64.b64encode(s.sig).decode()} for s in self.signatures],
        }

    @classmethod
    def from_dict(cls, values: Any) -> Envelope:
        """Return the envelope in plain values; fields unknown to the specification are ignored, as it demands.

        Raises:
            FormatError: it is not an envelope.
        """
        wrong = FormatError("this is not a certificate: a DSSE envelope has payload, payloadType and signatures.")
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
        """Return the envelope in a JSON text.

        Raises:
            FormatError: it is not an envelope.
        """
        return cls.from_dict(loads(data, "certificate"))

    @classmethod
    def load(cls, path: str | Path) -> Envelope:
        """Return the envelope in a file.

        Raises:
            NotFoundError: there is no such file.
            FormatError: it does not contain an envelope.
        """
        return cls.from_bytes(read_limited(Path(path)))


def read_limited(path: Path) -> bytes:
    """Return a file's bytes; of a huge file, only enough to exceed the limit.

    Raises:
        NotFoundError: there is no such file.
    """
    try:
        with path.open("rb") as file:
            return file.read(LIMIT + 1)
    except FileNotFoundError as problem:
        raise NotFoundError(f"there is no certificate {path}. Check the path.") from problem


def _decoded(text: Any, what: str) -> bytes:
    """Decode base64, plain or URL-safe, and accept only one spelling of each value."""
    try:
        if not isinstance(text, str):
            raise ValueError
        # the specification allows both alphabets; within one, only one spelling of each value is accepted
        plain = text.replace("-", "+").replace("_", "/")
        out = base64.b64decode(plain, validate=True)
        if base64.b64encode(out).decode() != plain:
            raise ValueError
    except (ValueError, binascii.Error) as problem:
        raise FormatError(f"this is not a certificate: its {what} is not base64.") from problem
    return out
