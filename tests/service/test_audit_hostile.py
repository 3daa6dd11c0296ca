"""A server that answers an auditor with nonsense, too much, too little, or while things change: no traceback, ever.

A *mismatch* is signed and handed over. What may be the network's fault, the auditor's or a matter of time is not.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from service.scene import EPOCHS, Lie, Scene
from service.test_proof_command import AUDITOR
from splitwiper.cli.app import app
from splitwiper.errors import UnreachableError
from splitwiper.service.audit.source import AuditLink

MANIFEST, NORTH = "/v1/audit/manifest", "/v1/audit/shards/north"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, certs: Path) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("shared"), certs)
    yield made
    made.close()


@pytest.fixture
def scene(shared: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(AuditLink, "most", 1 << 20)
    yield shared
    shared.lies.clear()


def command(scene: Scene, *words: str, model: str = "", out: Path | None = None) -> tuple[int, str]:
    """The exit code and everything that is printed; an exception that is not told in words fails the test."""
    text = AUDITOR.replace("URL", scene.url).replace("certs/auditors/tuv", str(scene.certs / "auditors" / "tuv"))
    (scene.folder / "tuv.toml").write_text(text.replace("hidden = 12", model or "hidden = 12"), encoding="utf-8")
    given = ["audit", str(scene.folder / "tuv.toml"), "--out", str(out or scene.folder / "audit"), *words]
    done = CliRunner().invoke(app, given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, " ".join(done.output.split())


def signed(scene: Scene) -> bool:
    """Whether an attestation was handed over since this was last asked."""
    found = "POST /v1/audit/attestations" in scene.calls
    scene.calls.clear()
    return found


def says(change: Callable[[Any], Any]) -> Lie:
    def lie(body: bytes) -> tuple[int, list[bytes]]:
        told = json.loads(body)
        changed = change(told)
        return 200, [json.dumps(told if changed is None else changed).encode()]

    return lie


def body(*pieces: bytes) -> Lie:
    return lambda _: (200, pieces)


def endless(_: bytes) -> tuple[int, Iterator[bytes]]:
    return 200, itertools.repeat(b"[" * 65536, 400)  # 26 MB


def tensors(**given: torch.Tensor) -> Lie:
    return body(safetensors.torch.save(given))


@pytest.mark.parametrize(
    "lie",
    [
        body(b"<html>"),
        body(b""),
        body(b"[" * 100_000),
        says(lambda told: []),
        says(lambda told: told.pop("head") and None),
        says(lambda told: told["head"].update(size="many")),
        says(lambda told: told["head"].update(size=-1)),
        says(lambda told: told["head"].update(size=10**15)),
        says(lambda told: told["head"].update(root="no")),
        says(lambda told: told["shards"][0].update(salt="no")),
        says(lambda told: told["shards"][0].update(client="../../etc")),
        says(lambda told: told["shards"].append(told["shards"][0])),
        says(lambda told: told["model"].update(labels=[[1]])),
        says(lambda told: told["model"].update(seconds=float("nan"))),
        says(lambda told: told["model"].update(fingerprint=3)),
        says(lambda told: told.update(epochs=["zz"])),
        endless,
    ],
)
def test_a_manifest_that_is_none(scene: Scene, lie: Lie) -> None:
    scene.lies[MANIFEST] = lie
    code, told = command(scene)
    assert code == 3 and told.startswith("error: ") and not signed(scene), told


@pytest.mark.parametrize(
    "lie",
    [
        body(b"{}"),
        endless,
        body(b"[1]"),
        body(b'[{"entry": {}, "blind": ""}]'),
        body(b"[]"),
        says(lambda told: told[::-1]),
        says(lambda told: told[0]["entry"].update(seed="6")),
    ],
)
def test_a_ledger_that_is_not_that_of_its_head(scene: Scene, lie: Lie) -> None:
    scene.lies["/v1/audit/ledger"] = lie
    code, told = command(scene)
    assert code == 3 and told.startswith("error: ") and not signed(scene), told


def test_a_ledger_of_which_there_is_always_more(scene: Scene) -> None:
    scene.lies["/v1/audit/ledger"] = says(lambda told: [{"entry": {}, "blind": ""}] * 5)
    code, told = command(scene)
    assert code == 3 and "are not those of its ledger's head" in told
    assert scene.calls.count("GET /v1/audit/ledger") < 10


@pytest.mark.parametrize(
    ("place", "lie", "words", "word"),
    [
        (MANIFEST, says(lambda told: told["shards"].pop() and None), (), "disagree on a shard of south"),
        (MANIFEST, says(lambda told: told["model"].update(exact=False)), (), "not the newest of its ledger"),
        (MANIFEST, says(lambda told: told.update(model=None)), (), "the server shows none"),
        (MANIFEST, says(lambda told: told["epochs"].reverse()), ("--epochs", "2"), "not the one that the ledger"),
        (MANIFEST, says(lambda told: told["epochs"].clear()), ("--epochs", "2"), "not the one that the ledger"),
        (NORTH, body(b"x"), (), "not what its site signed"),
        ("/v1/audit/initial", body(b"x"), (), "not those in the ledger's first entry"),
        ("/v1/audit/initial", tensors(a=torch.zeros(2)), (), "not those in the ledger's first entry"),
        ("/v1/initial", tensors(a=torch.full((3,), torch.nan)), (), "not those in the ledger's first entry"),
        (f"/v1/audit/epochs/{EPOCHS}", body(b"x"), ("--epochs", "1"), f"the state after epoch {EPOCHS} is not"),
        (f"/v1/audit/epochs/{EPOCHS}", tensors(a=torch.ones(2)), ("--epochs", "1"), "is not the one in the"),
    ],
)
def test_what_is_not_what_the_ledger_says_is_a_mismatch(
    scene: Scene, place: str, lie: Lie, words: tuple[str, ...], word: str
) -> None:
    scene.lies[place] = lie
    code, told = command(scene, *words)
    assert code == 3 and word in told, told
    assert signed(scene)


@pytest.mark.parametrize("place", [NORTH, "/v1/audit/initial", f"/v1/audit/epochs/{EPOCHS}"])
def test_a_file_without_an_end(scene: Scene, place: str) -> None:
    scene.lies[place] = endless
    code, told = command(scene, "--epochs", "1")
    assert code == 3 and "sends more than the" in told and not signed(scene)
    assert not (scene.folder / "audit" / "downloads").exists()


def test_what_is_listed_and_withheld_is_unverifiable_and_the_draw_stands(scene: Scene) -> None:
    """A server that breaks off when it would be caught is asked for the same epochs again."""
    for place in (NORTH, "/v1/audit/initial"):
        scene.lies[place] = lambda _: (404, [b"{}"])
        code, told = command(scene)
        assert code == 5 and "lists what it does not hand out" in told and not signed(scene)
        del scene.lies[place]
    states = [f"/v1/audit/epochs/{epoch}" for epoch in range(EPOCHS)]
    scene.lies.update(dict.fromkeys(states, lambda _: (404, [b"{}"])))
    drawn = set[str]()
    for _ in range(6):
        assert command(scene, "--epochs", "1")[0] == 5 and not drawn - set(states)
        drawn |= {call.removeprefix("GET ") for call in scene.calls} & set(states)
        assert not signed(scene)
    assert len(drawn) == 1
    scene.lies.clear()
    asked = {"GET " + place for place in drawn}
    code, told = command(scene, "--epochs", "2")
    assert code == 0 and "2 of 4 epochs" in told and asked <= set(scene.calls) and signed(scene)
    assert not (scene.folder / "audit" / "drawn.json").exists()


def test_settings_that_cannot_be_read_or_are_others(scene: Scene) -> None:
    for text in ("", "epochs = ", "epochs = -1", "other = 1", f"epochs = {EPOCHS + 1}"):
        scene.lies["/v1/audit/settings"] = body(json.dumps({"config": text}).encode())
        code, told = command(scene)
        assert code == 3 and "settings" in told and not signed(scene), told
    scene.lies["/v1/audit/settings"] = body(b"{}")
    assert command(scene)[0] == 3
    scene.lies.clear()
    code, told = command(scene, model="hidden = 13")  # the auditor's own mistake accuses nobody
    assert code == 3 and "check [model] in the auditor's file first" in told and not signed(scene)
    code, told = command(scene, "--epochs", "9")
    assert code == 2 and "give a number up to 4" in told and not signed(scene)


def test_a_size_that_no_disk_has(scene: Scene) -> None:
    scene.lies[MANIFEST] = says(lambda told: told["shards"][0].update(size=1 << 52))
    code, told = command(scene)
    assert code == 7 and "the shards take" in told and "with more room" in told and not signed(scene)


def test_an_answer_that_breaks_off(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitwiper.service.audit.source._TRIES", 2)

    def breaking(given: bytes) -> tuple[int, Iterator[bytes]]:
        def pieces() -> Iterator[bytes]:
            yield given[:10]
            raise RuntimeError("cut")

        return 200, pieces()

    scene.lies[NORTH] = breaking
    with pytest.raises(UnreachableError, match="could not be downloaded"):
        scene.audit()
