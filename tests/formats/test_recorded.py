"""Folders that earlier versions wrote are read, verified and worked on. `scripts/recorded_formats.py` made them.

Where the archives' version of torch is not installed, the run is refused rightly: a network's identity includes it.
"""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from federation.runs import halves, three
from service.processes import MODEL, data
from service.serving import certificates, service_over
from splitwiper import Federation, Receipt
from splitwiper.config import Config, ModelConfig
from splitwiper.federation.build import build_halves
from splitwiper.server import Server
from splitwiper.service.certificate import check, read_public
from splitwiper.service.site import Site
from splitwiper.store import ServerStore

RECORDED = Path(__file__).parent / "recorded"
FORMATS = sorted(path.name for path in RECORDED.iterdir())
HERE = ("exact", "not_comparable")
"""Outcomes of recomputing what may have been computed on another processor."""


@pytest.fixture(params=FORMATS)
def formats(request: pytest.FixtureRequest) -> Path:
    return RECORDED / request.param


@pytest.fixture
def expected(formats: Path) -> dict[str, Any]:
    found = json.loads((formats / "expected.json").read_text(encoding="utf-8"))
    if found["versions"]["torch"] != torch.__version__:
        pytest.skip(f"recorded with torch {found['versions']['torch']}, and torch {torch.__version__} is installed")
    return found


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="tar")
    return folder


def test_a_run_is_read_verified_and_goes_on(formats: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    path = unpacked(formats / "run.tar.xz", tmp_path) / "run"
    fed = Federation(path, halves())
    assert len(fed.rows("north")) == expected["run"]["rows"]
    assert fed.predict("south", three()["south"][0]) == expected["run"]["predicted"]
    receipt = Receipt.load(path / "receipt.json")
    assert fed.verify(receipt).outcome in HERE
    assert fed.learn({"north": three()["north"]}).added["north"].refused, "the forgotten class is refused still"
    assert fed.verify(fed.unlearn("west", classes=["eel"])).outcome in HERE
    assert not fed.status().todo


def test_a_store_and_its_sites_go_on(formats: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    folder, certs = unpacked(formats / "service.tar.xz", tmp_path), certificates(tmp_path / "certs")
    half = build_halves(Config(seed=5, model=ModelConfig(**MODEL))).server
    with service_over(folder / "store", half, certs, signed=True, probabilities=False) as url:
        north, south = (site_at(folder / name, url, certs) for name in ("north", "south"))
        assert len(north.client.holdings.ids()) == expected["service"]["rows"]
        assert south.predict("south", data()["south"][0]) == expected["service"]["predicted"]
        assert north.certificate(expected["service"]["ticket"]).checked.holds
        ticket = north.forget(samples=list(north.client.holdings.ids())[:2])
        north.settle(patience=5)
        server = Server(ServerStore(folder / "store"), half)
        server.train()
        server.store.database.close()
        assert north.certificate(ticket).checked.holds
        north.close(), south.close()


def test_a_certificate_is_checked_offline(formats: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    folder = unpacked(formats / "service.tar.xz", tmp_path)
    (kept,) = (folder / "north" / "north" / "certificates").glob("*.json")
    envelope = json.loads(kept.read_text(encoding="utf-8"))
    found = check(envelope, read_public(folder / "north" / "north" / "server-keys"))
    assert found.outcome == "holds" and found.certificate["ticket"] == expected["service"]["ticket"]


def site_at(folder: Path, url: str, certs: Path) -> Site:
    """Open a site with a certificate that is valid today, at the address that its server has now."""
    path = folder / "site.toml"
    text = re.sub(r'(?m)^url = ".*"$', f'url = "{url}"', path.read_text(encoding="utf-8"))
    text = re.sub(r'(?m)^certs = ".*"$', f'certs = "{certs / "clients" / folder.name}"', text)
    path.write_text(text, encoding="utf-8")
    return Site(folder)
