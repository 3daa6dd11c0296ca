"""The server's signing keys as a site knows them: those it saw first, and those that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from splitwiper.errors import FormatError, UnreachableError
from splitwiper.service.certificate import Keys, PublicKey, read_public
from splitwiper.service.certificate.canonical import LIMIT, dumps
from splitwiper.service.certificate.standing import STATEMENTS, read_statements
from splitwiper.store import files

Ask = Callable[..., Any]
"""Makes a GET call and returns the answer's JSON, unchecked."""


class ServerKeys:
    """Public keys in a folder of the site, and statements by these keys about each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> Keys:
        """Return the known keys; none before the first contact."""
        known = read_public(self.folder) if any(self.folder.glob("*.pem")) else ()
        return Keys.of(known, self._statements())

    def refresh(self, ask: Ask) -> Keys:
        """Fetch the keys' new statements, and store them. On the first contact, trust the keys shown.

        Raises:
            UnreachableError: the answer does not come from a SplitWiper server.
        """
        known = self.read()
        fetched = ask("/v1/keys/succession")
        try:
            # trust on first use: from then on, only keys that follow from these count
            first = known.keys or tuple(PublicKey.from_pem(text.encode()) for text in ask("/v1/keys"))
        except (FormatError, AttributeError, TypeError) as problem:
            raise UnreachableError("the server's signing keys cannot be read: tell its operator.") from problem
        if not isinstance(fetched, list) or not all(isinstance(statement, dict) for statement in fetched):
            raise UnreachableError("what the server's signing keys said cannot be read: tell its operator.")
        before = self._statements()
        statements = [*before, *(statement for statement in fetched if statement not in before)]
        keys = Keys.of(first, statements)
        files.make_folder(self.folder)
        for key in keys:
            if key not in known.keys:
                files.write_bytes(self.folder / f"{key.id[:16]}.pem", key.pem())
        text = dumps(statements)
        # a server that invents statements must not fill the disk, nor make the file unreadable for this site
        if statements != before and len(text) < LIMIT:
            files.write_bytes(self.folder / STATEMENTS, text)
        return keys

    def _statements(self) -> list[Any]:
        path = self.folder / STATEMENTS
        return list(read_statements(path)) if path.exists() else []
