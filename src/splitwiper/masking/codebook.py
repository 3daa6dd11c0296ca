"""Label expansion and anonymisation (Algorithm 3, second part): the clients' secret map from labels to codes.

Every client computes the codebook from inputs that all of them share: the group's key, the settings and the agreed
labels. Nothing is sent. Changing the version (`rekey`) takes every client.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from splitwiper.config import Masking, to_toml
from splitwiper.errors import ConfigError, CorruptError, DataError
from splitwiper.masking.sealing import Draws, GroupKey
from splitwiper.wire import Label
from splitwiper.wire.labels import in_order

_WAYS = 64


@dataclass(frozen=True)
class Codebook:
    """Map from each label to its codes.

    Attributes:
        federation: the federation's id.
        version: 1, 2, 3…; only `rekey` raises it.
        outputs: E, the number of codes, 0 to E − 1; all that the server learns about the number of labels.
        codes: the codes of every label. In 'keyed' mode the b-th is the label's code in bucket b, and labels share
            codes; in other modes a code stands for one label.
        id: the codebook's public id; tells the server only whether two clients have the same codebook.
    """

    federation: str
    version: int
    outputs: int
    codes: Mapping[Label, tuple[int, ...]]
    id: str

    @property
    def labels(self) -> tuple[Label, ...]:
        """The agreed labels, in order."""
        return in_order(self.codes)

    def of(self, label: Label) -> tuple[int, ...]:
        """Return the codes of a label.

        Raises:
            DataError: the label was not agreed on.
        """
        if label not in self.codes:
            raise DataError(
                f"label {label.name!r} is not in the codebook: the clients did not agree on it. Have all of them agree "
                f"again (rekey, adding it), or leave its rows out."
            )
        return self.codes[label]

    def check(self, labels: Iterable[Label]) -> None:
        """Refuse labels that were not agreed on.

        Raises:
            DataError: a label is not in the codebook; the message names it.
        """
        for label in in_order(labels):
            self.of(label)

    def check_outputs(self, labels: Sequence[Label]) -> None:
        """Refuse scores whose codes are not exactly those of the codebook.

        Raises:
            DataError: the codes differ; the message names one that is not in the codebook.
        """
        wanted = tuple(Label("", code) for code in range(self.outputs))
        if tuple(labels) != wanted:
            odd = next((x.name for x in labels if x not in wanted), None)
            what = f"code {odd!r} is outside the codebook" if odd is not None else f"{len(labels)} codes were answered"
            raise DataError(f"{what}, which has codes 0 to {self.outputs - 1}: the server's model is not this group's.")

    # --- kept encrypted ------------------------------------------------------------------------------------

    def sealed(self, key: GroupKey) -> bytes:
        """Return the codebook encrypted, as it is stored on a client's disk."""
        codebook = [[label.text, list(codes)] for label, codes in self.codes.items()]
        return key.seal([self.federation, self.version, self.outputs, codebook, self.id], "codebook")

    @classmethod
    def opened(cls, sealed: bytes, key: GroupKey) -> Codebook:
        """Decrypt a stored codebook.

        Raises:
            CorruptError: it was altered, or belongs to another federation or group.
        """
        try:
            federation, version, outputs, codebook, name = key.open(sealed, "codebook")
        except CorruptError as problem:
            raise CorruptError(
                "the codebook cannot be read: it was altered, or is that of another federation or invitation. Restore "
                "the client's folder from a backup, or forget the whole client (everything=True)."
            ) from problem
        return cls(federation, version, outputs, {Label.parse(t): tuple(c) for t, c in codebook}, name)


def expand(labels: Sequence[Label], key: GroupKey, masking: Masking, *, version: int = 1) -> Codebook:
    """Compute the codebook of a group.

    Args:
        labels: the agreed labels.
        key: the group's key.
        masking: the settings.
        version: the codebook's version.

    Raises:
        ConfigError: there are fewer codes than labels.
    """
    ordered = in_order(labels)
    name = ("codebook", version, to_toml(masking), json.dumps([label.text for label in ordered]))
    draws = Draws(key.raw, *name)
    if masking.mode == "keyed":
        outputs = masking.codes or 2 * len(ordered)
        if outputs < len(ordered):
            raise ConfigError(
                f"masking.codes = {outputs} is fewer than the {len(ordered)} labels that clients agreed on: each needs "
                "a code of its own in every bucket; give more."
            )
        codes = _injections(ordered, outputs, masking.buckets, draws)
    else:
        codes = _expansion(ordered, *masking.range, draws)
        outputs = sum(map(len, codes.values()))
    return Codebook(key.federation, version, outputs, codes, key.derive("id", *name).hex())


def _expansion(labels: Sequence[Label], least: int, most: int, draws: Draws) -> dict[Label, tuple[int, ...]]:
    """Repeat each label γ times and shuffle; a label's codes are the positions of its copies."""
    copies = [label for label in labels for _ in range(least + draws.below(most - least + 1))]
    places: dict[Label, list[int]] = {label: [] for label in labels}
    for code, label in enumerate(draws.shuffled(copies)):
        places[label].append(code)
    return {label: tuple(codes) for label, codes in places.items()}


def _injections(labels: Sequence[Label], outputs: int, buckets: int, draws: Draws) -> dict[Label, tuple[int, ...]]:
    """Give every label a code of its own in each bucket.

    Codes are dealt like cards, so that all are used about equally often and neighbouring buckets share few of them.
    Of `_WAYS` random hands for a bucket, take the one that gives the fewest labels a code they already had.
    """
    tables: list[list[int]] = []
    deck: list[int] = []
    for _ in range(buckets):
        dealt: list[int] = []
        while len(dealt) < len(labels):
            at = next((i for i, code in enumerate(deck) if code not in dealt), None)
            if at is None:  # every code left in the deck, if any, is already dealt in this bucket
                deck += draws.shuffled(list(range(outputs)))
                continue
            dealt.append(deck.pop(at))  # the first code not yet in this bucket: labels of a bucket never share one
        tables.append(min((draws.shuffled(dealt) for _ in range(_WAYS)), key=lambda way: _repeats(way, tables)))
    return {label: tuple(table[q] for table in tables) for q, label in enumerate(labels)}


def _repeats(way: Sequence[int], before: Sequence[Sequence[int]]) -> int:
    """Count how often a label would get a code that it already has in an earlier bucket."""
    return sum(code == table[q] for table in before for q, code in enumerate(way))
