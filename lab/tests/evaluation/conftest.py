"""Fixtures of comparisons."""

from evaluation.small import _one_thread, found

__all__ = ["_one_thread", "found"]
