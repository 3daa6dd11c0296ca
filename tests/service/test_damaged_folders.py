"""Every kind of file of a site and a store, damaged in every way: each command ends with an exit code of the table."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from reliability.damaging import DAMAGES, empty, kinds, outcome, troubles
from service.processes import MODEL_TOML
from service.scene import EPOCHS, Scene
from splitwiper.config import ClientConfig, to_toml
from splitwiper.errors import ConfigError, CorruptError
from splitwiper.service import logs, running
from splitwiper.service.site import Site
from splitwiper.service.storing import open_store, read_server


@pytest.fixture
def scene(tmp_path: Path, certs: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, certs)
    scene.certificate(scene.forget())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield scene
    scene.close()


def server_file(folder: Path, certs: Path) -> Path:
    file = folder / "server.toml"
    training = f"[server]\nepochs = {EPOCHS}\nbatch = 16\nthreads = 1\n"
    file.write_text(
        f'seed = 5\n{MODEL_TOML}{training}[service]\ncerts = "{certs / "server"}"\nport = 0\n', encoding="utf-8"
    )
    return file


def test_sites(scene: Scene, tmp_path: Path, certs: Path) -> None:
    site, work, rows = tmp_path / "north", tmp_path / "work", tmp_path / "rows.npz"
    (ticket,) = (one.id for one in scene.north.requests())
    np.savez(rows, inputs=scene.rows["north"][0], labels=scene.rows["north"][1])
    commands = {
        "predict": ("predict", work, "north", rows, "--local"),
        "verify": ("verify", work),
        "certificate": ("certificate", work, ticket),
        "head": ("head", work),
        "list": ("certificate", work),
        "finish": ("forget", work, "--patience", 0),
        "accept": ("accept-restore", work, "--yes"),
    }
    assert len(kinds(site)) >= 12
    assert troubles(site, work, commands) == []
    # what changes the server comes last
    own = to_toml(ClientConfig(epochs=2, batch=8, head_width=4, threads=1))
    told = f'name = "north"\nurl = "{scene.url}"\ncerts = "{certs / "clients" / "north"}"\ndata = "rows.npz"\n'
    (tmp_path / "north.toml").write_text(f"{told}spot_check = 1.0\n{MODEL_TOML}[client]\n{own}", encoding="utf-8")
    changing = {
        "join": ("join", tmp_path / "north.toml", "--site", work, "--patience", 0),
        "forget": ("forget", work, "--class", "cat", "--patience", 0),
    }
    assert troubles(site, work, changing, DAMAGES[::2]) == []


class Idle(running.HttpServer):
    """Does all but wait for calls."""

    def run(self, sockets: object = None) -> None:
        pass


def test_stores(scene: Scene, tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.stop()
    monkeypatch.setattr(running, "HttpServer", Idle)
    monkeypatch.setattr(running, "_worker", lambda *_: nullcontext())
    monkeypatch.setattr(logs, "to_stderr", lambda: None)  # it would outlive the command, and what it writes to
    work, file = tmp_path / "work", server_file(tmp_path, certs)
    commands = {
        "serve": ("serve", file, "--store", work),
        "verify": ("verify", work),
        "restore": ("restore", work, "--reason", "disk"),
        "signing": ("certs", "signing", work),
    }
    assert len(kinds(scene.store)) >= 12
    assert troubles(scene.store, work, commands) == []
    assert outcome(scene.store, work, "server.db", empty, commands["serve"]) == ""
    scene.start()


def test_no_new_store_is_made_over_the_rest_of_another(scene: Scene, tmp_path: Path, certs: Path) -> None:
    shutil.copytree(scene.store, tmp_path / "work")
    (tmp_path / "work" / "server.db").unlink()
    with pytest.raises(CorruptError, match=r"server.db is missing, and .*shards holds files of a store"):
        open_store(tmp_path / "work", read_server(server_file(tmp_path, certs)))


def test_a_sites_own_file_is_named(scene: Scene, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "north", tmp_path / "work")
    (tmp_path / "work" / "site.toml").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"work/site.toml: name is missing. Restore the file from a backup"):
        Site(tmp_path / "work")
