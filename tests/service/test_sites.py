"""Clients with sites of their own, and a server that is a process: learning, forgetting, absence, crashes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.settings import NOT_COMPARABLE, SETTINGS

from service.processes import MODEL, Running, answers, data, settled, weights
from service.scene import Scene
from splitwiper import Config, Federation, ServerConfig
from splitwiper.client.context import ClientContext
from splitwiper.config import ClientConfig, ModelConfig, Noise
from splitwiper.errors import BusyError, ConfigError, DataError, ForkError, InputError, UnreachableError
from splitwiper.service.site import Site, SiteConfig, join, resuming
from splitwiper.service.site.verifying import verify_site


def test_learn_forget_and_prove_it(server: Running, tmp_path: Path) -> None:
    rows = data()
    for name in rows:
        with closing(server.site(name)) as site:
            site.learn(rows[name])
    store = tmp_path / "store"
    settled(store)
    with closing(server.site("north")) as north:
        assert set(answers(north, rows["north"][0])) <= {"bird", "cat", "dog", "eel"}
        for other in ("south", "west"):  # stopped, and out of reach
            shutil.move(tmp_path / "sites" / other, tmp_path / f"away-{other}")
        ticket = north.forget(classes=["bird"])
        north.settle(patience=30)
        receipt = north.await_receipt(ticket, patience=60)
        assert receipt.exact and not receipt.others["contacted"]
        proof = north.certificate(ticket)
        assert proof.checked.outcome == "holds", proof.checked.reason
        assert "bird" not in answers(north, rows["north"][0])
        assert north.learn(rows["north"]).refused == 10  # forgotten rows do not come back
    # the same as in one process that never had the rows
    x, y = rows["north"]
    config = Config(
        seed=5,
        server=ServerConfig(epochs=2, batch=16, threads=1),
        client=ClientConfig(epochs=2, batch=8, head_width=4, threads=1, keys="seeded"),
        model=ModelConfig(**MODEL),
    )
    never = Federation(tmp_path / "never", config=config)
    never.learn({**rows, "north": (x[y != "bird"], y[y != "bird"])})
    assert weights(settled(store).root) == weights(tmp_path / "never" / "server")


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_what_a_program_sets_does_not_reach_its_site(server: Running, tmp_path: Path) -> None:
    x, y = data()["north"]
    x[:, 0] = 1e-40  # zero, for who flushes denormal numbers
    with closing(server.site("north")) as north, ExitStack() as stack:
        for name, setting in SETTINGS.items():
            if name not in NOT_COMPARABLE:
                stack.enter_context(setting())
        assert north.learn((x, y)).new == 30
        settled(tmp_path / "store")
        assert len(answers(north, x)) == 30
        ticket = north.forget(classes=["bird"])
        north.settle()
        assert north.await_receipt(ticket, patience=60).exact
        assert north.certificate(ticket).checked.outcome == "holds"
        stack.close()
        assert verify_site(north).outcome == "exact"
        added = north.learn((x, y))
        assert (added.new, added.held, added.refused) == (0, 20, 10)


def test_a_site_opens_its_client_once_in_a_call(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, begin, rows = list[str](), ClientContext.__init__, data()

    def counted(self: ClientContext, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        opened.append(self.name)

    monkeypatch.setattr(ClientContext, "__init__", counted)
    with closing(server.site("north")) as north:
        calls: dict[str, Callable[[], object]] = {
            "learn": lambda: north.learn(rows["north"]),
            "forget": lambda: resuming.forget(north, classes=["bird"]),
            "settle": lambda: north.settle(patience=30),
            "certificate": lambda: north.certificate(north.requests()[0].id),
            "predict": lambda: north.predict("north", rows["north"][0]),
        }
        for name, call in calls.items():
            opened.clear()
            if name == "certificate":
                north.await_receipt(north.requests()[0].id, patience=60)
                opened.clear()
            call()
            assert opened == ["north"], name


def test_rows_are_suppressed_even_if_the_server_is_down(server: Running, tmp_path: Path) -> None:
    rows = data()
    with closing(server.site("north")) as north:
        north.learn(rows["north"])
    settled(tmp_path / "store")
    server.stop()
    with closing(Site(tmp_path / "sites" / "north")) as north:
        north.link._tries = 1
        ticket = north.forget(classes=["bird"])
        with pytest.raises(UnreachableError, match="cannot be reached"):
            north.settle(patience=0.1)
        for state in ("open", "sent"):  # nothing is wrong: the request waits, or was handed over and no more
            north.client.store.set_state([ticket], state)
            told = verify_site(north)
            assert told.outcome == "unverifiable" and "unfinished work" in told.reason
        north.client.store.set_state([ticket], "open")
        assert len(north.client.store.suppressed()) == 10
    server.start()
    with closing(Site(tmp_path / "sites" / "north")) as north:
        north.settle(patience=30)  # hands the request over
        assert north.await_receipt(ticket, patience=60).exact


def test_a_server_that_is_killed_goes_on(server: Running, tmp_path: Path) -> None:
    rows = data()
    with closing(server.site("north")) as north:
        north.learn(rows["north"])
        server.kill()
        server.start()
        with closing(server.site("south")) as south:
            south.learn(rows["south"])
        assert server.kill_worker()
        server_store = settled(tmp_path / "store")
        assert [shard.client for shard in server_store.shards()] == ["north", "south"]
        assert answers(north, rows["north"][0][:3])
        assert server.stop() == 0


def test_two_servers_on_one_store(server: Running, tmp_path: Path) -> None:
    from splitwiper.service.running import serve
    from splitwiper.service.storing import read_server

    with pytest.raises(BusyError, match=r"in use by .* \(serving\)"):
        serve(tmp_path / "store", read_server(tmp_path / "server.toml"), config=tmp_path / "server.toml")


def test_a_rolled_back_ledger_is_noticed(server: Running, tmp_path: Path) -> None:
    rows = data()
    with closing(server.site("north")) as north:
        north.learn(rows["north"])
        settled(tmp_path / "store")
        server.stop()
        shutil.copytree(tmp_path / "store", tmp_path / "old")
        server.start()
        with closing(server.site("south")) as south:
            south.learn(rows["south"])
        north.pin()
        server.stop()
        shutil.rmtree(tmp_path / "store")
        shutil.move(tmp_path / "old", tmp_path / "store")
        server.start()
        with pytest.raises(ForkError, match="rolled back"):
            north.pin()


def test_another_model_is_refused(server: Running, tmp_path: Path) -> None:
    certs = str(server.certs / "clients" / "north")
    wider = ModelConfig(**{**MODEL, "args": {**MODEL["args"], "cut": 9}})
    with pytest.raises(InputError, match="not what the federation was made with"):
        join(tmp_path / "h", SiteConfig(name="north", url=server.url, certs=certs, model=wider), ClientConfig())
    right = SiteConfig(name="north", url=server.url, certs=certs, model=ModelConfig(**MODEL))
    with pytest.raises(InputError, match="written as 'none'"):
        join(tmp_path / "h", right, ClientConfig(codec="int8"))
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize(
    ("values", "words"),
    [({"name": "../x"}, "letters, digits"), ({"url": "example.org"}, "give https://host:port")],
)
def test_bad_homes(values: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SiteConfig(**{"name": "north", "url": "https://127.0.0.1:1", **values})


def test_rows_that_a_function_changes_at_random_are_refused_at_a_site(tmp_path: Path, certs: Path) -> None:
    """Forgotten ones among them would not be recognised."""
    scene, drawn = Scene(tmp_path, certs), np.random.default_rng(0)
    try:
        x, y = scene.rows["north"]
        with pytest.raises(DataError, match="are others when they are asked for again"):
            scene.north.learn(lambda: (x + drawn.normal(size=x.shape).astype(np.float32), y))
        with pytest.raises(DataError, match="cannot be read: OSError"):
            scene.north.learn(lambda: (_ for _ in ()).throw(OSError("no")))
        assert scene.north.learn(lambda: (x, y)).held == len(x)
    finally:
        scene.close()


def test_a_receipt_says_what_the_site_s_noise_has_spent(server: Running) -> None:
    noise = Noise(mechanism="laplace", epsilon=5.0, clip=1.0, reading="value")
    with closing(server.site("north", noise=noise)) as north:
        north.learn(data()["north"])
        ticket = north.forget(classes=["bird"])
        north.settle()
        assert north.await_receipt(ticket, patience=60).privacy
