"""Proof on the command line, against a server that is a process: forget, certificate, verify, audit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.processes import MODEL_TOML, Running, data, settled
from service.scene import Scene
from splitwiper.cli.app import app
from splitwiper.service.api import certificates
from splitwiper.service.records.requests import certified

AUDITOR = f"""
name = "tuv"
url = "URL"
certs = "certs/auditors/tuv"
{MODEL_TOML}"""


def call(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"{result.exit_code}: {result.output}"
    return " ".join(result.stdout.split())


def call_json(*words: object, code: int = 0) -> Any:
    return json.loads(call(*words, "--json", code=code))


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    for name in ("north", "south"):
        with closing(running.site(name)) as site:
            site.learn(data()[name])
    settled(tmp_path / "store")
    yield running
    if running.process.poll() is None:
        running.stop()


def test_from_forgetting_to_exact(ward: Running, tmp_path: Path) -> None:
    site, store = tmp_path / "sites" / "north", tmp_path / "store"
    keys = site / "north" / "server-keys"
    told = call("forget", site, "--class", "bird", "--certificate", tmp_path / "bird.json")
    assert "Forgotten at this site; the server certifies" in told and "xactly" not in told
    assert "not recomputed by anybody yet" in told
    (ticket,) = (one["id"] for one in call_json("certificate", site)["tickets"])
    call("certificate", site, "--out", tmp_path / "which.json", code=2)
    assert "Nothing is left to do." in call("forget", site)
    (site / "north" / "certificates" / f"{ticket}.json").unlink()  # as if it was killed before it had it
    assert list(call_json("forget", site)["certificates"]) == [ticket]
    offline = call_json("verify", tmp_path / "bird.json", "--key", keys)
    assert offline["outcome"] == "holds" and not offline["exact"]
    # each recomputes what it can, and says so under its own key
    assert call_json("verify", site, "--attest")["attested"]
    (tmp_path / "tuv.toml").write_text(AUDITOR.replace("URL", ward.url), encoding="utf-8")
    few = call_json("audit", tmp_path / "tuv.toml", "--out", tmp_path / "audit", "--epochs", 1)
    assert few["outcome"] == "holds" and few["caught"]["1"] == 0.5 and few["attested"]
    assert "Exact:" in call("audit", tmp_path / "tuv.toml", "--out", tmp_path / "audit", "--all")
    assert call_json("certificate", site, ticket[:8], "--out", tmp_path / "late.json")["outcome"] == "holds"
    attesters = ("--attester", tmp_path / "audit" / "auditor-key.pub.pem")
    attesters += ("--attester", site / "north" / "request-key.pub.pem")
    exact = call_json("verify", tmp_path / "late.json", "--key", keys, *attesters)
    assert exact["outcome"] == "exact" and "by auditor tuv" in exact["checks"][-1]["detail"]
    assert call_json("verify", tmp_path / "late.json", "--key", keys)["outcome"] == "holds"
    # whoever has the folders needs neither network nor attestations, and changes nothing
    ward.stop()
    before = (store / "server.db").read_bytes()
    assert call_json("verify", store)["exact"] and call_json("verify", site)["exact"]
    assert call_json("verify", tmp_path / "late.json", "--store", store, "--site", site)["exact"]
    assert call_json("verify", tmp_path / "late.json", "--store", store, code=5)["outcome"] == "unverifiable"
    assert (store / "server.db").read_bytes() == before


def test_the_exit_code_is_the_certificates(tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, certs)
    first, second = scene.forget(), scene.forget()
    call("certificate", tmp_path / "north", first[:8])
    monkeypatch.setattr(
        certificates, "certified", lambda server_store, cases, _, days: certified(server_store, cases, first, days=days)
    )
    assert "certificate of something else" in call("certificate", tmp_path / "north", second, code=3)
    assert "is not accepted" in call("forget", tmp_path / "north", code=3)
    scene.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("verify", "SITE", "--key", "SITE"), "go with a certificate file"),
        (("verify", "SITE", "ticket"), "is not a run"),
        (("verify", "STORE", "--attest"), "goes with a site's folder"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    for name, file in (("SITE", "site.toml"), ("STORE", "server.db")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    given = [tmp_path / word if word in ("SITE", "STORE") else word for word in words]
    result = CliRunner().invoke(app, list(map(str, given)))
    assert result.exit_code == 2 and told in " ".join(result.stderr.split())
