"""Atomic files: whole or not at all, owned by a process, swept when it is gone."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from splitwiper.errors import CorruptError, DiskFullError
from splitwiper.store import files
from splitwiper.store.process import Process


def steps_of(path: Path, **options: bool) -> list[str]:
    seen: list[str] = []
    with files.watch(lambda kind, _: seen.append(kind)):
        files.write_bytes(path, b"data", **options)
    return seen


@pytest.mark.parametrize("replace", [True, False])
def test_a_file_is_written_synced_renamed_and_its_folder_synced(tmp_path: Path, replace: bool) -> None:
    assert steps_of(tmp_path / "f", replace=replace) == [
        "write:before",
        "fsync:before",
        "fsync:after",
        "write:after",
        "rename:before",
        "rename:after",
        "fsync-folder:before",
        "fsync-folder:after",
    ]
    assert (tmp_path / "f").read_bytes() == b"data"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    files.write_bytes(path, b"old")
    with pytest.raises(RuntimeError, match="half way"), files.atomic_file(path) as file:
        file.write(b"ne")
        raise RuntimeError("half way")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_the_first_of_two_makers_wins(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with files.atomic_file(path, replace=False) as slow:
        slow.write(b"late")
        files.write_bytes(path, b"early", replace=False)
    assert path.read_bytes() == b"early"
    assert [p.name for p in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("at", ["write:before", "fsync:before", "rename:before", "fsync-folder:before"])
def test_a_full_disk_says_what_to_do(tmp_path: Path, number: int, at: str) -> None:
    def full(kind: str, _path: Path) -> None:
        if kind == at:
            raise OSError(number, os.strerror(number))

    with files.watch(full), pytest.raises(DiskFullError, match=r"no room left.*f.*run the same command again"):
        files.write_bytes(tmp_path / "f", b"data")
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CorruptError, match=f"{tmp_path / 'file'} is not as SplitWiper left it .*Move that away"):
        files.write_bytes(tmp_path / "file" / "f", b"data")


def test_a_folder_that_a_copy_left_out_is_made(tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "nowhere" / "f", b"data")
    assert (tmp_path / "nowhere" / "f").read_bytes() == b"data"


def test_watching_ends_with_its_block(tmp_path: Path) -> None:
    outer: list[str] = []
    with files.watch(lambda kind, _: outer.append(kind)):
        with pytest.raises(KeyError), files.watch(lambda kind, _: {}[kind]):
            files.write_bytes(tmp_path / "f", b"")
        files.erase(tmp_path / "f")
    files.write_bytes(tmp_path / "g", b"")
    assert outer == ["unlink:before", "unlink:after", "fsync-folder:before", "fsync-folder:after"]


def test_folders_are_private_and_made_on_the_way(tmp_path: Path) -> None:
    files.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    files.make_folder(tmp_path / "a" / "b")


def test_sweeping_keeps_what_counts(tmp_path: Path) -> None:
    for name in ("keep", "old", ".tmp-1-2-3"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    assert files.sweep(tmp_path, {"keep"}) == [".tmp-1-2-3", "folder", "link", "old"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["keep"]
    assert files.sweep(tmp_path / "nowhere", set()) == []
    files.erase(tmp_path / "gone already")


def test_sweeping_names_what_it_may_not_erase(tmp_path: Path) -> None:
    (tmp_path / "swept" / "folder").mkdir(parents=True)
    (tmp_path / "swept" / "folder" / "thesis.tex").touch()
    with pytest.raises(CorruptError, match=r"swept/folder is not as SplitWiper left it .*Move that away"):
        files.sweep(tmp_path / "swept", set())
    (tmp_path / "swept" / "folder").rename(tmp_path / "moved")
    (tmp_path / "swept" / "link").symlink_to(tmp_path / "moved" / "thesis.tex")
    with pytest.raises(CorruptError, match=r"swept/link is a link to .*thesis.tex: .*Remove both"):
        files.sweep(tmp_path / "swept", set())
    assert (tmp_path / "moved" / "thesis.tex").exists()


def dead_process() -> Process:
    """A process that was, and is no more."""
    me = Process.current()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return Process(child.pid, "12345", me.place)


def test_files_of_dead_processes_are_swept_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    gone = dead_process()
    living, dead = tmp_path / files.owned_name("shard"), tmp_path / f"shard-{gone.pid}-{gone.started}-00ff"
    reused = tmp_path / f"shard-{os.getpid()}-1-00ff"  # this process's number, but another's start
    fresh, stale = tmp_path / "upload", tmp_path / "forgotten upload"
    for path in (living, dead, reused, fresh, stale):
        path.touch()
    os.utime(stale, (time.time() - 100_000,) * 2)
    files.sweep_abandoned(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([living, fresh])


def test_only_temporaries_are_swept_where_other_files_lie(tmp_path: Path) -> None:
    gone = dead_process()
    mine, dead = tmp_path / "notes", tmp_path / f".tmp-{gone.pid}-{gone.started}-00ff"
    living = tmp_path / files.owned_name(".tmp")
    for path in (mine, dead, living):
        path.touch()
        os.utime(path, (time.time() - 100_000,) * 2)
    files.sweep_abandoned(tmp_path, stem=files.TEMPORARY)
    assert sorted(tmp_path.iterdir()) == sorted([mine, living])


def test_random_names_say_nothing() -> None:
    assert len({files.random_name("shard") for _ in range(100)}) == 100
    assert files.random_name("x").startswith("x-")


# --- processes ----------------------------------------------------------------------------------------------


def test_a_process_knows_itself_and_its_place() -> None:
    me = Process.current()
    assert me.may_be_alive()
    assert me.is_here()
    assert Process.parse(me.text) == me
    assert str(os.getpid()) in str(me)


def test_the_dead_are_told_from_the_living() -> None:
    me = Process.current()
    assert not dead_process().may_be_alive()
    assert not Process(me.pid, "1", me.place).may_be_alive()  # the number was used again
    assert Process(dead_process().pid, "1", "another machine").may_be_alive()  # who knows


def test_a_process_nobody_waited_for_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = Process.current().started and (Path("/proc") / str(child.pid) / "stat").read_text().split()[21]
    living = Process(child.pid, started, Process.current().place)
    assert living.may_be_alive()
    child.kill()
    limit = time.monotonic() + 10
    while living.may_be_alive() and time.monotonic() < limit:
        time.sleep(0.01)
    assert not living.may_be_alive()
    assert child.stdin is not None
    child.stdin.close()
    child.wait()


def test_a_link_is_copied_and_not_adopted(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"bytes")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("real", "link"):
        files.adopt(tmp_path / name, tmp_path / f"{name}-taken")
        assert not (tmp_path / f"{name}-taken").is_symlink() and (tmp_path / f"{name}-taken").read_bytes() == b"bytes"
    assert (tmp_path / "real-taken").samefile(tmp_path / "real")
    assert not (tmp_path / "link-taken").samefile(tmp_path / "real")


@pytest.mark.parametrize("size", [0, 1, files.PIECE, files.PIECE + 3])
def test_an_open_file_has_the_digest_of_its_path(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        assert files.digest_of(file) == files.file_digest(path)
