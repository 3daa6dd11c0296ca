"""Noise on activations, on the client's side only: mechanisms, secure streams, and accounting.

The setting `reading` says what epsilon is stated for; `stated` gives the epsilon of a row *and* of a value for any
setting, and `Budget` after all releases. The paper's two inferred readings are in `calibration.paper`.
"""

from splitwiper.config import Noise
from splitwiper.privacy.accounting import Budget, Epsilon, Release, Spending, stated
from splitwiper.privacy.calibration import paper, scale
from splitwiper.privacy.noise import protect
from splitwiper.privacy.sources import ByContent, ByPlace, row_contents
from splitwiper.privacy.stream import SecureStream, check_noise, secure_stream

__all__ = [
    "Budget",
    "ByContent",
    "ByPlace",
    "Epsilon",
    "Noise",
    "Release",
    "SecureStream",
    "Spending",
    "check_noise",
    "paper",
    "protect",
    "row_contents",
    "scale",
    "secure_stream",
    "stated",
]
