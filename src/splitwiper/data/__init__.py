"""Data: what a client may bring, and the sets and partitions that ship with the package."""

from splitwiper.data.rows import Data, Rows, as_rows

__all__ = ["Data", "Rows", "as_rows"]
