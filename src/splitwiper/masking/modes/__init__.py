"""Ways to turn labels into codes (Algorithm 3, second part, and Algorithm 4), one file each.

| mode | a row is sent | its code | bytes |
|---|---|---|---|
| `duplicate` | γ times | each of its label's codes (the paper's Algorithm 4) | γ × |
| `partition` | once | one of its label's codes, at random | 1 × |
| `subclass` | once | one of its label's codes, by the cluster of its activations | 1 × |
| `keyed` | once | a code that labels share, by a secret function of its input and its label | 1 × |

THREAT_MODEL.md says what each mode protects against and what it does not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from splitwiper import extensions
from splitwiper.config import Masking
from splitwiper.config.settings import part_path
from splitwiper.errors import ConfigError
from splitwiper.masking.codebook import Codebook, settings_text
from splitwiper.masking.modes.duplicate import Duplicate
from splitwiper.masking.modes.keyed import Keyed
from splitwiper.masking.modes.mode import ExpandingMode, Mode, ModeInputs
from splitwiper.masking.modes.partition import Partition
from splitwiper.masking.modes.subclass import Subclass
from splitwiper.masking.sealing import Draws, GroupKey
from splitwiper.wire import Label
from splitwiper.wire.labels import in_order

_EXPANDING: dict[str, type[Duplicate | Partition | Subclass]] = {
    "duplicate": Duplicate,
    "partition": Partition,
    "subclass": Subclass,
}
__all__ = ["ExpandingMode", "Mode", "ModeInputs", "expand", "mode_for"]


def mode_for(masking: Masking, key: GroupKey, version: int = 1) -> Mode:
    """Return the mode that the settings name, for a version of the codebook.

    Raises:
        ConfigError: a mode from outside cannot be imported, or does not take its settings.
    """
    # named after the first mode that needed a secret: another name would give that mode's rows other codes
    secret = key.derive("buckets", version)
    if path := part_path(masking, "mode"):
        mode: Mode = extensions.make(path, masking.mode_args, secret=secret)
        return mode
    if masking.mode == "keyed":
        return Keyed(secret, codes=masking.codes, buckets=masking.buckets)
    return _EXPANDING[masking.mode](*masking.range)


def expand(labels: Sequence[Label], key: GroupKey, masking: Masking, *, version: int = 1) -> Codebook:
    """Compute the codebook of a group from the agreed labels.

    Raises:
        ConfigError: there are fewer codes than labels, or a mode from outside gave codes that cannot be used.
    """
    ordered = in_order(labels)
    # everything that codes follow from is in the name of the draws: other settings or labels, other codes
    name = ("codebook", version, settings_text(masking), json.dumps([label.text for label in ordered]))
    outputs, codes = mode_for(masking, key, version).expand(ordered, Draws(key.raw, *name))
    given: set[int] = set().union(*codes.values())
    if not all(codes.get(label) for label in ordered) or not given <= set(range(outputs)):
        raise ConfigError(
            f"masking.mode = {masking.mode!r} gave {len(ordered)} labels codes that cannot be used: each label needs "
            "at least one, from 0 to E − 1."
        )
    return Codebook(key.federation, version, outputs, codes, key.derive("id", *name).hex())
