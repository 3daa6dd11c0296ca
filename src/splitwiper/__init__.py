"""Split learning that can forget."""

__version__ = "0.1.0"
