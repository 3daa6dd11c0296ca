"""Data: what a client may bring, brought into one form; and the handwritten digits of the demo."""

from splitwiper.data.rows import Data, Rows, as_rows

__all__ = ["Data", "Rows", "as_rows"]
