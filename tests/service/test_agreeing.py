"""Agreement on labels between sites that are apart: absence, wrong keys, strangers on the relay, crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path
from random import SystemRandom

import numpy as np
import pytest

import warm
from service.processes import ENVIRONMENT, MODEL_TOML, Running, settled
from service.serving import link_of
from service.talking import PARTITION, SECRET, sites, together, wards
from splitwiper.client.agreeing import Gathering
from splitwiper.config import Masking
from splitwiper.errors import AbsentClientError, ConfigError, CorruptError, DataError, InputError, QuotaError
from splitwiper.masking.consensus import Participant
from splitwiper.masking.negotiation import Negotiation
from splitwiper.service.site import Site
from splitwiper.service.site.own_key import OwnKey
from splitwiper.store import ServerStore


def at_once(*members: str, **how: object) -> Gathering:
    return Gathering(members=members, **{"patience": 0, **how})


def test_who_is_absent_is_waited_for_and_named(server: Running) -> None:
    rows, told = wards(), list[str]()
    with sites(server, invitation=SECRET) as here:
        west = here.pop("west")
        for _ in range(3):  # north speaks, then waits for south; south speaks, then all wait for west
            for name, site in here.items():
                with pytest.raises(AbsentClientError, match=r"waits for '(north|south|west)'"):
                    site.learn(rows[name], gathering=at_once("north", "south", "west", on_wait=told.append))
        start = time.monotonic()
        with pytest.raises(AbsentClientError, match=r"waits for 'west'. Have them join, and run the same again"):
            here["south"].learn(rows["south"], gathering=Gathering(patience=0.5, on_wait=told.append))
        assert 0.2 < time.monotonic() - start < 60 and told == ["the agreement on labels waits for 'west'."]
        with pytest.raises(AbsentClientError, match="waits for 'west'"):  # not one of them: it waits like the others
            here["north"].client.agree(at_once())
        together({**here, "west": west}, rows)
        assert len({site.client.group.codebook().id for site in (*here.values(), west)}) == 1


def test_rosters_that_differ(server: Running) -> None:
    rows = wards()
    with sites(server, invitation=SECRET) as here:
        north, south, west = here.values()
        with pytest.raises(AbsentClientError, match=r"waits for 'south' \(not heard of yet: west\)"):
            north.learn(rows["north"], gathering=at_once("south", "west"))
        with pytest.raises(InputError, match="among north, south, west has already begun; you named north, south"):
            south.learn(rows["south"], gathering=at_once("north"))
        with pytest.raises(ConfigError, match="to begin anew, name"):
            south.learn(rows["south"], gathering=at_once(anew=True))
        with pytest.raises(AbsentClientError, match="waits for 'north'"):  # west never comes: south begins without it
            south.learn(rows["south"], gathering=at_once("north", anew=True))
        with pytest.raises(InputError, match="among north, south has already begun; you named north, south, west"):
            north.learn(rows["north"], gathering=at_once("south", "west"))
        together({"north": north, "south": south}, rows)
        assert north.client.group.codebook().version == 2
        with pytest.raises(DataError, match="'scarlatina' is not in the codebook"):
            west.learn(rows["west"], gathering=at_once("north", "south", anew=True))  # what was agreed on stands


def test_another_key_is_told_and_harms_nobody(server: Running, tmp_path: Path) -> None:
    rows, all_three = wards(), at_once("north", "south", "west")
    with sites(server, ("north", "west"), invitation=SECRET) as here:
        north, west = here.values()
        with pytest.raises(AbsentClientError):
            north.learn(rows["north"], gathering=all_three)
        with closing(server.site("south", masking=PARTITION, invitation="quite another secret")) as south:
            words = ServerStore(tmp_path / "store").relay.posted("labels/1")
            for how in (all_three, at_once()):
                with pytest.raises(
                    CorruptError, match="from 'north', cannot be read: 'north' or this client has another"
                ):
                    south.learn(rows["south"], gathering=how)
            assert ServerStore(tmp_path / "store").relay.posted("labels/1") == words
        with pytest.raises(AbsentClientError, match="waits for 'south'"):
            west.learn(rows["west"], gathering=all_three)
        with closing(server.site("south", masking=PARTITION, invitation=SECRET)) as south:  # it takes the right one
            together({**here, "south": south}, rows)
    settled(tmp_path / "store")


def test_another_key_that_spoke_first(server: Running) -> None:
    rows, both = wards(), at_once("north", "south")
    wrong = server.site("north", masking=PARTITION, invitation="quite another secret")
    with closing(wrong) as north, pytest.raises(AbsentClientError, match="waits for 'south'"):
        north.learn(rows["north"], gathering=both)
    with closing(server.site("south", masking=PARTITION, invitation=SECRET)) as south:
        with pytest.raises(CorruptError, match=r"message 0 .* 'north', cannot be read.* Compare the files"):
            south.learn(rows["south"], gathering=both)
        with closing(server.site("north", masking=PARTITION, invitation=SECRET)) as north:
            together({"north": north, "south": south}, rows)
        assert south.client.group.codebook() == north.client.group.codebook()


def test_another_group_cannot_bring_its_codes(server: Running, tmp_path: Path) -> None:
    rows = wards()
    with sites(server, ("north", "south"), invitation=SECRET) as here:
        together(here, rows)
    with closing(server.site("west", masking=PARTITION, invitation="quite another secret")) as west:
        with pytest.raises(CorruptError, match="If 'north' is not in the group, name all that are"):
            west.learn(rows["west"])
        with pytest.raises(DataError, match="another codebook than the others"):  # a group of its own
            west.learn(rows["west"], gathering=at_once("west"))
    assert [shard.client for shard in settled(tmp_path / "store").shards()] == ["north", "south"]


def test_settings_that_differ_are_told_before_rows_are_kept(server: Running) -> None:
    rows = wards()
    with closing(server.site("north", masking=PARTITION, invitation=SECRET)) as north:
        together({"north": north}, rows)
    other = Masking(mode="partition", gamma=2)
    with closing(server.site("south", masking=other, invitation=SECRET)) as south:
        with pytest.raises(ConfigError, match=r"other settings .*gamma = 3 there, gamma = 2 here"):
            south.learn(rows["south"])
        assert not south.client.store.slices()


def test_a_stranger_on_the_relay_stops_nobody(server: Running, tmp_path: Path) -> None:
    rows, told = wards(), list[str]()
    federation = ServerStore(tmp_path / "store").database.meta("run") or ""
    stranger = link_of(server.url, server.certs, "west", tries=1, signer=OwnKey(tmp_path, federation))
    stranger.register("west")
    stranger.post("west", "labels/1", 0, b"rubbish")
    with sites(server, ("north", "south"), invitation=SECRET) as here:
        with pytest.raises(CorruptError, match=r"message 0 .* from 'west', cannot be read.* name all that are"):
            here["north"].learn(rows["north"])
        with pytest.raises(AbsentClientError, match="waits for 'south'"):
            here["north"].learn(rows["north"], gathering=at_once("south", on_wait=told.append))
        assert told == ["a message from 'west' cannot be read, and was skipped."]
        said = stranger.posted("labels/1")
        stranger.post("west", "labels/1", len(said), said[-1].body)  # another's words in its own name
        stranger.post("west", "labels/2", 0, b"nothing is erased by this")
        assert stranger.posted("labels/1")[: len(said)] == said
        with pytest.raises(QuotaError, match="bytes of messages on the relay"):
            for place in range(1, 20):
                stranger.post("west", "labels/2", place, b"x" * (1 << 20))
        together(here, rows)
        late = Negotiation(stranger, here["north"].client.group.key(), 1, strangers=True)
        late.listen()
        assert late.consensus is not None and set(late.unread) == {"west"}
    settled(tmp_path / "store")


def test_two_processes_speak_for_one_home(server: Running) -> None:
    rows = wards()
    with sites(server, ("north", "south"), invitation=SECRET, keys="random") as here:
        key = here["north"].client.group.key()
        for name, site in here.items():
            site.client.add(rows_of(site, rows[name]))
        sides = []
        for site in (here["north"], here["north"], here["south"], here["south"]):
            client = site.client
            person = Participant(client.name, set(client.labels()), client.config.masking, SystemRandom())
            sides.append((Negotiation(site.link, key, 1, strangers=True), person))
        for talk, _ in sides:
            talk.listen()  # all have heard the same
        while not all(talk.consensus for talk, _ in sides):
            for talk, person in sides:
                _unawares(talk, person)
        assert len({talk.consensus for talk, _ in sides}) == 1
        together(here, rows)


def rows_of(site: Site, data: tuple[np.ndarray, np.ndarray]) -> object:
    from splitwiper.data.rows import as_rows

    return as_rows(data, task=site.config.task)


def _unawares(talk: Negotiation, person: Participant) -> None:
    """Speak without having heard what the other process of the same site just said."""
    listen, heard = talk.listen, []
    talk.listen = lambda: listen() if heard else heard.append(True)  # type: ignore[method-assign]
    talk.speak(person, ["north", "south"])
    talk.listen = listen  # type: ignore[method-assign]
    talk.listen()


CLIENT = f"""
name = "NAME"
url = "URL"
certs = "certs/clients/NAME"
data = "NAME.npz"
{MODEL_TOML}
[client]
epochs = 2
head_width = 4
threads = 1
masking = {{mode = "partition", gamma = 3}}
"""


def test_processes_that_are_killed_go_on(server: Running, tmp_path: Path) -> None:
    assert warm.run(["splitwiper", "group", "ward.group"], cwd=tmp_path, env=ENVIRONMENT).returncode == 0
    running = {}

    def start(name: str, *words: str) -> warm.Process:
        (tmp_path / f"{name}.toml").write_text(
            CLIENT.replace("NAME", name).replace("URL", server.url), encoding="utf-8"
        )
        np.savez(tmp_path / f"{name}.npz", inputs=wards()[name][0], labels=wards()[name][1])
        command = ["splitwiper", "join", f"{name}.toml", "--site", f"sites/{name}", "--group", "ward.group", *words]
        return warm.start(command, cwd=tmp_path, stderr=subprocess.PIPE, env=ENVIRONMENT)

    both = ("--with", "north", "--with", "south")
    running["north"] = start("north", *both)
    end = time.monotonic() + 60
    while not ServerStore(tmp_path / "store").relay.posted("labels/1"):
        assert time.monotonic() < end and running["north"].poll() is None, running["north"].stderr.read()
        time.sleep(0.02)
    os.kill(running["north"].pid, signal.SIGKILL)
    assert running.pop("north").communicate(timeout=60)[1] is not None
    running = {"north": start("north", *both), "again": start("north"), "south": start("south")}
    told = {name: process.communicate(timeout=60)[1] for name, process in running.items()}
    codes = {name: process.returncode for name, process in running.items()}
    assert codes["south"] == 0 and sorted((codes["north"], codes["again"])) in ([0, 0], [0, 8]), told  # 8: busy
    assert [shard.client for shard in settled(tmp_path / "store").shards()] == ["north", "south"]
    assert len({Site(tmp_path / "sites" / n).client.group.codebook().id for n in ("north", "south")}) == 1
