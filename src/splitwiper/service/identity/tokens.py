"""Bearer tokens, for clients that reach the server through a proxy that terminates TLS.

A token is ``swt_ID_SECRET``: a recognisable prefix, a public id, 256 random bits. The file stores only hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from splitwiper.errors import IdentityError, InputError, NotFoundError, nearest
from splitwiper.service.identity import folders
from splitwiper.service.identity.folders import TOKENS
from splitwiper.service.identity.index import Clock, moment, utc_now
from splitwiper.service.identity.names import Principal, PrincipalKind
from splitwiper.store import files

FORMAT, VERSION = "splitwiper-tokens", 1
_TOKEN = re.compile(r"swt_([0-9a-f]{16})_[0-9a-f]{64}")
_NOBODY = "0" * 64
_DATES = ("created", "expires", "revoked")


@dataclass(frozen=True)
class Token:
    """The record of a token without its secret: its public id, its owner, and SHA-256 of the whole token."""

    id: str
    kind: PrincipalKind
    name: str
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None
    hash: str = field(default="", repr=False)

    def state(self, at: datetime) -> str:
        """Return ``"valid"``, ``"expired"`` or ``"revoked"``."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and at >= self.expires else "valid"


class Tokens:
    """The tokens that a server accepts, in a file of its folder that is reloaded after a change."""

    def __init__(self, folder: str | Path, *, clock: Clock = utc_now) -> None:
        self.folder, self._clock = Path(folder), clock
        self._path = self.folder / TOKENS
        self._known = folders.Reloaded(self._read, self._path)

    def add(self, principal: Principal, expires: datetime | None = None) -> str:
        """Create a token and return it. It cannot be shown again. `InputError` if it would already have expired."""
        now = self._clock()
        if expires is not None:
            expires = expires.astimezone(UTC)
            if expires <= now:
                raise InputError(f"a token that expires {expires.isoformat()} is of no use: give a later time.")
        # 256 random bits cannot be guessed, so the file can hold a plain hash of them
        public = secrets.token_hex(8)
        text = f"swt_{public}_{secrets.token_hex(32)}"
        with self._changing() as known:
            known[public] = Token(public, principal.kind, principal.name, now, expires, None, _hash(text))
        return text

    def check(self, text: str) -> Principal:
        """Return the token's owner, or raise `IdentityError`. Its id stands for a serial number."""
        match = _TOKEN.fullmatch(text)
        if match is None:
            raise IdentityError("this is not a token: one begins with 'swt_' and has 85 characters; give it whole.")
        token = self._known.value().get(match[1])
        same = hmac.compare_digest(_hash(text), token.hash if token else _NOBODY)  # unknown ids take equally long
        if token is None or not same:
            raise IdentityError(f"token {match[1]} is not known here, or was altered: ask the operator for a new one.")
        state = token.state(self._clock())
        if state != "valid":
            raise IdentityError(
                f"token {token.id} of {token.kind} {token.name!r} is {state}: ask the operator for a new one."
            )
        # rate limits and logs go by kind and name, so that a client gets no more by having several tokens
        return Principal(token.kind, token.name, token.id)

    def revoke(self, which: str, *, kind: PrincipalKind | None = None) -> list[Token]:
        """Revoke a token by its id, or all of an owner by name. Revoking a revoked token changes nothing."""
        with self._changing() as known:
            ids, owners, names = list[str](), set[tuple[str, str]](), set(known)
            for token in known.values():
                names.add(token.name)
                if which in (token.id, token.name) and kind in (None, token.kind):
                    ids.append(token.id)
                    owners.add((token.kind, token.name))
            if len(owners) > 1:
                raise InputError(f"{which!r} may mean several owners: say which with --kind (kind=).")
            if not ids:
                raise NotFoundError(f"no token has the id or the name {which!r}.{nearest(which, sorted(names))}")
            for id_ in ids:
                known[id_] = replace(known[id_], revoked=known[id_].revoked or self._clock())
        return [known[id_] for id_ in ids]

    def listed(self) -> list[Token]:
        """Return all tokens, in order of creation."""
        return list(self._known.value().values())

    def _read(self) -> dict[str, Token]:
        known: dict[str, Token] = {}
        if self._path.is_file():
            for line in folders.read_lines(self._path, form=FORMAT, version=VERSION)[1:]:
                token = _token(self._path, line)
                known[token.id] = token
        return known

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Token]]:
        """Yield all tokens, and store them afterwards, unless there was an error."""
        with files.locked(self.folder):
            known = self._read()
            yield known
            heading = {"format": FORMAT, "version": VERSION}
            folders.write_lines(self._path, [folders.to_line(heading), *map(_line, known.values())])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _line(token: Token) -> str:
    values = asdict(token)
    for name in _DATES:
        values[name] = values[name] and values[name].isoformat()
    return folders.to_line(values)


def _token(path: Path, line: str) -> Token:
    try:
        raw = json.loads(line)
        for name in _DATES:
            raw[name] = raw[name] and moment(raw[name])
        Principal(raw["kind"], raw["name"])  # refuses what cannot be a caller's kind and name
        if not re.fullmatch(r"[0-9a-f]{64}", raw["hash"]):
            raise ValueError("no hash")
        return Token(**raw)
    except (ValueError, KeyError, TypeError) as problem:
        raise folders.damaged(path, f"a line is not a token's ({problem})") from problem
