"""A site's commands where something is wrong: names, interrupted requests, servers that come and go, labels only."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from service.processes import MODEL, Running, data, settled
from service.scene import Scene
from splitwiper.cli.app import app
from splitwiper.config import ClientConfig, ModelConfig, to_toml
from splitwiper.errors import ConfigError, InputError, UnreachableError
from splitwiper.service.site import Site, SiteConfig, join


def call(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"{result.exit_code}: {result.output}"
    return result


def told(result: Result) -> str:
    return " ".join(result.stderr.split())


def site_of(scene: Scene, name: str, certs: str = "") -> SiteConfig:
    folder = str(scene.certs / "clients" / (certs or name))
    return SiteConfig(name=name, url=scene.url, certs=folder, spot_check=1.0, model=ModelConfig(**MODEL))


OWN = ClientConfig(epochs=2, batch=8, head_width=4, threads=1)


# --- names ---------------------------------------------------------------------------------------------------


def test_a_name_that_the_certificate_does_not_state(tmp_path: Path, certs: Path) -> None:
    scene = Scene(tmp_path, certs)
    scene.calls.clear()
    with pytest.raises(ConfigError, match=r"name = 'wst': the certificate in .* is that of client 'west'"):
        join(tmp_path / "wst", site_of(scene, "wst", "west"), OWN)
    assert not (tmp_path / "wst").exists()
    # the certificate of a site that has joined is replaced by another client's
    other = dataclasses.replace(scene.north.config, certs=str(certs / "clients" / "south"))
    (tmp_path / "north" / "site.toml").write_text(to_toml(other), encoding="utf-8")
    before = list(scene.calls)
    site = Site(tmp_path / "north")
    for act in (lambda: site.learn(scene.rows["north"]), lambda: site.settle(patience=0)):
        with pytest.raises(ConfigError, match="is that of client 'south'"):
            act()
    site.close()
    assert scene.calls == before  # nothing was sent
    scene.close()


def test_joining_again_takes_a_new_address_and_no_other_client(tmp_path: Path, certs: Path) -> None:
    scene = Scene(tmp_path, certs)
    right, folder = site_of(scene, "north"), tmp_path / "north"
    for config, client, words in (
        (site_of(scene, "south"), OWN, r"name = 'south', and .* joined with 'north'"),
        (dataclasses.replace(right, task="t"), OWN, r"task = 't', and .* joined with ''"),
        (right, dataclasses.replace(OWN, epochs=3), r"\[client\] is not what .*: epochs was 2, and is 3 now"),
        (dataclasses.replace(right, model=ModelConfig(**{**MODEL, "at": "x"})), OWN, r"\[model\] .* at was 'stem'"),
    ):
        with pytest.raises(ConfigError, match=words):
            join(folder, config, client)
    moved = dataclasses.replace(right, spot_check=0.5, url=scene.url.replace("127.0.0.1", "localhost"))
    with_new = join(folder, moved, OWN)
    assert (with_new.config.url, with_new.config.spot_check) == (moved.url, 0.5)
    with_new.close()
    scene.close()


# --- labels only ---------------------------------------------------------------------------------------------


def test_no_probabilities_are_made_up(tmp_path: Path, certs: Path) -> None:
    scene, x = Scene(tmp_path, certs), data()["north"][0]
    np.savez(tmp_path / "new.npz", inputs=x[:5])
    words = ("predict", tmp_path / "north", "north", tmp_path / "new.npz", "--proba", "--json")
    assert "most likely label alone" in told(refused := call(*words, code=2)) and refused.stdout == ""
    assert "--local" in told(refused)
    with pytest.raises(InputError, match="local=True"):
        scene.north.predict_proba("north", x[:5])
    there = json.loads(call(*words, "--local").stdout)
    assert there["predictions"] == scene.north.predict("north", x[:5])
    assert sum(there["probabilities"][0]) == pytest.approx(1, abs=1e-5) and max(there["probabilities"][0]) < 0.999
    scene.close()


def test_rows_are_sent_once_for_labels_and_probabilities(tmp_path: Path, certs: Path) -> None:
    scene, x = Scene(tmp_path, certs, probabilities=True, hand_out=False), data()["north"][0]
    np.savez(tmp_path / "new.npz", inputs=x[:5])
    scene.calls.clear()
    found = json.loads(call("predict", tmp_path / "north", "north", tmp_path / "new.npz", "--proba", "--json").stdout)
    assert scene.calls.count("POST /v1/predict") == 1
    best = [found["labels"][int(np.argmax(row))]["name"] for row in found["probabilities"]]
    assert best == found["predictions"]
    scene.close()


# --- servers that come and go --------------------------------------------------------------------------------


def test_an_interrupted_request_hands_its_certificate_over(server: Running, tmp_path: Path) -> None:
    folder, proof, receipt = tmp_path / "sites" / "north", tmp_path / "bird.json", tmp_path / "receipt.json"
    site = server.site("north")
    site.learn(data()["north"])
    site.close()
    settled(tmp_path / "store")
    asking = ("forget", folder, "--class", "bird", "--certificate", proof, "--patience", 0)
    server.stop()
    call(*asking, code=12)
    call(*asking, code=12)  # the same command goes on with its request
    again = told(call("forget", folder, "--class", "bird", "--class", "cat", "--patience", 0, code=2))
    assert "A request is waiting already" in again and f"splitwiper forget {folder}" in again
    server.start()
    finished = call("forget", folder, "--certificate", proof, "--receipt", receipt)
    assert "Forgotten at this site" in finished.stdout and proof.exists() and receipt.exists()
    proof.unlink()  # also once the site has it
    assert "Nothing is left" not in call("forget", folder, "--certificate", proof).stdout and proof.exists()
    assert "Nothing is left to do" in call("forget", folder).stdout
    call("verify", proof, "--key", folder / "north" / "server-keys")


def test_joining_goes_on_when_the_server_comes_back(tmp_path: Path, certs: Path) -> None:
    scene, heard = Scene(tmp_path, certs), list[str]()
    scene.stop()
    back = threading.Event()

    def hear(text: str) -> None:
        heard.append(text)
        if not back.is_set():
            back.set()
            scene.start()

    x, y = scene.rows["north"]
    scene.north.link._tries = 1
    added = scene.north.learn((x + 1, y), patience=60, on_retry=hear)
    assert added.new == len(x) and "cannot be reached" in heard[0]
    scene.stop()
    with pytest.raises(UnreachableError):
        scene.north.learn((x + 2, y))
    scene.start()
    scene.close()


def test_a_request_without_rows_names_what_waits(tmp_path: Path, certs: Path) -> None:
    scene = Scene(tmp_path, certs)
    assert "has asked to forget nothing" in told(
        call("forget", tmp_path / "north", "--certificate", tmp_path / "c.json", code=6)
    )
    for count in (1, 2):
        scene.forget(count)
    several = told(call("forget", tmp_path / "north", "--certificate", tmp_path / "c.json", code=2))
    assert "2 requests were finished" in several and "--out FILE" in several
    scene.close()


def test_a_site_of_an_earlier_version_says_what_to_rename(tmp_path: Path) -> None:
    (tmp_path / "home.toml").write_text("name = 'north'\n", encoding="utf-8")
    assert "rename home.toml in it to site.toml" in told(call("forget", tmp_path, code=6))
