"""An audit by a stranger: another system user, with the auditor's credential and nothing else, against real processes.

What the auditor signed is then checked twice, by users who have public keys alone: with `splitwiper verify`, and by a
program that never imports splitwiper.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import splitwiper
from federation.runs import Table
from service.processes import SERVER, Running, data, settled
from service.scene import EPOCHS, Scene
from service.test_proof_command import AUDITOR
from splitwiper.portable import SWITCHES
from splitwiper.service.certificate import check, read_public

AUDITOR_UID, VERIFIER_UID = 64_001, 64_002
"""Users that no account belongs to."""
MODEL = SERVER[SERVER.index("[model]") : SERVER.index("[server]")]
SITE = """
name = "NAME"
url = "URL"
certs = "../server/certs/clients/NAME"
data = "NAME.npz"
MODEL
[client]
epochs = 2
batch = 8
head_width = 4
threads = 1
"""
COMMAND = "from splitwiper.cli import main; main()"
LIBRARIES = sorted({sysconfig.get_path(name) for name in ("purelib", "platlib")})
ALL = {"auditor": "tuv", "outcome": "exact", "epochs": [1, 2], "of": 2}
INDEPENDENT = Path(__file__).with_name("independent.py")


class Place:
    """A folder that other users can look into, and in it one folder for each party that nobody else can."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.chmod(0o755)
        self.python = ""
        shutil.copytree(Path(splitwiper.__file__).parent, root / "src" / "splitwiper")  # the repository may be closed
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG", *SWITCHES) if name in os.environ},
            "PYTHONPATH": os.pathsep.join([str(root / "src"), *LIBRARIES]),
            "OMP_NUM_THREADS": "1",
        }

    def folder(self, name: str, uid: int = 0) -> Path:
        path = self.root / name
        path.mkdir(mode=0o700)
        os.chown(path, uid, uid)
        return path

    def give(self, source: Path, target: Path, uid: int) -> Path:
        """Copy a file or folder to somebody who alone can read it."""
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        for path in (target, *target.rglob("*")):
            os.chown(path, uid, uid)
            path.chmod(0o700 if path.is_dir() else 0o600)
        return target

    def run(self, uid: int, cwd: Path, *words: object, code: int = 0, **environment: str) -> str:
        """What a program in Python prints, as a process of a user."""
        done = subprocess.run(
            [self.python, *map(str, words)],
            cwd=cwd,
            user=uid,
            group=uid,
            extra_groups=[],
            env={**self.environment, "HOME": str(cwd), **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, f"{words}: {done.returncode}, {done.stdout[-1000:]} {done.stderr[-3000:]}"
        return done.stdout

    def call(self, uid: int, cwd: Path, *words: object, code: int = 0) -> Any:
        """What a command of splitwiper answers, as a process of a user."""
        return json.loads(self.run(uid, cwd, "-c", COMMAND, *words, "--json", code=code))

    def can(self, uid: int, program: str, *words: object) -> bool:
        """Whether a program ends well as a process of a user."""
        command = [self.python, "-c", program, *map(str, words)]
        try:
            done = subprocess.run(
                command, cwd="/", user=uid, group=uid, extra_groups=[], env=self.environment, stderr=-3
            )
        except OSError:
            return False
        return done.returncode == 0

    def reads(self, uid: int, path: Path) -> bool:
        """Whether a user can list a folder, or open a file."""
        return self.can(uid, "import os, sys; p = sys.argv[1]; os.listdir(p) if os.path.isdir(p) else open(p)", path)

    def found_python(self, uid: int) -> bool:
        """Whether a user can run an interpreter of this version, with the packages that are installed here."""
        for self.python in (sys.executable, "/usr/bin/python{}.{}".format(*sys.version_info)):
            if self.can(uid, "import torch, pydantic, splitwiper"):
                return True
        return False


@pytest.fixture
def place() -> Iterator[Place]:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can start processes of other users")
    with tempfile.TemporaryDirectory(prefix="splitwiper-audit-") as folder:
        made = Place(Path(folder))
        if not made.found_python(AUDITOR_UID):
            pytest.skip(f"another user can run neither {sys.executable} nor the system's Python with its packages")
        yield made


def joined(place: Place, sites: Path, url: str, rows: dict[str, Table]) -> None:
    """Two sites that join and learn, each a process."""
    running = []
    for name in ("north", "south"):
        np.savez(sites / f"{name}.npz", inputs=rows[name][0], labels=np.array(rows[name][1]))
        text = SITE.replace("MODEL", MODEL).replace("NAME", name).replace("URL", url)
        (sites / f"{name}.toml").write_text(text, encoding="utf-8")
        command = [place.python, "-c", COMMAND, "join", f"{name}.toml", "--site", name]
        running.append(subprocess.Popen(command, cwd=sites, env=place.environment, stdout=subprocess.DEVNULL))
    assert [process.wait(120) for process in running] == [0, 0]


@pytest.mark.soak
def test_an_audit_by_another_user_in_another_process(place: Place) -> None:
    server, sites = place.folder("server"), place.folder("sites")
    auditor, verifier = place.folder("auditor", AUDITOR_UID), place.folder("verifier", VERIFIER_UID)
    running = Running(server)
    try:
        joined(place, sites, running.url, data())
        settled(server / "store").database.close()
        ticket = place.call(0, sites, "forget", "north", "--class", "bird")["ticket"]
        credentials(place, auditor, running.certs, running.url)
        closed = [server / "store", server / "store" / "server.db", sites / "north", sites / "north.npz", running.certs]
        assert not any(place.reads(AUDITOR_UID, path) for path in closed) and place.reads(AUDITOR_UID, auditor)
        found = place.call(AUDITOR_UID, auditor, "audit", "tuv.toml", "--out", "audit")
        assert found["outcome"] == "exact" and found["attested"] and found["of"] == len(found["epochs"]) == 2
        kept = {path.name: path.stat() for path in (auditor / "audit").iterdir()}
        assert {one.st_uid for one in kept.values()} == {AUDITOR_UID} and "downloads" not in kept
        assert kept["auditor-key.pem"].st_mode & 0o077 == 0
        assert not place.reads(VERIFIER_UID, auditor)  # each folder is its owner's
        place.call(0, sites, "certificate", "north", ticket, "--out", "bird.json")
        keys = [path for path in (sites / "north" / "north" / "server-keys").iterdir() if path.suffix == ".pem"]
        place.give(sites / "bird.json", verifier / "bird.json", VERIFIER_UID)
        place.give(keys[0], verifier / "server.pem", VERIFIER_UID)
        place.give(auditor / "audit" / "auditor-key.pub.pem", verifier / "auditor.pem", VERIFIER_UID)
    finally:
        running.stop()
    told = place.call(VERIFIER_UID, verifier, "verify", "bird.json", "--key", "server.pem", "--attester", "auditor.pem")
    assert told["outcome"] == "holds" and "all 2 epochs, by auditor tuv" in told["checks"][-1]["detail"]
    assert independent(place, verifier) == {"ticket": ticket, **ALL}


def independent(place: Place, folder: Path) -> dict[str, Any]:
    """What a program finds that does not know splitwiper, in a folder with the certificate and public keys."""
    if importlib.util.find_spec("securesystemslib") is None:
        pytest.skip("verified by splitwiper; for another implementation install securesystemslib")
    script = place.give(INDEPENDENT, folder / "independent.py", VERIFIER_UID)
    alone = {"PYTHONPATH": os.pathsep.join(LIBRARIES)}  # and not splitwiper
    assert place.run(VERIFIER_UID, folder, script, "bird.json", "auditor.pem", "server.pem", code=1, **alone) == ""
    found = place.run(VERIFIER_UID, folder, script, "bird.json", "server.pem", "auditor.pem", **alone)
    return dict(json.loads(found))


def credentials(place: Place, auditor: Path, certs: Path, url: str) -> None:
    """The auditor's own copy of its credential, and its file: all that it is given."""
    place.give(certs / "auditors" / "tuv", auditor / "certs", AUDITOR_UID)
    config = auditor / "tuv.toml"
    config.write_text(AUDITOR.replace("URL", url).replace("certs/auditors/tuv", "certs"), encoding="utf-8")
    config.chmod(0o644)


def test_an_auditor_that_is_another_user(place: Place, certs: Path) -> None:
    """The same with the server in this process: what the long test does, in seconds."""
    auditor, verifier = place.folder("auditor", AUDITOR_UID), place.folder("verifier", VERIFIER_UID)
    scene = Scene(place.folder("server"), certs)
    try:
        ticket = scene.forget()
        credentials(place, auditor, certs, scene.url)
        assert not any(place.reads(AUDITOR_UID, path) for path in (scene.store, scene.folder / "north", certs))
        found = place.call(AUDITOR_UID, auditor, "audit", "tuv.toml", "--out", "audit")
        assert found["outcome"] == "exact" and found["attested"] and found["of"] == EPOCHS
        assert {path.stat().st_uid for path in (auditor / "audit").iterdir()} == {AUDITOR_UID}
        made = scene.certificate(ticket)
        (key,) = scene.keys()
    finally:
        scene.close()
    public = auditor / "audit" / "auditor-key.pub.pem"
    assert "by auditor tuv" in check(made.envelope, [key], attesters=read_public(public)).reason
    (place.root / "bird.json").write_bytes(json.dumps(made.envelope).encode())
    (place.root / "server.pem").write_bytes(key.pem())
    for source in (place.root / "bird.json", place.root / "server.pem"):
        place.give(source, verifier / source.name, VERIFIER_UID)
    place.give(public, verifier / "auditor.pem", VERIFIER_UID)
    every = list(range(1, EPOCHS + 1))
    assert independent(place, verifier) == {"ticket": ticket, **ALL, "epochs": every, "of": EPOCHS}
