"""Ways to turn labels into codes, one file each.

| mode | a row is sent | its code | bytes |
|---|---|---|---|
| `duplicate` | γ times | each of its label's codes (the paper's Algorithm 4) | γ × |
| `partition` | once | one of its label's codes, at random | 1 × |
| `subclass` | once | one of its label's codes, by the cluster of its activations | 1 × |
| `keyed` | once | a code that labels share, by a secret function of its input and its label | 1 × |

THREAT_MODEL.md says what each mode protects against and what it does not.
"""

from __future__ import annotations

from splitwiper.config import Masking
from splitwiper.masking.modes.duplicate import Duplicate
from splitwiper.masking.modes.keyed import Keyed
from splitwiper.masking.modes.mode import Mode, ModeInputs
from splitwiper.masking.modes.partition import Partition
from splitwiper.masking.modes.subclass import Subclass
from splitwiper.masking.sealing import GroupKey

__all__ = ["Mode", "ModeInputs", "mode_for"]


def mode_for(masking: Masking, key: GroupKey, version: int = 1) -> Mode:
    """Return the mode that the settings name, for a version of the codebook."""
    if masking.mode == "keyed":
        return Keyed(masking, key, version)
    modes: dict[str, Mode] = {"duplicate": Duplicate(), "partition": Partition(), "subclass": Subclass()}
    return modes[masking.mode]
