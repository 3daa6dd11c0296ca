"""The codebook: the clients' secret map from labels to codes (Algorithm 3, second part).

Every client computes it (`splitwiper.masking.modes.expand`) from inputs that all of them share: the group's key, the
settings and the agreed labels. Nothing is sent. Changing the version (`rekey`) takes every client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from splitwiper.config import Masking, origins, to_toml
from splitwiper.errors import CorruptError, DataError
from splitwiper.masking.sealing import GroupKey
from splitwiper.wire import Label
from splitwiper.wire.labels import in_order


@dataclass(frozen=True)
class Codebook:
    """Map from each label to its codes.

    Attributes:
        federation: the federation's id.
        version: 1, 2, 3…; only `rekey` raises it.
        outputs: E, the number of codes, 0 to E − 1; the server learns nothing else about the number of labels.
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
        wanted = [Label("", code) for code in range(self.outputs)]
        if list(labels) != wanted:
            odd = [label.name for label in labels if label not in wanted]
            fault = f"code {odd[0]!r} is outside the codebook" if odd else f"{len(labels)} codes were answered"
            raise DataError(
                f"{fault}, which has codes 0 to {self.outputs - 1}: the server's model belongs to another group."
            )

    # --- kept encrypted ------------------------------------------------------------------------------------

    def sealed(self, key: GroupKey) -> bytes:
        """Return the codebook encrypted, as it is stored on a client's disk."""
        codes = [[label.text, own] for label, own in self.codes.items()]
        return key.seal([self.federation, self.version, self.outputs, codes, self.id], "codebook")

    @classmethod
    def opened(cls, sealed: bytes, key: GroupKey) -> Codebook:
        """Decrypt a stored codebook.

        Raises:
            CorruptError: it was altered, or belongs to another federation or group.
        """
        try:
            federation, version, outputs, entries, name = key.open(sealed, "codebook")
        except CorruptError as problem:
            raise CorruptError(
                "the codebook cannot be read: it was altered, or is that of another federation or invitation. Restore "
                "the client's folder from a backup, or forget the whole client (everything=True)."
            ) from problem
        codes = {Label.parse(text): tuple(own) for text, own in entries}
        return cls(federation, version, outputs, codes, name)


def settings_text(masking: Masking) -> str:
    """Return settings as the text that clients compare and codebooks are drawn from: equal text, equal codes.

    The code of a mode from outside is part of it, so that clients with another version of it notice before they agree.
    """
    text = to_toml(masking, added_later=False)
    for name, origin in origins(masking).items():
        text += f"{name}: {origin}\n"
    return text
