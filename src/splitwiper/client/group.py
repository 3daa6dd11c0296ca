"""A client's share in the group that hides labels: the group's key, and the codebook."""

from __future__ import annotations

import json
from collections.abc import Iterable

from splitwiper.client.hiding import label_mac
from splitwiper.errors import CorruptError, DataError
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.sealing import GroupKey
from splitwiper.store import ClientStore
from splitwiper.store.records import labels_in
from splitwiper.wire import Label


class Group:
    """The group as one client's folder knows it."""

    def __init__(self, store: ClientStore) -> None:
        self._store = store
        self._name = store.root.name

    def key(self) -> GroupKey:
        """Return the key that this client shares with the others."""
        raw = self._store.group()
        if raw is None:
            raise CorruptError(
                f"the group key of client {self._name!r} ({self._store.root / 'group'}) is gone: restore it."
            )
        return GroupKey(self._store.database.meta("federation") or "", raw)

    def has_codebook(self, version: int = 1) -> bool:
        """Return whether the client has a codebook of this version, or a later one."""
        return self._store.database.number("codebook_version") >= version

    def codebook(self) -> Codebook:
        """Return the group's codebook."""
        sealed = self._store.sealed_codebook()
        if sealed is None:
            raise DataError(
                f"client {self._name!r} has no codebook: it did not take part in the consensus on labels. Call learn "
                "or settle, with every client that is to agree."
            )
        try:
            return Codebook.opened(sealed, self.key())
        except CorruptError as problem:
            raise CorruptError(f"client {self._name!r}: {problem}") from problem

    def wished(self) -> set[Label]:
        """Return labels that the client is to propose besides its own, until they are agreed on."""
        return set(labels_in(self._store.database.meta("wished") or "[]"))

    def wish(self, labels: Iterable[Label]) -> None:
        """Have the client propose labels in the next negotiation."""
        self._store.remember(wished=json.dumps([label.text for label in labels]))

    def take(self, codebook: Codebook, labels: Iterable[Label]) -> None:
        """Store a codebook, encrypted, and drop the records of forgotten labels that are not in it.

        ``labels`` are those that the client holds.

        Raises:
            DataError: it is another federation's, or lacks a label that the client holds.
        """
        key = self.key()
        if codebook.federation != key.federation:
            raise DataError(f"client {self._name!r}: this codebook is that of another federation.")
        codebook.check(labels)
        self._store.remember(
            codebook=codebook.sealed(key).hex(), codebook_version=str(codebook.version), unsent="codebook", wished="[]"
        )
        own = self._store.key()
        if own is not None:
            self._store.keep_forgotten(label_mac(own, label) for label in codebook.labels)
