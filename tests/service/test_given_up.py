"""Sealed words of talks that came to nothing: erased when the talk is given up, or old; what was agreed on stays."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from service.processes import Running, settled
from service.serving import link_of
from service.talking import PARTITION, SECRET, sites, together, wards
from splitwiper import Label
from splitwiper.client.agreeing import Gathering
from splitwiper.errors import AbsentClientError, DataError
from splitwiper.masking.consensus import Participant
from splitwiper.masking.negotiation import Negotiation
from splitwiper.masking.sealing import GroupKey
from splitwiper.service.records.database import service_database
from splitwiper.service.records.negotiations import Negotiations
from splitwiper.service.site.link import HttpsLink
from splitwiper.store import ServerStore
from splitwiper.wire import lock_of

KEY = GroupKey.of(SECRET, federation="f")
YEAR = 365 * 24.0


def bodies(store: Path, topic: str = "labels/1") -> list[bytes]:
    return [message.body for message in ServerStore(store).relay.posted(topic)]


def is_stored(store: Path, words: list[bytes]) -> bool:
    """Whether any part of words is in a file of the store."""
    held = b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())
    return any(word[place : place + 24] in held for word in words for place in range(0, len(word), 256))


def test_a_talk_that_is_given_up_is_erased_at_once(server: Running, tmp_path: Path) -> None:
    rows, store, all_three = wards(), tmp_path / "store", ("north", "south", "west")
    with sites(server, ("north", "south"), invitation=SECRET) as here:
        north, south = here.values()
        for site in (north, south):
            with pytest.raises(AbsentClientError):
                site.learn(rows[site.config.name], gathering=Gathering(members=all_three, patience=0))
        words = bodies(store)
        assert len(words) >= 2 and is_stored(store, words)
        with pytest.raises(AbsentClientError, match="waits for 'north'"):  # west never comes
            south.learn(rows["south"], gathering=Gathering(members=("north",), anew=True, patience=0))
        assert [bool(body) for body in bodies(store)] == [False] * len(words) + [True]
        assert not is_stored(store, words)  # north's too, which has not come again yet
        together({"north": north, "south": south}, rows)
        assert all(bodies(store, "labels/2"))
        codebook = north.client.group.codebook()
        assert codebook.version == 2
    with closing(server.site("west", masking=PARTITION, invitation=SECRET)) as west:  # it does come
        with pytest.raises(DataError, match="'scarlatina' is not in the codebook"):
            west.learn(rows["west"])
        x, y = rows["west"]
        west.learn((x[y == "influenza"], y[y == "influenza"]))
        assert west.client.group.codebook() == codebook
    assert [shard.client for shard in settled(store).shards()] == ["north", "south", "west"]


def test_a_talk_in_which_nobody_spoke_still_leads_to_the_next(server: Running, tmp_path: Path) -> None:
    rows, store = wards(), tmp_path / "store"
    with sites(server, ("north",), invitation=SECRET) as here:
        north = here["north"]
        for members, anew in (("south",), False), (("east",), True), (("south",), True):
            with pytest.raises(AbsentClientError):
                north.learn(rows["north"], gathering=Gathering(members=members, anew=anew, patience=0))
    assert [len(bodies(store, f"labels/{number}")) for number in (1, 2, 3)] == [2, 1, 1]  # east would have begun
    with closing(service_database(store)) as database:
        ended = {row["topic"]: row["ended"] for row in database.read("SELECT * FROM talks")}
    assert ended == {"labels/1": 1, "labels/2": 1, "labels/3": 0}


# --- without sites: who talks has labels, a key and a link -----------------------------------------------------


def person(name: str, *labels: str) -> Participant:
    return Participant(name, {Label("", label) for label in labels}, PARTITION, Random(name))


def talked(url: str, certs: Path, *names: str, words: int = 100) -> dict[str, Negotiation]:
    """Let clients talk until so many words were said, or all agree."""
    talks = {name: Negotiation(link_of(url, certs, name), KEY, 1, strangers=True) for name in names}
    people = {name: person(name, "measles", name) for name in names}
    while not any(talk.consensus for talk in talks.values()):
        for name, talk in talks.items():
            talk.listen()
            if talk.turns >= words:
                return talks
            talk.speak(people[name], names)
    return talks


def test_strangers_erase_their_own_words_alone(url: str, certs: Path, run) -> None:
    store = run.path / "server"
    talk = talked(url, certs, "north", "south", words=3)["north"]
    said, west = bodies(store), link_of(url, certs, "west")
    own = secrets.token_bytes(32)
    west.post("west", "labels/1", 3, lock_of(own) + b"its own")
    west.post("west", "labels/1", 4, said[0])  # another's words, lock and all
    for proof in (b"", own, secrets.token_bytes(32), said[0][:32]):
        west.ended("labels/1", proof)
    assert bodies(store) == [*said, b"", said[0]]
    west.ended("labels/7", own)
    late = Negotiation(west, KEY, 1, strangers=True)
    late.listen()
    assert late.turns == 3 and set(late.unread) == {"west"}
    west.ended("labels/1", talk.proof)  # one of the group can
    assert bodies(store) == [b""] * 5 and not is_stored(store, said)


def erased(store: Path) -> bool:
    return not any(bodies(store))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_an_idle_server_erases_what_nobody_goes_on_with(serve, certs: Path, run) -> None:
    url, store = serve(patience=5e-4), run.path / "server"
    talks = talked(url, certs, "north", "south", words=3)
    said, heard = bodies(store), [time.monotonic()]
    while heard[-1] - heard[0] < 2.9:  # it is waited for: north listens
        talks["north"].listen()
        heard.append(time.monotonic())
        time.sleep(0.1)
    longest = max(later - earlier for earlier, later in pairwise(heard))
    waited = bodies(store) == said and talks["north"].turns == 3
    assert waited or longest > 1.5  # this process was kept from listening
    until(lambda: erased(store))
    assert not is_stored(store, said)
    again = talked(url, certs, "north", "south")  # all anew, at the next place
    talks["north"].listen()  # also for a process that heard what is gone
    for talk in again.values():
        talk.listen()
    assert talks["north"].consensus == again["south"].consensus is not None
    link: HttpsLink = link_of(url, certs, "north")
    link.ended("labels/1")
    time.sleep(2.9)
    assert [bool(body) for body in bodies(store)] == [False] * 3 + [True] * (len(bodies(store)) - 3)
    late = Negotiation(link_of(url, certs, "west"), KEY, 1, strangers=True)
    late.listen()
    assert late.consensus == again["south"].consensus


@pytest.fixture
def process(run, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Negotiations]:
    """A server process's talks; the next call makes those of its successor. Clocks are at so many hours."""
    store = run.path / "server"
    database, real = service_database(store), time.time()
    database.create({})

    def process() -> Negotiations:
        return Negotiations(database, ServerStore(store), 24.0, lambda: 3600 * process.now)

    process.now, process.wall, process.database, process.store = 0.0, 0.0, database, ServerStore(store)
    monkeypatch.setattr(time, "time", lambda: real + 3600 * process.wall)
    return process


