"""Which signing keys count: keys that follow from known ones, and keys that are revoked from some point on.

A revocation names a key and a ledger size. The key's signatures count for ledgers of at most that size, and only
together with evidence from a key in good standing. Only a later key in the line of succession can revoke an earlier
one, so a thief of an old key cannot revoke its successors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitwiper.errors import FormatError, NotFoundError
from splitwiper.service.certificate.canonical import loads
from splitwiper.service.certificate.envelope import Envelope, read_limited
from splitwiper.service.certificate.keys import PublicKey, read_public
from splitwiper.service.certificate.signed import SignedMessage
from splitwiper.service.certificate.succession import disputed, followed, successions

LARGEST = 1 << 40
"""The largest plausible number of ledger entries."""
STATEMENTS = "statements.json"
"""File next to public keys in a folder: successions and revocations, as a list of envelopes."""


@dataclass(frozen=True)
class Revocation(SignedMessage):
    """A statement that a key's signatures no longer count from some point on.

    Attributes:
        federation: the id of the store whose keys these are.
        revoked: the public key, in hex.
        by: the public key that signs this, in hex.
        size: the size of the largest ledger for which signatures of the revoked key count.
        time: the time of the revocation.
        reason: the operator's reason, in words.
    """

    PAYLOAD_TYPE = "application/vnd.splitwiper.revocation+json"
    TITLE = "a revocation of a key"
    SIGNER = "by"
    MAY_BE_EMPTY = ("federation", "time", "reason")
    LONGEST = 1000

    federation: str
    revoked: str
    by: str
    size: int
    time: str
    reason: str

    @classmethod
    def of_disputed(cls, key: PublicKey) -> Revocation:
        """Return a stand-in revocation for a key that named two successors: no other key could sign a real one."""
        reason = "used by two owners: it named two successors, and no key that is known here tells which one is right"
        return cls("", key.raw.hex(), key.raw.hex(), LARGEST, "", reason)

    def __str__(self) -> str:
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
        keys = followed(known, statements)
        later = [(old.id, new.id) for old, new in successions(keys, statements)]
        revoked: dict[str, Revocation] = {}
        by_raw = {key.raw.hex(): key for key in keys}
        for statement in statements:
            said = _revocation(statement, by_raw)
            # only a successor may revoke: otherwise a thief of an old key could revoke the keys after it
            if said is None or by_raw[said.by].id not in _after(by_raw[said.revoked].id, later):
                continue
            name = by_raw[said.revoked].id
            if name not in revoked or said.size < revoked[name].size:  # of several, the strictest counts
                revoked[name] = said
        for key in disputed(keys, statements):  # one of its two successors may have revoked it
            revoked.setdefault(key.id, Revocation.of_disputed(key))
        return cls(keys, revoked)

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
        for key in envelope.signers(key for key in self.keys if key.id in self.revoked):
            if size <= self.revoked[key.id].size:
                return self.revoked[key.id]
        return None


def read_keys(paths: Iterable[Path]) -> Keys:
    """Read keys and statements about them: ``.pem`` files, ``.json`` files of statements, or folders of both.

    Raises:
        NotFoundError: there is none.
        FormatError: a file is neither.
    """
    known, statements = list[PublicKey](), list[Mapping[str, Any]]()
    for path in paths:
        told = sorted(path.glob("*.json")) if path.is_dir() else [path] if path.suffix == ".json" else []
        statements += [one for file in told for one in read_statements(file)]
        if path.is_dir() or not told:
            known += read_public(path)
    return Keys.of(known, statements)


def read_statements(path: Path) -> list[Mapping[str, Any]]:
    """Read a file with one statement about keys, or a list of them. Signatures are not checked.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it contains something else.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}. Check the path.")
    found = loads(read_limited(path), "statement about keys")
    listed = found if isinstance(found, list) else [found]
    if not all(isinstance(one, dict) and "payloadType" in one for one in listed):
        raise FormatError(f"{path} holds no statements about keys: give what the server's folder 'signing' has.")
    return listed


def _after(key: str, later: Sequence[tuple[str, str]]) -> set[str]:
    """Return the ids of all keys that came after one."""
    found, fresh = set[str](), {key}
    while fresh := {new for old, new in later if old in fresh} - found:
        found |= fresh
    return found


def _revocation(statement: Mapping[str, Any], keys: Mapping[str, PublicKey]) -> Revocation | None:
    """Return a statement's revocation; None if it is not one, not correctly signed, or not about known keys."""
    try:
        said = Revocation.read(statement)
    except FormatError:
        return None
    return said if said.revoked in keys and said.by in keys else None
