"""Hidden labels over the network: the same bits as in one process, and nothing of them at the server."""

from __future__ import annotations

import shutil
import stat
from contextlib import closing
from pathlib import Path

import pytest

from service.processes import MODEL, Running, answers, settled, weights
from service.talking import NAMES, PARTITION, SECRET, overheard, shards, sites, together, wards
from splitwiper import Config, Federation, ServerConfig
from splitwiper.config import ClientConfig, Masking, ModelConfig
from splitwiper.errors import ConfigError, DataError
from splitwiper.service.site import Site


def in_one_process(path: Path, masking: Masking) -> Federation:
    client = ClientConfig(epochs=2, batch=8, head_width=4, threads=1, keys="seeded", masking=masking)
    training = ServerConfig(epochs=2, batch=16, threads=1)
    return Federation(path, config=Config(seed=5, server=training, client=client, model=ModelConfig(**MODEL)))


MODES = {mode: Masking(mode=mode, gamma=3) for mode in ("partition", "subclass", "duplicate")} | {
    "keyed": Masking(mode="keyed"),
    "outside": Masking(mode="striped", mode_args={"stripes": 2}),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("mode", MODES)
def test_the_same_bits_as_in_one_process(server: Running, tmp_path: Path, mode: str) -> None:
    masking, rows, store = MODES[mode], wards(), tmp_path / "store"
    with sites(server, masking=masking) as here:
        assert together(here, rows) > 3
        copies = 3 if mode == "duplicate" else 1
        assert sum(s.rows for s in settled(store).shards()) == copies * sum(len(y) for _, y in rows.values())
        fed = in_one_process(tmp_path / "one", masking)
        fed.learn(rows)
        assert shards(store) == shards(fed.path / "server") and weights(store) == weights(fed.path / "server")
        north = here["north"]
        assert set(answers(north, rows["north"][0])) <= set(NAMES)
        local = north.predict("north", rows["north"][0], local=True)
        assert local == list(fed.predict("north", rows["north"][0]))
        assert north.predict_proba("north", rows["north"][0][:2], local=True).shape == (2, len(NAMES))
        for other in ("south", "west"):  # stopped, and out of reach
            shutil.move(tmp_path / "sites" / other, tmp_path / f"away-{other}")
        for step in ({"classes": ["measles"]}, {"samples": []}, {"everything": True}):
            if "samples" in step:
                step["samples"] = list(fed.rows("north"))[:2]
            ticket = north.forget(**step)
            north.settle(patience=30)
            receipt = north.await_receipt(ticket, patience=60)
            assert receipt.exact and not receipt.others["contacted"]
            assert north.certificate(ticket).checked.outcome == "holds"
            fed.unlearn("north", **step)
            assert shards(store) == shards(fed.path / "server") and weights(store) == weights(fed.path / "server")
            if "classes" in step:
                assert "measles" not in answers(north, rows["north"][0])


def test_nothing_of_labels_crosses_or_stays(server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = wards()
    with overheard(monkeypatch) as heard, sites(server, invitation=SECRET, keys="random") as here:
        together(here, rows)
        settled(tmp_path / "store")
        assert answers(here["south"], rows["south"][0])
        ticket = here["north"].forget(classes=["measles"])
        here["north"].settle(patience=30)
        here["north"].await_receipt(ticket, patience=60)
        group = here["north"].client.group
        codes, kept = group.codebook(), here["north"].client.store.sealed_codebook()
    assert len(heard) > 10_000
    held = b"".join(p.read_bytes() for p in sorted((tmp_path / "store").rglob("*")) if p.is_file())
    secrets = [SECRET.encode(), group.key().raw, group.key().raw.hex().encode(), kept[:48]]
    words = [*(name.encode() for name in NAMES), b"gamma", b"masking", b"partition", *secrets]
    for where, what in ((bytes(heard), "sent"), (held, "stored"), ((tmp_path / "server.log").read_bytes(), "logged")):
        for word in words:
            assert word not in where, f"{word!r} was {what}"
    assert codes.outputs == 3 * len(NAMES)
    key = tmp_path / "sites" / "north" / "north" / "group"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and bytes.fromhex(key.read_text()) == group.key().raw


def test_who_comes_late_takes_the_codebook(server: Running, tmp_path: Path) -> None:
    rows = wards()
    with sites(server, ("north", "south"), invitation=SECRET) as here:
        together(here, rows)
        codebook = here["north"].client.group.codebook()
    for name in ("north", "south"):
        shutil.move(tmp_path / "sites" / name, tmp_path / f"away-{name}")
    with closing(server.site("west", masking=PARTITION, invitation=SECRET)) as west:
        with pytest.raises(DataError, match="'scarlatina' is not in the codebook"):
            west.learn(rows["west"])
        assert not west.client.store.slices()  # nothing was kept
        x, y = rows["west"]
        assert west.learn((x[y == "influenza"], y[y == "influenza"])).new == 12
        assert west.client.group.codebook() == codebook
        with pytest.raises(DataError, match="'scarlatina' is not in the codebook"):
            west.learn(rows["west"])
    assert [shard.client for shard in settled(tmp_path / "store").shards()] == ["north", "south", "west"]


def test_a_key_is_asked_for_and_not_taken_for_nothing(server: Running, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"splitwiper group FILE.*join --group FILE"):
        server.site("north", masking=PARTITION, keys="random")
    with pytest.raises(ConfigError, match="would hide nothing"):
        server.site("north", invitation=SECRET)
    with pytest.raises(ConfigError, match="at least 16"):
        server.site("north", invitation="short", masking=PARTITION)
    assert not (tmp_path / "sites" / "north").exists()
    with closing(server.site("north", masking=PARTITION, invitation=SECRET)) as north:
        with pytest.raises(ConfigError, match="nobody has begun to agree on labels"):
            north.learn(wards()["north"])
        together({"north": north}, wards())  # a group of one
    with pytest.raises(ConfigError, match="agreed on labels under another group key"):
        server.site("north", masking=PARTITION, invitation=SECRET + "!")
    with closing(Site(tmp_path / "sites" / "north")) as north:
        assert north.learn(wards()["north"]).new == 0
