"""Federations and masked views, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from attacks.masked import federation, masked, plain
from splitwiper import Federation
from splitwiper_lab.attacks import ServerView, Truth

Known = tuple[ServerView, Truth]


@pytest.fixture(scope="session")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return federation(tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="session")
def unmasked(fed: Federation) -> Known:
    return plain(fed)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("masked")


@pytest.fixture(scope="session")
def duplicate(fed: Federation, folder: Path) -> Known:
    return masked(fed, folder / "duplicate", "duplicate")


@pytest.fixture(scope="session")
def noisy(fed: Federation, folder: Path) -> Known:
    return masked(fed, folder / "noisy", "duplicate", noise=0.5)


@pytest.fixture(scope="session")
def partition(fed: Federation, folder: Path) -> Known:
    return masked(fed, folder / "partition", "partition")


@pytest.fixture(scope="session")
def keyed(fed: Federation, folder: Path) -> Known:
    return masked(fed, folder / "keyed", "keyed")


@pytest.fixture(scope="session")
def one(fed: Federation, folder: Path) -> Known:
    return masked(fed, folder / "one", "one", train_half=False)
