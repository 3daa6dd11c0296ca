"""What every codec, hiding mode and part of training must do, whoever wrote it.

The tests here run over all implementations: those built in, and those of `ward_parts`, a package as somebody else would
write it, which uses only what docs/how-to/extend.md names.
"""

from __future__ import annotations

from typing import Any

from splitwiper.config import CODECS, Masking

OUTSIDE = "outside"
CODEC_SETTINGS: dict[str, dict[str, Any]] = {name: {"codec": name} for name in CODECS} | {
    OUTSIDE: {"codec": "logarithmic", "codec_args": {"reach": 300.0}}
}
"""Settings of a client by the codec's name in test ids."""
MODES = {
    "duplicate": Masking(mode="duplicate", gamma=(1, 3)),
    "partition": Masking(mode="partition", gamma=2),
    "subclass": Masking(mode="subclass", gamma=3),
    "keyed": Masking(mode="keyed", buckets=4),
    OUTSIDE: Masking(mode="striped", mode_args={"stripes": 3}, pad=7),
}
