"""Audits that meet trouble: a kill, a full disk, a site that forgets meanwhile, a server without a transcript."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import warm
from service.scene import EPOCHS, Scene
from service.test_audit_hostile import command, signed
from service.test_disk_full import Disk
from splitwiper.errors import BusyError
from splitwiper.store import files


@pytest.fixture
def scene(tmp_path: Path, certs: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, certs)
    yield made
    made.close()


def test_killed_and_run_again(scene: Scene) -> None:
    assert command(scene, "--epochs", "1")[0] == 0  # writes the file
    signed(scene)
    out = scene.folder / "audit"
    words = ["splitwiper", "audit", scene.folder / "tuv.toml", "--out", out, "--epochs", "2"]
    process = warm.start(words, cwd=scene.folder)
    end = time.monotonic() + 60
    while not (out / "downloads" / "store").exists() and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL and (out / "downloads").exists() and not signed(scene)
    code, told = command(scene)
    assert code == 0 and "Exact" in told and signed(scene)
    assert {path.name for path in out.iterdir()} == {
        "auditor-key.pem",
        "auditor-key.pub.pem",
        "federation",
        "heads",
        "server-keys",
    }


def test_two_audits_in_one_folder(scene: Scene) -> None:
    out = scene.folder / "audit"
    with files.locked(out):  # what the other audit holds
        code, told = command(scene, "--epochs", "1", out=out)
    assert code == 8 and "another audit works in" in told and not signed(scene), told
    assert command(scene, "--epochs", "1", out=out)[0] == 0 and signed(scene)


def test_the_auditors_disk_is_full(scene: Scene, tmp_path: Path) -> None:
    disk = Disk(tmp_path / "small", megabytes=1)
    try:
        out = disk.folder / "audit"
        disk.fill()
        code, told = command(scene, out=out)
        assert code == 7 and ("no room left" in told or "No space left" in told) and not signed(scene), told
        disk.empty()
        assert command(scene, "--epochs", "1", out=out)[0] == 0 and signed(scene)
        before = len(list(out.rglob("*")))
        for free in (8, 40, 120, 200):  # kilobytes: there is room for a part of it
            disk.fill()
            os.truncate(disk.folder / "ballast", (disk.folder / "ballast").stat().st_size - free * 1024)
            code, told = command(scene, "--epochs", "1", out=out)
            assert code in (0, 7) and (code == 0) == signed(scene), told
            assert code == 0 or ("room" in told and "Traceback" not in told), told
            disk.empty()
            assert not (out / "downloads").exists()
        code, told = command(scene, out=out)
        assert code == 0 and "Exact" in told and len(list(out.rglob("*"))) <= before + 1
    finally:
        disk.gone()


def test_a_site_forgets_during_the_audit(scene: Scene) -> None:
    """An honest server is not accused of what changed meanwhile."""

    def replaced(_what: str, done: int, _total: int, loss: float | None = None) -> None:
        if done == 0 and not asked:
            asked.append(scene.forget())

    def only_asked(_what: str, done: int, _total: int, loss: float | None = None) -> None:
        if done == 0 and len(asked) == 1:
            asked.append(scene.north.forget(samples=list(scene.north.client.holdings.ids())[:1]))
            scene.north.settle(patience=5)

    asked: list[str] = []
    with pytest.raises(BusyError, match="replaced during the audit"):
        scene.audit(progress=replaced)
    with pytest.raises(BusyError, match="training is under way"):
        scene.audit(progress=only_asked)
    assert command(scene, "--patience", "0")[0] == 8 and not signed(scene) and len(asked) == 2
    scene.train()
    assert scene.audit().checked.exact and signed(scene)


def test_a_server_without_a_transcript(tmp_path: Path, certs: Path) -> None:
    scene = Scene(tmp_path, certs, transcript=False)
    try:
        code, told = command(scene, "--epochs", "2")
        assert code == 2 and "keeps no transcript" in told and "leave --epochs out" in told and not signed(scene)
        code, told = command(scene)
        assert code == 0 and f"all {EPOCHS} epochs" in told and signed(scene)
    finally:
        scene.close()
