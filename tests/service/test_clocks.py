"""The server's clock is set a year ahead or back, in the middle of things: nothing is lost, and nobody is shut out."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.conftest import COMMITTED, said, shard
from service.processes import Running
from service.serving import link_of
from splitwiper.errors import BusyError, NotFoundError
from splitwiper.service.connections.limits import RateLimiter
from splitwiper.service.identity import Trust
from splitwiper.service.records.database import service_database
from splitwiper.service.records.uploads import Uploads
from splitwiper.service.settings import ServiceConfig
from splitwiper.store import ServerStore
from splitwiper.wire import Request

YEAR = 365 * 86_400.0
JUMPS = pytest.mark.parametrize("seconds", [YEAR, -YEAR])


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock on the wall; the one that nobody sets goes on."""
    real = time.time

    def by(seconds: float) -> None:
        when = datetime.now(UTC) + timedelta(seconds=seconds)
        monkeypatch.setattr(time, "time", lambda: real() + seconds)
        monkeypatch.setattr("splitwiper.store.tickets.now", lambda: when.isoformat(timespec="seconds"))

    return by


@JUMPS
def test_in_the_middle_of_an_upload(seconds: float, url: str, certs: Path, run, jump, tmp_path: Path) -> None:
    """A shard that was acknowledged stays; one that is under way is taken, without beginning again."""
    link, store = link_of(url, certs, "north"), ServerStore(run.path / "server")
    link_of(url, certs, "south").upload("south", shard(tmp_path / "o", 4), said())
    link.upload("north", shard(tmp_path / "a", 5), said())
    once, calls = link._once, list[str]()

    def jumping(method: str, place: str, **how: object) -> object:
        calls.append(f"{method} {place}")
        if method == "PATCH":
            jump(seconds)
            link_of(url, certs, "south").upload("south", shard(tmp_path / "o", 7), said())  # gives up what is overdue
            assert [s.rows for s in store.shards()] == [5, 7]
        return once(method, place, **how)

    link._once = jumping
    link.upload("north", shard(tmp_path / "b", 6), said())
    assert [s.rows for s in store.shards()] == [6, 7]
    assert calls.count("POST /v1/uploads") == 1 and len(calls) == 3, calls


@pytest.fixture
def uploads(tmp_path: Path) -> Callable[[], Uploads]:
    """A server process's uploads; the next call makes those of its successor. Its clock is at ``uploads.now`` hours."""
    database = service_database(tmp_path)
    database.create({})

    def process() -> Uploads:
        return Uploads(tmp_path / "uploads", database, ServiceConfig(patience=24.0), lambda: 3600.0 * process.now)

    process.now = 1000.0
    return process


def begun(uploads: Uploads, mark: str = "m") -> str:
    return uploads.begin("north", 100, mark, said()).id


def test_an_upload_ends_by_the_clock_that_nobody_sets(uploads, jump) -> None:
    here = uploads()
    first = begun(here)
    for hours, seconds in ((10.0, YEAR), (23.9, -YEAR)):
        uploads.now = 1000.0 + hours
        jump(seconds)
        here.expire()
        assert here.find("north", first).id == first
    uploads.now = 1024.1
    here.expire()
    with pytest.raises(NotFoundError, match="has expired"):
        here.find("north", first)


def test_what_an_earlier_process_left_ends_by_the_clock_on_the_wall_as_it_was_then(uploads, jump) -> None:
    upload = begun(uploads())
    uploads.now, here = 5.0, uploads()  # the machine was started again: its own clock says nothing of before
    jump(20 * 3600.0)
    here.expire()
    assert here.find("north", upload).id == upload
    jump(YEAR)  # set while this process runs: four hours are left all the same
    uploads.now = 8.9
    here.expire()
    assert here.find("north", upload).id == upload
    uploads.now = 9.1
    here.expire()
    with pytest.raises(NotFoundError, match="has expired"):
        here.find("north", upload)


def test_what_an_earlier_process_left_is_not_kept_for_ever(uploads, jump) -> None:
    old, new = uploads(), begun(uploads())
    jump(25 * 3600.0)
    uploads().expire()  # a day later
    with pytest.raises(NotFoundError, match="has expired"):
        old.find("north", new)
    jump(YEAR)
    late = begun(uploads())
    jump(0.0)
    here = uploads()
    here.expire()  # the clock was set back: a year is not waited for
    uploads.now += 24.1
    here.expire()
    with pytest.raises(NotFoundError, match="has expired"):
        here.find("north", late)


@JUMPS
def test_between_asking_and_settling(seconds: float, url: str, certs: Path, run, jump, tmp_path: Path) -> None:
    link = link_of(url, certs, "north")
    link.upload("north", shard(tmp_path / "a", 6), said())
    run._server.train()
    asked = link.submit(Request("t1", "north", "class", COMMITTED))
    deadline = link._http.get("/v1/requests").json()[0]["deadline"]
    jump(seconds)
    link.upload("north", shard(tmp_path / "b", 4), said("t1"))
    (receipt,) = run._server.train()
    assert receipt.exact and link.receipt("t1").ticket == "t1"
    (told,) = link._http.get("/v1/requests").json()
    assert (told["received"], told["deadline"], told["state"]) == (asked.received, deadline, "settled")
    assert link.certificate("t1")["payload"]


def test_rates_do_not_look_at_the_clock_on_the_wall(jump) -> None:
    rates = RateLimiter(rate=1000.0, burst=1)
    for seconds in (0.0, YEAR, -YEAR):
        jump(seconds)
        rates.take("north")
        time.sleep(0.01)


def test_certificates_have_their_time(certs: Path) -> None:
    der = (certs / "clients" / "north" / "certificate.pem").read_text(encoding="ascii")
    import ssl

    from splitwiper.errors import IdentityError

    for days, fine in ((0, True), (300, True), (400, False), (-300, False)):
        trust = Trust(certs / "server", clock=lambda days=days: datetime.now(UTC) + timedelta(days=days))
        if fine:
            assert trust.principal(ssl.PEM_cert_to_DER_cert(der)).name == "north"
        else:
            with pytest.raises(IdentityError):
                trust.principal(ssl.PEM_cert_to_DER_cert(der))


def test_a_server_that_lost_its_store_stops(tmp_path: Path) -> None:
    """It was suspended for so long that another one took the store over; there are not two of them then."""
    from splitwiper.store.database import Database

    running, database = Running(tmp_path), Database(tmp_path / "store" / "service.db", "")
    os.kill(running.process.pid, signal.SIGSTOP)
    for left in reversed(range(20)):
        try:
            with database.change() as db:
                db.execute("UPDATE lease SET since = -1e6, expires = 1")
            break
        except BusyError:  # it was suspended in the middle of a change of its own
            assert left, "the store was never free"
            os.kill(running.process.pid, signal.SIGCONT)
            time.sleep(0.1)
            os.kill(running.process.pid, signal.SIGSTOP)
    with database.lease("serving"):
        os.kill(running.process.pid, signal.SIGCONT)
        assert running.process.wait(30) != 0
    running.process.stdout.close()
    assert "another process took over" in (tmp_path / "server.log").read_text(encoding="utf-8")
