"""``splitwiper receipt --certificate`` and ``splitwiper verify CERT``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.certificate.forging import changed, flip
from splitwiper.cli import app
from splitwiper.cli.certificate import OUTCOMES
from splitwiper.service.certificate import Keyring, SigningKey, certify_run

CONFIG = """
seed = 3
[model]
factory = "splitwiper.models:mlp"
args = {inputs = 4, outputs = 3}
inputs = {x = "float32[4]"}
at = "stem"
head = "head"
[server]
epochs = 2
batch = 8
threads = 1
[client]
epochs = 2
batch = 8
threads = 1
[clients.north]
data = "north.csv"
[clients.south]
data = "south.csv"
"""


def call(*words: object, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"{result.exit_code}: {result.output}"
    return result


def call_json(*words: object, code: int = 0) -> Any:
    return json.loads(call(*words, "--json", code=code).stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run ``ward``, in which north has forgotten a class, and its certificate and key."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "ward.toml").write_text(CONFIG, encoding="utf-8")
    for name, labels in (("north", "123"), ("south", "34")):
        lines = [f"{i % 5}.{n},{n},{i}.5,{i * n % 7},{label}" for i in range(8) for n, label in enumerate(labels)]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,c,d,kind", *lines]) + "\n", encoding="utf-8")
    call("learn", folder / "ward.toml", "--run", folder / "ward")
    ticket = call_json("unlearn", folder / "ward", "north", "--class", "1")["ticket"]
    shown = call("receipt", folder / "ward", ticket[:8], "--certificate", folder / "c.json").stdout
    assert f"Certificate: {folder / 'c.json'}" in shown.replace("\n", "")
    key = next((folder / "ward" / "server" / "signing" / "public").glob("*.pem"))
    assert key.name in shown.replace("\n", "")
    shutil.copy(key, folder / "pub.pem")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "place"))


def test_offline(made: Path, tmp_path: Path) -> None:
    for name in ("c.json", "pub.pem"):
        shutil.copy(made / name, tmp_path / name)
    found = call_json("verify", tmp_path / "c.json", "--key", tmp_path / "pub.pem")
    assert found["outcome"] == "holds" and found["exact"] is False and found["client"] == "north"
    assert found["run"] is None and len(found["says"]["does_not_prove"]) == 4
    shown = call("verify", tmp_path / "c.json", "--key", tmp_path / "pub.pem").stdout
    assert "Holds: signature, statement" in shown and "dishonest server" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith(("Holds", "Note")))


def test_without_a_key_nothing_can_be_said(made: Path) -> None:
    assert "Unverifiable: no public key was given" in call("verify", made / "c.json", code=5).stdout


def test_recomputed(made: Path) -> None:
    for more in ((), ("--key", made / "pub.pem"), ("--key", made / "ward" / "server" / "signing" / "public")):
        found = call_json("verify", made / "c.json", "--run", made / "ward", *more)
        assert found["outcome"] == "exact" and found["exact"] is True and found["standing"] == "current"


def test_a_superseded_one(place: Path) -> None:
    call("unlearn", place / "ward", "south", "--class", "4")
    assert call_json("verify", place / "c.json", "--key", place / "pub.pem")["outcome"] == "holds"
    found = call_json("verify", place / "c.json", "--run", place / "ward", code=5)
    assert found["standing"] == "superseded" and "about the past" in found["reason"]


def test_mismatches(place: Path) -> None:
    other = place / "other.pem"
    other.write_bytes(SigningKey.generate().public.pem())
    assert (
        "Mismatch: it is not that of a trusted key" in call("verify", place / "c.json", "--key", other, code=3).stdout
    )
    values = json.loads((place / "c.json").read_text(encoding="utf-8"))
    for name in ("payload", "payloadType"):
        (place / "bad.json").write_text(json.dumps(changed(values, (name,), flip)), encoding="utf-8")
        for more in (("--key", place / "pub.pem"), ("--run", place / "ward")):
            assert call_json("verify", place / "bad.json", *more, code=3)["outcome"] == "mismatch"
    (place / "bad.json").write_bytes(b" " * (1 << 21))
    assert "at most 1048576 are read" in call_json("verify", place / "bad.json", code=3)["reason"]
    (place / "bad.json").write_text("no json", encoding="utf-8")
    call("verify", place / "bad.json", "--key", place / "pub.pem", code=3)


def test_wrong_usage(place: Path) -> None:
    ticket = next((place / "ward" / "server" / "certificates").iterdir()).stem
    call("receipt", place / "ward", ticket, "--out", place / "r.json")
    assert "takes its run" in call("verify", place / "r.json", code=2).stderr
    assert "give the run first" in call("verify", place / "c.json", place / "r.json", code=2).stderr
    for more in (("--key", place / "pub.pem"), ("--run", place / "ward")):
        assert "go with a certificate file" in call("verify", place / "ward", *more, code=2).stderr
    assert "no public key" in call("verify", place / "c.json", "--key", place / "gone.pem", code=6).stderr
    assert "no run in" in call("verify", place / "c.json", "--run", place / "gone", code=6).stderr
    assert "no run in" in call("verify", place / "gone.json", code=6).stderr
    said = call("receipt", place / "ward", ticket, "--certificate", place / "no" / "c", code=2).stderr
    assert "a folder that exists" in said


def test_receipts_are_verified_as_before(place: Path) -> None:
    assert call_json("verify", place / "ward")["exact"] is True
    ticket = next((place / "ward" / "server" / "certificates").iterdir()).stem
    shown = call("receipt", place / "ward", ticket, "--out", place / "r.json", "--certificate", place / "d.json").stdout
    assert "Receipt:" in shown and "Certificate:" in shown
    assert (place / "d.json").read_bytes() == (place / "c.json").read_bytes()
    assert call_json("verify", place / "ward", place / "r.json")["exact"] is True
    assert json.loads(call("receipt", place / "ward", ticket[:8]).stdout)["ticket"] == ticket


def test_a_rotated_key_is_told(place: Path) -> None:
    from splitwiper.store import ServerStore

    store = ServerStore(place / "ward" / "server")
    Keyring.of(store).rotate()
    ticket = next((place / "ward" / "server" / "certificates").iterdir()).stem
    shown = call("receipt", place / "ward", ticket, "--certificate", place / "d.json").stdout.replace("\n", "")
    keyid = certify_run(place / "ward", ticket)["signatures"][-1]["keyid"]
    assert shown.count(keyid) == 2
    call("verify", place / "d.json", "--run", place / "ward")


def test_every_outcome_has_a_code() -> None:
    assert OUTCOMES == {"exact": 0, "holds": 0, "mismatch": 3, "not_comparable": 4, "unverifiable": 5}


def test_a_certificate_from_another_machine() -> None:
    recorded = Path(__file__).parent.parent / "recorded"
    keys = ["--key", "server.pem", "--attester", "auditor.pem", "--attester", "site.pem"]
    given = [str(recorded / one) if one.endswith(".pem") else one for one in keys]
    done = CliRunner().invoke(app, ["verify", str(recorded / "certificate.json"), *given, "--json"])
    assert done.exit_code == 0, done.output
    checks = {check["what"]: check["outcome"] for check in json.loads(done.output)["checks"]}
    assert checks["attestation of auditor tuv"] == checks["attestation of site north"] == "holds"
    assert checks["recomputed"] == "exact"
