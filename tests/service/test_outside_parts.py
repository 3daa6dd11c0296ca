"""A codec and a loss from another package, with a network between the parties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.processes import MODEL
from service.scene import Scene, found
from splitwiper.config import ClientConfig, ModelConfig
from splitwiper.errors import InputError
from splitwiper.service.site import SiteConfig, join
from splitwiper.store import ServerStore

CODEC = {"codec": "logarithmic", "codec_args": {"reach": 300.0}}
PARTS = ("ward_parts.codecs:Logarithmic", "ward_parts.training:focal")


@pytest.fixture
def scene(tmp_path: Path, certs: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, certs, codec=CODEC, parts={"loss": "focal", "loss_args": {"gamma": 1.0}})
    yield made
    made.close()


def test_sites_forget_predict_and_verify(scene: Scene) -> None:
    ticket = scene.forget()
    proof = scene.certificate(ticket)
    assert set(found(proof).values()) == {"holds"}
    told = scene.north.await_receipt(ticket, patience=5).fingerprint["server"]["loss"]
    assert told.startswith("ward_parts.training:focal") and told.endswith("ward-parts 1.4")
    assert len(scene.north.predict("north", scene.rows["north"][0][:5])) == 5
    assert scene.audit(parts=PARTS).checked.exact


@pytest.mark.parametrize("known", [(), PARTS[:1], PARTS[1:]])
def test_an_auditor_imports_only_what_the_auditor_named(scene: Scene, known: tuple[str, ...]) -> None:
    checks = scene.audit(parts=known).checked.checks
    (odd,) = [check for check in checks if check.outcome == "mismatch"]
    assert odd.what == "settings" and "is not in 'parts' of the auditor's file: nothing was imported" in odd.detail


def test_a_site_with_another_codec_cannot_join(scene: Scene, tmp_path: Path) -> None:
    certs = str(scene.certs / "clients" / "south")
    settings = SiteConfig(name="south", url=scene.url, certs=certs, model=ModelConfig(**MODEL))
    for other in ({"codec": "int8"}, {**CODEC, "codec_args": {"reach": 299.0}}):
        with pytest.raises(InputError, match=r"written as 'ward_parts.codecs:Logarithmic .*300\.0"):
            join(tmp_path / "other", settings, ClientConfig(epochs=2, batch=8, head_width=4, threads=1, **other))


def test_the_store_says_which_codec_it_was_made_with(scene: Scene) -> None:
    store = ServerStore(scene.store)
    assert (store.database.meta("codec") or "").startswith('ward_parts.codecs:Logarithmic {"reach":300.0} ')
