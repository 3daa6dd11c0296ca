"""What a client shares with the other clients: the group's key, and the codebook that hides labels."""

from __future__ import annotations

import json
from collections.abc import Iterable

from splitwiper.client.hiding import label_mac
from splitwiper.errors import CorruptError, DataError
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.sealing import GroupKey
from splitwiper.store import ClientTree
from splitwiper.store.records import labels_in
from splitwiper.wire import Label


class Group:
    """The group as one client's folder knows it."""

    def __init__(self, tree: ClientTree) -> None:
        self._tree = tree
        self._name = tree.root.name

    def key(self) -> GroupKey:
        """The key this client shares with the others.

        Raises:
            CorruptError: it is gone.
        """
        raw = self._tree.group()
        if raw is None:
            raise CorruptError(
                f"the group key of client {self._name!r} ({self._tree.root / 'group'}) is gone: restore it."
            )
        return GroupKey(self._tree.book.meta("federation") or "", raw)

    def has_codebook(self, version: int = 1) -> bool:
        """Whether there is a codebook of this version, or a later one."""
        return self._tree.book.number("codebook_version") >= version

    def codebook(self) -> Codebook:
        """The group's codebook.

        Raises:
            DataError: the client did not take part in the consensus.
            CorruptError: it cannot be read with the client's group key.
        """
        sealed = self._tree.sealed_codebook()
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
        """Labels that the client is to bring up besides its own, until they are agreed on."""
        return set(labels_in(self._tree.book.meta("wished") or "[]"))

    def wish(self, labels: Iterable[Label]) -> None:
        """Have the client bring up labels in the next agreement."""
        self._tree.remember(wished=json.dumps([label.text for label in labels]))

    def take(self, book: Codebook, labels: Iterable[Label]) -> None:
        """Keep a codebook, encrypted, and drop what was remembered of forgotten labels that are not in it.

        Args:
            book: the codebook.
            labels: those that the client holds.

        Raises:
            DataError: it is another federation's, or lacks a label that the client holds.
        """
        key = self.key()
        if book.federation != key.federation:
            raise DataError(f"client {self._name!r}: this codebook is that of another federation.")
        book.check(labels)
        self._tree.remember(
            codebook=book.sealed(key).hex(), codebook_version=str(book.version), unsent="codebook", wished="[]"
        )
        own = self._tree.key()
        if own is not None:
            self._tree.keep_forgotten(label_mac(own, label) for label in book.labels)
