"""Fetching, from a publisher on this machine: what comes is checked before anything is put in place."""

from __future__ import annotations

import errno
import gzip
import json
import os
import socket
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from datasets.layouts import Publisher, ag_news, cifar10, mnist, mnist_files, offer, packed, small, tar
from splitwiper.errors import DataError, DiskFullError, NotFoundError
from splitwiper_lab.datasets import fetch as fetching
from splitwiper_lab.datasets import sources
from splitwiper_lab.datasets.checksums import check, check_sizes
from splitwiper_lab.datasets.fetch import fetch
from splitwiper_lab.datasets.published import Published

ARCHIVE = "cifar-10-binary.tar.gz"


@pytest.fixture
def content(tmp_path: Path) -> dict[str, bytes]:
    """What is in the archive of CIFAR-10."""
    return packed(cifar10(tmp_path / "original"))


@pytest.fixture
def ten(offered: Publisher, content: dict[str, bytes]) -> Published:
    """CIFAR-10, on offer."""
    return offered.of(small("cifar10"), {ARCHIVE: tar({**content, "cifar-10-batches-bin/readme.html": b"<p>"})})


def nothing_kept(root: Path) -> bool:
    return not root.exists() or not list(root.iterdir())


def test_an_archive_is_fetched_and_unpacked(ten: Published, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    place = fetch(ten, folder=tmp_path / "a" / "data", progress=lambda *what: told.append(what))
    assert place == tmp_path / "a" / "data" / "cifar-10-batches-bin"
    assert {path.name for path in place.iterdir()} == {*ten.files, "checksums.json"}
    assert [p.name for p in place.parent.iterdir()] == [place.name]  # nothing temporary stays
    assert len(ten.load(place.parent).train[1]) == 100
    assert set(check(ten, place.parent).values()) == {"fetched"}
    assert told[0][0] == f"fetching {ARCHIVE} (MB)"
    recorded = json.loads((place / "checksums.json").read_text(encoding="utf-8"))["files"]
    assert recorded["test_batch.bin"]["size"] == 40 * 3073


def test_plain_files_are_fetched(offered: Publisher, tmp_path: Path) -> None:
    files = {f"{name}.gz": gzip.compress(raw, mtime=0) for name, raw in mnist_files().items()}
    what = offered.of(small("mnist"), files)
    assert fetch(what, folder=tmp_path) == tmp_path / "MNIST" / "raw"
    assert len(what.load(tmp_path).train[1]) == 120
    assert offered.asked == [f"/{name}" for name in files]


def test_load_downloads_when_told(ten: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sources.PUBLISHED, "cifar10", ten)
    with pytest.raises(NotFoundError):
        sources.load("cifar10", folder=tmp_path)
    assert nothing_kept(tmp_path / "data")
    assert len(sources.load("cifar10", folder=tmp_path, download=True).test[1]) == 40


def test_damaged_files_are_replaced(ten: Published, tmp_path: Path) -> None:
    place = fetch(ten, folder=tmp_path)
    (place / "data_batch_1.bin").write_bytes(b"cut")
    with pytest.raises(DataError, match="3 bytes instead of the 61,460 that were fetched"):
        check_sizes(ten, tmp_path)
    (place / "mine.txt").write_text("stays", encoding="utf-8")
    fetch(ten, folder=tmp_path)
    assert set(check(ten, tmp_path).values()) == {"fetched"}
    assert (place / "mine.txt").read_text(encoding="utf-8") == "stays"


def test_load_compares_sizes(offered: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ag_news(tmp_path / "original")
    files = {name: (place / name).read_bytes() for name in ("train.csv", "test.csv")}
    monkeypatch.setitem(sources.PUBLISHED, "ag_news", offered.of(small("ag_news"), files))
    sources.load("ag_news", folder=tmp_path, download=True)
    lines = files["train.csv"].splitlines(keepends=True)
    (tmp_path / "ag_news_csv" / "train.csv").write_bytes(b"".join(lines[:-1]))  # by itself it would pass for a subset
    with pytest.raises(DataError, match="that were fetched"):
        sources.load("ag_news", folder=tmp_path)


def test_one_flipped_bit_is_found_by_the_hash_alone(ten: Published, tmp_path: Path) -> None:
    place = fetch(ten, folder=tmp_path)
    raw = bytearray((place / "data_batch_4.bin").read_bytes())
    raw[77] ^= 1
    (place / "data_batch_4.bin").write_bytes(raw)
    ten.load(tmp_path)  # a pixel: it can be read
    with pytest.raises(DataError, match=r"data_batch_4.bin: its SHA-256 is not that of the file that was fetched"):
        check(ten, tmp_path)


def test_files_laid_out_by_hand_are_compared_with_what_is_published(offered: Publisher, tmp_path: Path) -> None:
    files = {f"{name}.gz": gzip.compress(raw, mtime=0) for name, raw in mnist_files().items()}
    what = offered.of(small("mnist"), files)
    place = fetch(what, folder=tmp_path)
    (place / "checksums.json").unlink()
    assert set(check(what, tmp_path).values()) == {"published"}
    name = "t10k-labels-idx1-ubyte.gz"
    (place / name).write_bytes(gzip.compress(mnist_files()[name.removesuffix(".gz")], mtime=1))  # compressed again
    assert check(what, tmp_path)[name] == "not the published file"


@pytest.mark.parametrize(
    "text",
    ["[]", "[" * 100_000, '{"set": "cifar10", "files": {"test_batch.bin": {"size": 1e999, "sha256": ""}}}', "\xff"],
    ids=["list", "deep", "infinite", "binary"],
)
def test_what_is_no_record_of_checksums(ten: Published, tmp_path: Path, text: str) -> None:
    place = fetch(ten, folder=tmp_path)
    (place / "checksums.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=r"checksums.json is not a record of checksums; delete it"):
        check(ten, tmp_path)


def test_files_that_were_unpacked_by_hand_have_hashes_too(tmp_path: Path) -> None:
    place = mnist(tmp_path)
    what = replace(small("mnist"), unpacked=tuple(offer(name, raw) for name, raw in mnist_files().items()))
    assert set(check(what, tmp_path).values()) == {"published"}
    file = place / "train-images-idx3-ubyte"
    raw = bytearray(file.read_bytes())
    raw[777] ^= 1
    file.write_bytes(raw)
    with pytest.raises(DataError, match="train-images-idx3-ubyte: its SHA-256 is not the published one"):
        check(what, tmp_path)


def test_a_damaged_unpacked_file_does_not_hide_the_fetched_one(offered: Publisher, tmp_path: Path) -> None:
    place = mnist(tmp_path)
    damaged = place / "t10k-labels-idx1-ubyte"
    damaged.write_bytes(b"damaged")
    files = {f"{name}.gz": gzip.compress(raw, mtime=0) for name, raw in mnist_files().items()}
    what = offered.of(small("mnist"), files)
    with pytest.raises(DataError):
        what.load(tmp_path)
    fetch(what, folder=tmp_path)
    assert len(what.load(tmp_path).test[1]) == 60
    assert check(what, tmp_path) == dict.fromkeys(files, "fetched")


def test_a_plain_file_of_the_published_size_has_the_published_hash(offered: Publisher, tmp_path: Path) -> None:
    place = ag_news(tmp_path)
    files = {name: (place / name).read_bytes() for name in ("train.csv", "test.csv")}
    what = offered.of(small("ag_news"), files)
    assert set(check(what, tmp_path).values()) == {"published"}
    (place / "test.csv").write_bytes(files["test.csv"].replace(b"Title 1,", b"Title 7,"))
    with pytest.raises(DataError, match="not the published one"):
        check(what, tmp_path)


def test_a_wrong_checksum(ten: Published, offered: Publisher, tmp_path: Path) -> None:
    raw = offered.files[f"/{ARCHIVE}"]
    assert isinstance(raw, bytes)
    offered.files[f"/{ARCHIVE}"] = raw[:-1] + b"?"
    with pytest.raises(DataError, match=f"instead of the published {ten.downloads[0].sha256}; nothing was kept"):
        fetch(ten, folder=tmp_path / "data")
    assert nothing_kept(tmp_path / "data")


@pytest.mark.parametrize("announced", [None, 10])
def test_a_body_that_is_cut_short(ten: Published, offered: Publisher, tmp_path: Path, announced: int | None) -> None:
    raw = offered.files[f"/{ARCHIVE}"]
    assert isinstance(raw, bytes)
    offered.files[f"/{ARCHIVE}"] = raw[: len(raw) // 2]
    if announced:  # the connection ends before what was announced has come
        offered.announced[f"/{ARCHIVE}"] = len(raw)
    with pytest.raises((DataError, NotFoundError), match=r"gave [\d,]+ instead of|could not be downloaded"):
        fetch(ten, folder=tmp_path / "data")
    assert nothing_kept(tmp_path / "data")


def test_a_body_that_does_not_end(ten: Published, offered: Publisher, tmp_path: Path) -> None:
    raw = offered.files[f"/{ARCHIVE}"]
    assert isinstance(raw, bytes)
    offered.files[f"/{ARCHIVE}"] = raw + bytes(100_000_000)
    with pytest.raises(DataError, match="gave more than that instead of"):
        fetch(ten, folder=tmp_path / "data")
    assert nothing_kept(tmp_path / "data")
    until = time.monotonic() + 10
    while not offered.refused and time.monotonic() < until:
        time.sleep(0.01)
    assert offered.refused == [f"/{ARCHIVE}"]  # it was not read to the end


def test_no_such_file_and_no_network(ten: Published, offered: Publisher, tmp_path: Path) -> None:
    offered.files.clear()
    with pytest.raises(NotFoundError, match="the server answers 404 Not Found") as caught:
        fetch(ten, folder=tmp_path / "data")
    assert f"by hand: download\n  {ten.base}{ARCHIVE}\n" in str(caught.value)
    assert f"unpack it in {tmp_path / 'data'}" in str(caught.value)
    with pytest.raises(NotFoundError, match="Connection refused"):
        fetch(ten, folder=tmp_path / "data", mirror="http://127.0.0.1:9")
    assert nothing_kept(tmp_path / "data")


def test_a_silent_publisher(ten: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT", 0.2)
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NotFoundError, match="timed out"):
        fetch(ten, folder=tmp_path / "data", mirror=f"http://127.0.0.1:{silent.getsockname()[1]}/")
    assert time.monotonic() - started < 10


def test_only_https_is_used(ten: Published, offered: Publisher, tmp_path: Path) -> None:
    for address in ("http://example.org/", "ftp://127.0.0.1/", "file:///etc/", "http://127.0.0.1.example.org/"):
        with pytest.raises(DataError, match="not an https address"):
            fetch(ten, folder=tmp_path / "data", mirror=address)
    offered.files[f"/{ARCHIVE}"] = "http://example.org/elsewhere"
    with pytest.raises(DataError, match=r"http://example.org/elsewhere is not an https address"):
        fetch(ten, folder=tmp_path / "data")


BAD = ("http://[", "https://a..b/", f"https://{'a' * 70}.org/", "https://x:port/", "https:///folder/")


@pytest.mark.parametrize("address", BAD)
def test_what_is_no_address(ten: Published, offered: Publisher, tmp_path: Path, address: str) -> None:
    with pytest.raises(DataError, match="is not an address"):
        fetch(ten, folder=tmp_path / "data", mirror=address)
    if address != "http://[":  # urllib itself refuses to go there
        offered.files[f"/{ARCHIVE}"] = f"{address}file"
        with pytest.raises(DataError, match="is not an address"):
            fetch(ten, folder=tmp_path / "data")
    assert nothing_kept(tmp_path / "data")


def test_an_address_that_cannot_be_sent(ten: Published, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="could not be downloaded"):
        fetch(ten, folder=tmp_path, mirror=f"{ten.base}é/")


def test_a_mirror(ten: Published, tmp_path: Path) -> None:
    far = replace(ten, base="https://example.invalid/")
    assert fetch(far, folder=tmp_path, mirror=ten.base.rstrip("/")).is_dir()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


FIRST = "cifar-10-batches-bin/data_batch_1.bin"
HOSTILE = {
    "upwards": ({"../evil.bin": b"!"}, "a path out of its own folder"),
    "absolute": ({"/tmp/evil.bin": b"!"}, "a path out of its own folder"),
    "inside and out": ({"cifar-10-batches-bin/../../evil": b"!"}, "a path out of its own folder"),
    "backslash": ({"..\\evil.bin": b"!"}, "a path out of its own folder"),
    "link": ({FIRST: link(FIRST, "/etc/passwd")}, "not a plain file"),
    "hard link": ({FIRST: link(FIRST, "/etc/passwd", tarfile.LNKTYPE)}, "not a plain file"),
    "device": ({FIRST: link(FIRST, "", tarfile.CHRTYPE)}, "not a plain file"),
    "large": ({FIRST: bytes(31_000_000)}, "too large"),
    "twice": ({f"./{FIRST}": b"!"}, "there twice"),
    "missing": ({FIRST: None}, "'data_batch_1.bin' is not in it"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives(offered: Publisher, content: dict[str, bytes], tmp_path: Path, case: str) -> None:
    change, words = HOSTILE[case]
    members = {name: raw for name, raw in {**content, **change}.items() if raw is not None}
    what = offered.of(small("cifar10"), {ARCHIVE: tar(members)})
    with pytest.raises(DataError, match=words):
        fetch(what, folder=tmp_path / "data")
    assert nothing_kept(tmp_path / "data")
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize(
    "change", [lambda raw: raw[:-200], lambda _: b"not an archive", lambda raw: gzip.compress(raw)]
)
def test_what_is_not_a_whole_archive(ten: Published, offered: Publisher, tmp_path: Path, change) -> None:
    raw = change(offered.files[f"/{ARCHIVE}"])
    what = offered.of(ten, {ARCHIVE: raw})
    assert what.downloads == (offer(ARCHIVE, raw),)
    with pytest.raises(DataError, match=r"not a whole archive|is not in it"):
        fetch(what, folder=tmp_path / "data")
    assert nothing_kept(tmp_path / "data")


def test_a_full_disk(ten: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetching.shutil, "copyfileobj", full)
    with pytest.raises(DiskFullError, match="no room left in"):
        fetch(ten, folder=tmp_path / "data")
    assert nothing_kept(tmp_path / "data")


def test_what_dead_fetches_left_is_removed_after_a_day(ten: Published, tmp_path: Path) -> None:
    old, new = tmp_path / ".fetch-old", tmp_path / ".fetch-new"
    for folder in (old, new):
        (folder / "set").mkdir(parents=True)
    long_ago = time.time() - 100_000
    os.utime(old, (long_ago, long_ago))
    fetch(ten, folder=tmp_path)
    assert not old.exists()
    assert new.exists()


def test_what_dead_fetches_left_is_removed_at_once_on_the_same_machine(ten: Published, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    host = socket.gethostname()
    dead, alive = (tmp_path / f".fetch-{host}-{pid}-abc" for pid in (gone.pid, os.getpid()))
    elsewhere = tmp_path / f".fetch-other-{gone.pid}-abc"
    for folder in (dead, alive, elsewhere):
        (folder / "set").mkdir(parents=True)
    fetch(ten, folder=tmp_path)
    assert not dead.exists()
    assert alive.exists()
    assert elsewhere.exists()


def test_an_interrupted_fetch_leaves_nothing(ten: Published, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(ten, folder=tmp_path / "data", progress=stop)
    assert nothing_kept(tmp_path / "data")
