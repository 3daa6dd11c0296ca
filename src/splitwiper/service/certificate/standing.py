"""Which signing keys count: keys that follow from known ones, and keys that are revoked from some point on.

When keys are rotated, the old key signs the new one, so that trust in one extends to the other. A key has one
successor. A thief of an old key can sign a succession of its own: those who know the true one do not follow it; those
who see both and know neither follow none, and no longer rely on the old key either.

A revocation names a key and a ledger size. The key's signatures count for ledgers of at most that size, and only
together with evidence from a key in good standing. Only a later key in the line of succession can revoke an earlier
one, so a thief of an old key cannot revoke its successors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from splitwiper.errors import FormatError, NotFoundError
from splitwiper.service.certificate.canonical import loads
from splitwiper.service.certificate.envelope import Envelope, PublicKey, SigningKey, read_limited, read_public
from splitwiper.service.certificate.signed import Count, Key, OptionalText, Reason, SignedMessage, Text

LARGEST = 1 << 40
"""The largest plausible number of ledger entries."""
STATEMENTS = "statements.json"
"""File next to public keys in a folder: successions and revocations, as a list of envelopes."""
_Message = TypeVar("_Message", bound=SignedMessage)


@dataclass(frozen=True)
class Succession(SignedMessage):
    """A key's statement that another one succeeds it; both in hex."""

    PAYLOAD_TYPE = "application/vnd.splitwiper.succession+json"
    TITLE = "a succession of keys"
    SIGNER = "old"

    old: Annotated[Key, Field(alias="from")]
    new: Annotated[Key, Field(alias="to")]


def succeed(old: SigningKey, new: PublicKey) -> dict[str, Any]:
    """Return the old key's statement that the new one succeeds it."""
    return Succession(old.public.raw.hex(), new.raw.hex()).sign(old)


@dataclass(frozen=True)
class Revocation(SignedMessage):
    """A statement that a key's signatures no longer count from some point on.

    Attributes:
        by: the public key that signs this.
        size: the size of the largest ledger for which signatures of the revoked key count.
        reason: the operator's reason, in words.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.revocation+json"
    TITLE = "a revocation of a key"
    SIGNER = "by"

    federation: OptionalText
    revoked: Text
    by: Key
    size: Count
    time: OptionalText
    reason: Reason

    @classmethod
    def of_disputed(cls, key: PublicKey) -> Revocation:
        """Return a stand-in revocation for a key that named two successors: no other key could sign a real one."""
        reason = "used by two owners: it named two successors, and no key that is known here says which one is right"
        return cls("", key.raw.hex(), key.raw.hex(), LARGEST, "", reason)

    def __str__(self) -> str:
        # a stand-in made by `of_disputed`: no key signed it
        if self.by == self.revoked:
            return self.reason
        return f"revoked at {self.time} for ledgers of more than {self.size} entries ({self.reason})"


@dataclass(frozen=True)
class Keys:
    """A server's signing keys, as seen by somebody who trusts some of them. Iterating yields all of them.

    Attributes:
        keys: all keys that were trusted at some time.
        revoked: revocations of keys that were revoked or named two successors, by key id.
    """

    keys: tuple[PublicKey, ...] = ()
    revoked: Mapping[str, Revocation] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Iterable[PublicKey], statements: Sequence[Mapping[str, Any]]) -> Keys:
        """Return the keys that follow from known ones, with the revocations that count."""
        steps: dict[str, set[str]] = {}
        for succession in _correct(Succession, statements):
            steps.setdefault(succession.old, set()).add(succession.new)
        keys = _followed(known, steps)
        revoked: dict[str, Revocation] = {}
        for revocation in _correct(Revocation, statements):
            # only a successor may revoke: otherwise a thief of an old key could revoke the keys after it
            key = keys.get(revocation.revoked)
            if key is None or revocation.by not in _after(revocation.revoked, steps, keys):
                continue
            if key.id not in revoked or revocation.size < revoked[key.id].size:  # of several, the strictest counts
                revoked[key.id] = revocation
        for raw, key in keys.items():
            successors = steps.get(raw, set())
            # more than one party has used a key that named several successors, unless a known one settles it; one of
            # the successors may have revoked it already
            if len(successors) > 1 and not successors & keys.keys():
                revoked.setdefault(key.id, Revocation.of_disputed(key))
        return cls(tuple(keys.values()), revoked)

    def __iter__(self) -> Iterator[PublicKey]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def good(self) -> tuple[PublicKey, ...]:
        """The keys that are not revoked."""
        return tuple(key for key in self.keys if key.id not in self.revoked)

    def signed(self, envelope: Envelope) -> bool:
        """Return whether a key in good standing signed an envelope."""
        return bool(envelope.signers(self.good))

    def doubtful(self, envelope: Envelope, size: int) -> Revocation | None:
        """Return the revocation of a key that signed an envelope, if the key still counts for a ledger of this size.

        Such a signature may be the server's own or a thief's. Only a head signed by a key in good standing, with a
        proof that both are of one ledger, can tell.
        """
        for key in envelope.signers(self.keys):
            revocation = self.revoked.get(key.id)
            # only sizes before the revocation are doubtful; after it, the signature is worth nothing
            if revocation is not None and size <= revocation.size:
                return revocation
        return None


def read_keys(paths: Iterable[Path]) -> Keys:
    """Read keys and statements about them: ``.pem`` files, ``.json`` files of statements, or folders of both."""
    known, statements = list[PublicKey](), list[Mapping[str, Any]]()
    for path in paths:
        if path.suffix == ".json" and not path.is_dir():
            statements += read_statements(path)
            continue
        for file in sorted(path.glob("*.json")):  # none if it is a file
            statements += read_statements(file)
        known += read_public(path)
    return Keys.of(known, statements)


def read_statements(path: Path) -> list[Mapping[str, Any]]:
    """Read a file with one statement about keys, or a list of them. Signatures are not checked."""
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}. Check the path.")
    content = loads(read_limited(path), "statement about keys")
    listed = content if isinstance(content, list) else [content]
    if not all(isinstance(statement, dict) and "payloadType" in statement for statement in listed):
        raise FormatError(f"{path} holds no statements about keys: give what the server's folder 'signing' has.")
    return listed


def _correct(kind: type[_Message], statements: Sequence[Mapping[str, Any]]) -> list[_Message]:
    """Return the statements of one kind; others, and those that are not correctly signed, are ignored."""
    correct = []
    for statement in statements:
        with suppress(FormatError):
            correct.append(kind.read(statement))
    return correct


def _followed(known: Iterable[PublicKey], steps: Mapping[str, set[str]]) -> dict[str, PublicKey]:
    """Return the known keys and every key that follows from them, by hex: each was signed by the key before it.

    Of two successors of one key, a known one counts; if neither is known, neither counts.
    """
    keys = {key.raw.hex(): key for key in known}
    unfollowed = list(keys)
    while unfollowed:
        successors = steps.get(unfollowed.pop(), set())
        if len(successors) == 1 and not successors & keys.keys():
            (raw,) = successors
            keys[raw] = PublicKey(bytes.fromhex(raw))
            unfollowed.append(raw)
    return keys


def _after(key: str, steps: Mapping[str, set[str]], known: Iterable[str]) -> set[str]:
    """Return all known keys that came after one."""
    later, newest = set[str](), {key}
    while newest:
        successors = set[str]().union(*(steps.get(old, set()) for old in newest))
        newest = successors.intersection(known) - later
        later |= newest
    return later