def post(process, topic: str, place: int = 0) -> None:
    process.store.relay.post("north", topic, place, b"word", shared=True)


def test_old_talks_go_by_the_clock_that_nobody_sets(process) -> None:
    here = process()
    for topic in ("labels/1", "labels/2", "labels/3"):
        post(process, topic)
        here.spoken(topic)
    here.ended("labels/2")
    process.now, process.wall = 20.0, YEAR
    here.expire(process.store)
    here.listened("labels/3")
    here.listened("labels/4")  # there is none
    assert process.store.relay.topics() == {"labels/1", "labels/2", "labels/3"}
    process.now = 24.1
    here.expire(process.store)
    assert process.store.relay.topics() == {"labels/2", "labels/3"}
    process.now = 44.1
    here.expire(process.store)
    assert process.store.relay.topics() == {"labels/2"}
    post(process, "labels/1", 1)  # begun anew
    here.spoken("labels/1")
    here.expire(process.store)
    assert process.store.relay.topics() == {"labels/1", "labels/2"}


def test_old_talks_go_after_a_restart_as_well(process) -> None:
    here = process()
    post(process, "labels/1")
    here.spoken("labels/1")
    post(process, "labels/2")  # and the server was killed before it took note
    process.now, process.wall = -500.0, 23.0  # another machine's clock, a day later
    here = process()
    here.expire(process.store)
    assert process.store.relay.topics() == {"labels/1", "labels/2"}
    process.now, process.wall = -486.9, 36.1
    here.expire(process.store)
    assert process.store.relay.topics() == {"labels/2"}
    process.now = -475.0
    here.expire(process.store)
    assert process.store.relay.topics() == set()


def test_what_was_agreed_on_with_an_older_server_stays(process) -> None:
    with process.database.change() as db:
        db.execute("DROP TABLE talks")
    post(process, "labels/1")
    here = process()
    for now in (0.0, 1000.0):
        process.now = process.wall = now
        here.expire(process.store)
        process().expire(process.store)
    assert process.store.relay.topics() == {"labels/1"}
