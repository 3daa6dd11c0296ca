"""A run in which north has forgotten a class, and its certificate; not to be changed, but to be copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from federation.runs import halves, settings, three
from splitwiper import Federation, Receipt
from splitwiper.service.certificate import Keyring, PublicKey, SigningKey, certify_run
from splitwiper.store import ServerStore


@dataclass(frozen=True)
class Issued:
    """A run, the ticket that was settled in it, and its certificate."""

    path: Path
    receipt: Receipt
    certificate: dict[str, Any]

    @property
    def store(self) -> ServerStore:
        return ServerStore(self.path / "server")

    @property
    def key(self) -> SigningKey:
        return Keyring.of(self.store).key()

    @property
    def trusted(self) -> tuple[PublicKey, ...]:
        return Keyring.of(self.store).public()

    def federation(self) -> Federation:
        return Federation(self.path, halves())

    def copy(self, target: Path) -> Issued:
        return Issued(Path(shutil.copytree(self.path, target)), self.receipt, self.certificate)


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has forgotten nothing yet."""
    path = tmp_path_factory.mktemp("learned") / "ward"
    Federation(path, halves(), settings()).learn(three())
    return path


@pytest.fixture(scope="session")
def master(learned: Path, tmp_path_factory: pytest.TempPathFactory) -> Issued:
    """The run with its certificate; not to be changed."""
    path = Path(shutil.copytree(learned, tmp_path_factory.mktemp("master") / "ward"))
    receipt = Federation(path, halves()).unlearn("north", classes=["bird"])
    return Issued(path, receipt, certify_run(path, receipt.ticket))


@pytest.fixture
def issued(master: Issued, tmp_path: Path) -> Issued:
    """A copy of it, to be changed at will."""
    return master.copy(tmp_path / "ward")


@pytest.fixture
def fresh(learned: Path, tmp_path: Path) -> Iterator[Callable[[str], Federation]]:
    """Makes copies of the run that has forgotten nothing yet."""
    yield lambda name: Federation(Path(shutil.copytree(learned, tmp_path / name)), halves())
