"""The disk is full at some steps, in the soak at every single one; once there is room, the same call ends the same."""

from __future__ import annotations

import errno
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from reliability.campaign import todays
from reliability.scenarios import SCENARIOS, learned, requests
from reliability.stage import bits, config, halves, place_keys, reopen, rows, scratch, strays
from splitwiper import Federation
from splitwiper.errors import DiskFullError, StoreError
from splitwiper.federation import status
from splitwiper.store import files
from splitwiper.store.database import Database

GROWING = {"write", "fsync", "rename", "mkdir", "commit"}
"""Steps that need room; removing and syncing folders does not."""
NEVER = 1 << 60
APART = 10
"""One step in so many is tried by default; each has its day."""


@pytest.fixture
def folder() -> Iterator[Path]:
    path = scratch()
    yield path
    shutil.rmtree(path)


class Disk:
    """A disk that is full from its n-th step on, whatever that step is, until room is made."""

    def __init__(self, full_at: int) -> None:
        self.full_at, self.seen, self.hit = full_at, 0, ""

    def __call__(self, kind: str, path: Path) -> None:
        what, _, when = kind.partition(":")
        if when == "before":
            self.seen += 1
            if self.seen == self.full_at or (self.seen > self.full_at and what in GROWING):
                self.hit = self.hit or f"{what} {path}"
                raise OSError(errno.ENOSPC, "No space left on device")


def exhaust(
    folder: Path, act: Callable[[Path], None], again: Callable[[Path], None], *, apart: int = APART
) -> tuple[int, int]:
    """Fill the disk at steps of `act` on a copy of ``folder/prepared``; return how many steps there are, and were met.

    Each time the call says that there is no room, or has done its work; `again` then ends in the same bits.
    """
    case = folder / "case"

    def run(full_at: int) -> Disk:
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(folder / "prepared", case)
        disk = Disk(full_at)
        with files.watch(disk):
            try:
                act(case)
            except DiskFullError as problem:
                assert "room" in str(problem), problem
                assert "same command" in str(problem), problem
            else:
                assert not disk.hit or bits(case) == wanted, f"{disk.hit}: the call returned with its work undone"
        return disk

    steps = run(full_at=NEVER).seen
    wanted, met = bits(case), 0
    for number in range(1 + todays(apart), steps + 1, apart):
        disk = run(number)
        met += bool(disk.hit)
        if (case / "federation.toml").exists():
            status(case)
        again(case)
        assert bits(case) == wanted, disk.hit
        assert strays(case) == [], disk.hit
        assert status(case).todo == (), disk.hit
    return steps, met


def learning(folder: Path, apart: int) -> tuple[int, int]:
    place_keys(folder / "prepared")

    def act(path: Path) -> None:
        Federation(path, halves(), config(slices=2)).learn({"north": rows("north", "aabb")})

    return exhaust(folder, act, act, apart=apart)


def settling(folder: Path, apart: int) -> tuple[int, int]:
    scenario = SCENARIOS["settle"]
    learned(folder / "prepared", slices=1)
    acked: list[str] = []

    def act(path: Path) -> None:
        acked.clear()
        scenario.act(path, acked.append)

    return exhaust(folder, act, lambda path: scenario.recover(path, acked), apart=apart)


@pytest.mark.parametrize("work", [learning, settling])
def test_a_disk_that_is_full_at_some_steps(folder: Path, work: Callable[[Path, int], tuple[int, int]]) -> None:
    steps, met = work(folder, APART)
    assert steps > 60 and met == len(range(todays(APART), steps, APART))


@pytest.mark.soak
@pytest.mark.parametrize("work", [learning, settling])
def test_a_disk_that_is_full_at_any_step(folder: Path, work: Callable[[Path, int], tuple[int, int]]) -> None:
    steps, met = work(folder, 1)
    assert steps == met > 60


def test_the_same_federation_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """Without reopening: nothing of the failed call, the lease above all, stands in the way."""
    SCENARIOS["settle"].prepare(tmp_path / "learned")
    shutil.copytree(tmp_path / "learned", tmp_path / "quiet")
    SCENARIOS["settle"].act(tmp_path / "quiet", lambda _: None)
    for full_at in range(1, 90, 22):
        shutil.copytree(tmp_path / "learned", tmp_path / str(full_at))
        fed = reopen(tmp_path / str(full_at))
        for name, what in requests(fed.path).items():
            fed.submit(name, **what)
        with files.watch(Disk(full_at)), pytest.raises(DiskFullError):
            fed.settle()
        assert len(fed.settle()) == 2
        assert bits(tmp_path / str(full_at)) == bits(tmp_path / "quiet")


# --- the database's own disk --------------------------------------------------------------------------------


def _learned(path: Path) -> Federation:
    place_keys(path)
    fed = Federation(path, halves(), config())
    fed.learn({"north": rows("north", "ab")})
    return fed


MANY = rows("north", "ab" * 400, part=1)


@pytest.fixture(scope="module")
def many() -> Iterator[dict[str, object]]:
    path = scratch()
    _learned(path / "run").learn({"north": MANY})
    yield bits(path / "run")
    shutil.rmtree(path)


def test_a_full_database_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suppression list needs room; what found none is not forgotten in part."""
    fed = _learned(tmp_path / "run")
    fed.learn({"north": MANY})
    shutil.copytree(tmp_path / "run", tmp_path / "quiet")
    reopen(tmp_path / "quiet").unlearn("north", classes=["a"])
    before = bits(tmp_path / "run")
    connect = Database._connect

    def cramped(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
        db = connect(path, readonly=readonly)
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        return db

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_connect", staticmethod(cramped))
        with pytest.raises(DiskFullError, match="room"):
            fed.unlearn("north", classes=["a"])
    assert bits(tmp_path / "run") == before
    assert status(tmp_path / "run").tickets == ()
    fed.unlearn("north", classes=["a"])
    assert bits(tmp_path / "run") == bits(tmp_path / "quiet")
    assert strays(tmp_path / "run") == []


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [64, 4_096, 20_000, 50_000])
def test_a_file_size_limit_reads_as_such(tmp_path: Path, many: dict[str, object], size: int) -> None:
    """The kernel says EFBIG to files, and SQLite says "disk I/O error": both tell what to look at."""
    fed = _learned(tmp_path / "run")
    with file_size_limit(size), pytest.raises(StoreError, match="limit"):
        fed.learn({"north": MANY})
    status(tmp_path / "run")
    assert fed.predict("north", np.zeros((1, 4), np.float32))[0] in "ab"
    fed.learn({"north": MANY})
    assert bits(tmp_path / "run") == many
    assert strays(tmp_path / "run") == []


def test_verifying_on_a_full_disk_accuses_nobody(tmp_path: Path) -> None:
    fed = _learned(tmp_path / "run")
    with file_size_limit(64):
        told = fed.verify()
    assert told.outcome == "unverifiable"
    assert "free space, quotas" in told.reason
    assert fed.verify().exact
