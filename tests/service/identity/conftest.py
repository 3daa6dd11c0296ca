"""An authority with a server, a client and an operator; made once, copied for every test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from splitwiper.service.identity import Authority
from splitwiper.service.identity.certificate_builder import PASSPHRASE


@pytest.fixture(autouse=True)
def _no_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE, raising=False)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    folder = tmp_path_factory.mktemp("made") / "certs"
    authority = Authority.create(folder, "ward", hosts=["localhost", "127.0.0.1"])
    authority.issue_client("north")
    authority.issue_operator("anna")
    return folder


@pytest.fixture
def certs(made: Path, tmp_path: Path) -> Path:
    """A copy, to be changed at will."""
    return Path(shutil.copytree(made, tmp_path / "certs"))


@pytest.fixture
def authority(certs: Path) -> Authority:
    """The authority in it."""
    return Authority(certs)


@pytest.fixture
def north(certs: Path) -> Path:
    """The client's folder in it."""
    return certs / "clients" / "north"


@pytest.fixture
def other(tmp_path: Path) -> Authority:
    """Another authority, of the same name, with a client of the same name."""
    out = Authority.create(tmp_path / "other", "ward", hosts=["localhost"])
    out.issue_client("north")
    return out
