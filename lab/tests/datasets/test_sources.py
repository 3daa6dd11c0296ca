"""Published layouts, whole and damaged."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from datasets.layouts import HUNDRED, TEN, WRITERS, cifar10, idx, mnist, picture_bytes, small
from splitwiper.errors import ConfigError, DataError, NotFoundError
from splitwiper_lab.datasets.mnist import as_rgb32
from splitwiper_lab.datasets.sources import NAMES, PUBLISHED, data_folder, inspect, known, load


def test_cifar10(tmp_path: Path) -> None:
    cifar10(tmp_path)
    found = small("cifar10").load(tmp_path)
    images, labels = found.train
    assert found.labels == tuple(TEN)
    assert images.shape == (100, 3, 32, 32)
    assert images.dtype == np.uint8
    assert labels.tolist() == TEN * 10
    assert np.array_equal(images[20].reshape(-1), picture_bytes(20)[0])  # the first row of the second file
    assert found.test[0].shape == (40, 3, 32, 32)
    assert images.flags.writeable  # torch warns of arrays that are not


def test_cifar100_has_the_fine_labels(tmp_path: Path) -> None:
    WRITERS["cifar100"](tmp_path)
    found = small("cifar100").load(tmp_path)
    assert found.labels == tuple(HUNDRED)
    assert found.train[1].tolist() == HUNDRED * 3
    assert np.array_equal(found.test[0].reshape(200, 3072), picture_bytes(200))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("loose", [False, True])
def test_mnist(tmp_path: Path, zipped: bool, loose: bool) -> None:
    mnist(tmp_path, zipped=zipped, loose=loose)
    found = small("mnist").load(tmp_path)
    images, labels = found.train
    assert images.shape == (120, 1, 28, 28)
    assert np.array_equal(images[:, 0, 5, 9], labels)
    assert labels.dtype == np.int64
    assert found.labels == tuple(range(10))
    assert images.flags.writeable


def test_mnist_in_the_shape_of_cifar() -> None:
    images = np.arange(2 * 784, dtype=np.int64).astype(np.uint8).reshape(2, 1, 28, 28)
    wide = as_rgb32(images)
    assert wide.shape == (2, 3, 32, 32)
    assert wide.dtype == np.uint8
    assert all(np.array_equal(wide[:, c, 2:30, 2:30], images[:, 0]) for c in range(3))
    assert wide.sum(dtype=np.int64) == 3 * images.sum(dtype=np.int64)
    with pytest.raises(DataError, match=r"\[2, 28, 28\]; give rows × 1 × 28 × 28"):
        as_rgb32(images[:, 0])


def test_ag_news(tmp_path: Path) -> None:
    place = WRITERS["ag_news"](tmp_path)
    found = small("ag_news").load(tmp_path)
    assert found.train[0][1] == 'Title 1, "quoted" a line broken in two, café 1'
    assert found.train[1].tolist()[:5] == ["World", "Sports", "Business", "Sci/Tech", "World"]
    assert len(found.test[0]) == 40
    (place / "classes.txt").unlink()  # it is not among what is fetched
    assert small("ag_news").load(tmp_path).labels == found.labels
    lines = (place / "train.csv").read_text(encoding="utf-8").splitlines()
    (place / "train.csv").write_text("\n".join(lines[:17]), encoding="utf-8")  # a subset is fine
    assert len(small("ag_news").load(tmp_path).train[0]) == 17


@pytest.mark.parametrize(
    ("name", "shape", "rows"),
    [("digits", (1, 8, 8), 1797), ("wine", (13,), 178), ("breast_cancer", (30,), 569), ("iris", (4,), 150)],
)
def test_bundled(name: str, shape: tuple[int, ...], rows: int) -> None:
    found = load(name)
    assert found.train[0].shape[1:] == shape
    assert found.train[0].dtype == np.float32
    assert len(found.train[1]) + len(found.test[1]) == rows
    assert set(found.train[1]) == set(found.test[1]) == set(found.labels)


def test_where_data_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPLITWIPER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "splitwiper" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "splitwiper" / "data"
    monkeypatch.setenv("SPLITWIPER_DATA", "~/sets")
    assert data_folder() == Path.home() / "sets"
    assert data_folder("here") == Path("here")
    place = cifar10(tmp_path)
    assert small("cifar10").load(place).labels == tuple(TEN)  # the set's own folder will do


def test_a_home_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPLITWIPER_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"~nosuchuser/sets has no place here .* give a whole path"):
        data_folder("~nosuchuser/sets")
    monkeypatch.setenv("SPLITWIPER_DATA", "~nosuchuser")
    with pytest.raises(ConfigError, match="~nosuchuser has no place"):
        load("cifar10")


def test_hyphens_do_not_matter() -> None:
    assert [known(name) for name in ("ag-news", "cifar-10", "cifar-100", "breast-cancer", "iris")] == [
        "ag_news",
        "cifar10",
        "cifar100",
        "breast_cancer",
        "iris",
    ]
    assert load("breast-cancer").name == "breast_cancer"
    assert inspect("breast-cancer").state == "bundled"


def test_unknown_names() -> None:
    with pytest.raises(NotFoundError, match="Did you mean 'cifar10' or 'cifar100'"):
        load("cifar")
    with pytest.raises(NotFoundError, match="Known are cifar10, cifar100, mnist, ag_news, digits"):
        load("???")
    assert set(PUBLISHED) < set(NAMES)


@pytest.mark.parametrize("name", PUBLISHED)
def test_missing_files_are_told_with_the_remedy(tmp_path: Path, name: str) -> None:
    what = PUBLISHED[name]
    with pytest.raises(NotFoundError) as caught:
        load(name, folder=tmp_path)
    said = str(caught.value)
    assert f"splitwiper data fetch {name} --data {tmp_path}" in said
    for offer in what.downloads:
        assert f"  {what.base}{offer.file}\n    ({offer.size:,} bytes, SHA-256 {offer.sha256})\n" in said
    assert str(tmp_path / what.folder / what.files[0]) in said
    place = WRITERS[name](tmp_path)
    (place / what.files[1]).unlink()
    with pytest.raises(NotFoundError, match=re.escape(f"{what.files[1]} is missing.\nRun")):
        load(name, folder=tmp_path)


def test_a_set_of_the_published_size(tmp_path: Path) -> None:
    place = cifar10(tmp_path)
    records = np.zeros((10_000, 3073), np.uint8)
    records[:, 0] = np.arange(10_000) % 10
    records.tofile(place / "data_batch_1.bin")
    for file in ("data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"):
        (place / file).unlink()
        (place / file).hardlink_to(place / "data_batch_1.bin")
    found = load("cifar10", folder=tmp_path)
    assert (len(found.train[1]), len(found.test[1])) == (50_000, 10_000)
    assert np.unique(found.train[1], return_counts=True)[1].tolist() == [5_000] * 10


DAMAGE = {
    "cut short": ("cifar10", "data_batch_3.bin", lambda raw: raw[:-100], "19 pictures and 2,973 bytes of another"),
    "too many": ("cifar10", "test_batch.bin", lambda raw: raw + raw[:3073], "41 pictures, instead of 40"),
    "empty": ("cifar10", "data_batch_1.bin", lambda _: b"", "0 bytes, that is 0 pictures"),
    "label": ("cifar10", "data_batch_2.bin", lambda raw: raw[:3073] + b"\x0a" + raw[3074:], r"byte 10 in picture 1 \("),
    "names": ("cifar10", "batches.meta.txt", lambda raw: raw.replace(b"cat\n", b"bird\n"), "10 label names, 9 of them"),
    "names cut": ("cifar100", "fine_label_names.txt", lambda raw: raw[:50], "instead of 100"),
    "names binary": ("cifar100", "fine_label_names.txt", lambda raw: b"\xff\xfe" + raw, "not UTF-8"),
    "coarse": ("cifar100", "train.bin", lambda raw: b"\x14" + raw[1:], r"label byte 20 in picture 0 \(byte 0\)"),
    "fine": (
        "cifar100",
        "test.bin",
        lambda raw: raw[:1] + b"\x64" + raw[2:],
        r"label byte 100 in picture 0 \(byte 1\)",
    ),
    "cifar10 as cifar100": ("cifar100", "train.bin", lambda raw: raw[: 300 * 3073], "instead of 300 pictures"),
    "magic": ("mnist", "train-images-idx3-ubyte", lambda raw: b"PK" + raw[2:], "504b0803 instead of 00000803"),
    "no head": ("mnist", "train-images-idx3-ubyte", lambda raw: raw[:9], r"the dimensions \[\] instead"),
    "nothing": ("mnist", "t10k-labels-idx1-ubyte", lambda _: b"", "starts with nothing"),
    "dimensions": ("mnist", "t10k-labels-idx1-ubyte", lambda _: idx(np.zeros(59)), r"\[59\] instead of \[60\]"),
    "rows missing": ("mnist", "train-images-idx3-ubyte", lambda raw: raw[:-1], r"94,095 bytes, but its .* take 94,096"),
    "rows added": ("mnist", "t10k-labels-idx1-ubyte", lambda raw: raw + b"\x00", "more than 68 bytes"),
    "digit": ("mnist", "t10k-labels-idx1-ubyte", lambda raw: raw[:-1] + b"\x0a", "label 10 in row 59"),
    "columns": ("ag_news", "train.csv", lambda raw: raw + b'"1","alone"\n', "line 81 has 2 cells"),
    "class": ("ag_news", "test.csv", lambda raw: b'"5","a","b"\n' + raw, "line 1: class '5' is not one of 1 to 4"),
    "a header": ("ag_news", "test.csv", lambda raw: b"class,title,description\n" + raw, "class 'class' is not"),
    "UTF-8": ("ag_news", "train.csv", lambda raw: raw.replace("é".encode(), b"\xe9"), "not UTF-8 text"),
    "quotes": ("ag_news", "train.csv", lambda raw: raw[:-2], "after line 79: unexpected end of data"),
    "no rows": ("ag_news", "train.csv", lambda _: b"", "it has no rows"),
    "more rows": ("ag_news", "test.csv", lambda raw: raw + raw, "80 rows, more than the 40 published"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_told_with_file_place_and_remedy(tmp_path: Path, case: str) -> None:
    name, file, change, words = DAMAGE[case]
    place = WRITERS[name](tmp_path)
    small(name).load(tmp_path)
    (place / file).write_bytes(change((place / file).read_bytes()))
    with pytest.raises(DataError, match=words) as caught:
        small(name).load(tmp_path)
    assert str(place / file) in str(caught.value)
    assert f"splitwiper data fetch {name} --data {tmp_path}'" in str(caught.value)


@pytest.mark.parametrize(
    "change", [lambda raw: raw[:-20], lambda raw: b"no" + raw[2:], lambda raw: raw[:60] + raw[80:]]
)
def test_compressed_files_that_cannot_be_unpacked(tmp_path: Path, change) -> None:
    place = mnist(tmp_path, zipped=True)
    file = place / "train-images-idx3-ubyte.gz"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz: it cannot be unpacked"):
        small("mnist").load(tmp_path)


def test_a_compressed_file_is_unpacked_no_further_than_announced(tmp_path: Path) -> None:
    place = mnist(tmp_path, zipped=True)
    bomb = idx(np.arange(60) % 10) + bytes(50_000_000)
    (place / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bomb))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="more than 68 bytes"):
            small("mnist").load(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_fixtures_are_refused_as_published_sets(tmp_path: Path) -> None:
    for name in ("cifar10", "cifar100", "mnist"):
        WRITERS[name](tmp_path)
        with pytest.raises(DataError, match="instead of"):
            load(name, folder=tmp_path)
