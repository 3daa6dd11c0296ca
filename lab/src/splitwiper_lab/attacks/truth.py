"""The truth: used to score attacks, and never passed to one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from splitwiper.client.embed import Sending
from splitwiper.errors import FormatError, NotFoundError
from splitwiper.federation import Federation
from splitwiper.store import files
from splitwiper.wire import Label
from splitwiper.wire.columns import Array
from splitwiper.wire.labels import in_order
from splitwiper_lab.attacks.view import Place, code_numbers


@dataclass(frozen=True)
class Truth:
    """The true label of every uploaded row.

    Attributes:
        labels: the true labels.
        rows: per upload, the index of each row's true label; -1 for cover rows.
        codes: the codes of each label, or None if labels share codes.
        ids: per upload, a number that identifies each row across generations. Needed only to score which rows an attack
            claims were forgotten.
    """

    labels: tuple[Label, ...]
    rows: Mapping[Place, Array]
    codes: Mapping[Label, tuple[int, ...]] | None
    ids: Mapping[Place, Array] | None = None

    @classmethod
    def of(cls, federation: Federation) -> Truth:
        """Return the truth of a federation as it is now; take one before each change, and join them.

        Raises:
            NotFoundError: a client has unfinished work, so the server and the client hold different rows.
        """
        sent = dict(_sent(federation))
        labels = in_order(chain.from_iterable(sending.held for sending in sent.values()))
        rows, ids = {}, {}
        for place, sending in sent.items():
            rows[place] = _moved(sending.held, sending.truth(), labels)
            ids[place] = sending.sources()
        return cls(labels, rows, _codes(federation, labels), ids)

    def save(self, path: Path) -> None:
        """Write the truth to a new file."""
        codes = None
        if self.codes is not None:
            codes = [[label.text, list(numbers)] for label, numbers in self.codes.items()]
        places = list(self.rows)
        text = json.dumps({"labels": [label.text for label in self.labels], "codes": codes, "places": places})
        arrays: dict[str, Any] = {}
        for n, place in enumerate(places):
            arrays[f"rows{n}"] = self.rows[place]
            if self.ids:
                arrays[f"ids{n}"] = self.ids[place]
        with files.atomic_file(path) as file:
            np.savez(file, about=np.frombuffer(text.encode(), np.uint8), **arrays)

    @classmethod
    def load(cls, path: Path) -> Truth:
        """Read a truth written by `save`.

        Raises:
            FormatError: the file does not hold one.
        """
        try:
            rows, ids = {}, {}
            with np.load(path, allow_pickle=False) as held:
                about = json.loads(held["about"].tobytes())
                for n, (client, generation) in enumerate(about["places"]):
                    place = (str(client), int(generation))
                    rows[place] = held[f"rows{n}"]
                    if f"ids{n}" in held:
                        ids[place] = held[f"ids{n}"]
            codes = about["codes"] and {Label.parse(text): tuple(numbers) for text, numbers in about["codes"]}
            return cls(tuple(map(Label.parse, about["labels"])), rows, codes, ids or None)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise FormatError(f"{path} does not hold the truth about a snapshot ({problem}).") from problem

    def joined(self, *others: Truth) -> Truth:
        """Join this truth with others, for example those from before and after an unlearning."""
        every = (self, *others)
        labels = in_order(chain.from_iterable(truth.labels for truth in every))
        rows: dict[Place, Array] = {}
        ids: dict[Place, Array] = {}
        for truth in every:
            for place, values in truth.rows.items():
                rows[place] = _moved(truth.labels, values, labels)
            ids |= truth.ids or {}
        return Truth(labels, rows, _joined_codes(every, labels), ids or None)


def _moved(table: Sequence[Label], rows: Array, labels: Sequence[Label]) -> Array:
    """Convert indices into one table of labels to indices into another; -1 stays -1."""
    places = [*map(labels.index, table), -1]  # index -1 finds the last entry, which is -1
    return np.take(np.array(places, np.int64), rows)


def _joined_codes(every: tuple[Truth, ...], labels: tuple[Label, ...]) -> dict[Label, tuple[int, ...]] | None:
    joined: dict[Label, tuple[int, ...]] = {}
    plain = True
    for truth in every:
        if truth.codes is None:
            return None
        joined |= truth.codes
        plain = plain and truth.codes == _plain(truth.labels)
    return _plain(labels) if plain else joined  # plain codes are indices, which change when the table grows


def _plain(labels: tuple[Label, ...]) -> dict[Label, tuple[int, ...]]:
    return {label: (code,) for label, code in code_numbers(labels).items()}


def _codes(federation: Federation, labels: tuple[Label, ...]) -> dict[Label, tuple[int, ...]] | None:
    """Return the codes of each label; None if a code may stand for several labels."""
    masking = federation.config.client.masking
    if not masking.is_on:
        return _plain(labels)
    codebook = federation.codebook()
    if codebook is None or masking.mode == "keyed":
        return None
    return dict(zip(labels, map(codebook.of, labels), strict=True))


def inputs_of(federation: Federation) -> dict[Place, Array]:
    """Return the first input of every row, in the order of the shards: to score reconstructions."""
    return {place: next(iter(sending.inputs().values())) for place, sending in _sent(federation)}


def _sent(federation: Federation) -> Iterator[tuple[Place, Sending]]:
    """Yield, per upload that the server holds, the client's plan and rows that it was made from."""
    for client, generation, rows in federation.uploads():
        sending = federation.sent(client)
        if len(sending.plan) != rows:
            raise NotFoundError(f"client {client!r} holds other rows than the server: settle first.")
        yield (client, generation), sending
