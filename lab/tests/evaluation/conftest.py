"""Fixtures of comparisons, and processes of a sweep that start in milliseconds."""

import multiprocessing

import pytest

from evaluation.small import _one_thread, found
from splitwiper_lab.sweeps import engine

__all__ = ["_one_thread", "forked", "found"]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork a sweep's processes from one that has imported everything, and has never computed."""
    multiprocessing.set_forkserver_preload(["torch._dynamo", "splitwiper_lab.evaluation.reproduction"])
    monkeypatch.setattr(engine, "get_context", lambda _: multiprocessing.get_context("forkserver"))
