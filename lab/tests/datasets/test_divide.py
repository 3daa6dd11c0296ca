"""Known sets divided over clients, whole and in part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.layouts import ROWS, WRITERS, small
from splitwiper.data.rows import as_rows
from splitwiper.errors import DataError, NotFoundError
from splitwiper_lab.datasets import sources
from splitwiper_lab.datasets.divide import FORGET, client_names, divided, subset
from splitwiper_lab.datasets.sources import NAMES, load


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with small versions of all published sets."""
    for name, write in WRITERS.items():
        write(tmp_path)
        monkeypatch.setitem(sources.PUBLISHED, name, small(name))
    return tmp_path


def test_names_of_clients() -> None:
    assert client_names(2) == ("north", "south")
    assert client_names(7)[4:] == ("centre", "client-6", "client-7")
    assert client_names(0) == ()


def test_one_set(folder: Path) -> None:
    found = divided("cifar10", folder=folder)
    assert list(found.train) == list(found.test) == ["north", "south", "east", "west", "centre"]
    assert (found.forget, found.owner, found.sources) == ("bird", "north", ("cifar10",))
    assert set(found.tasks.values()) == {""}
    assert found.forget_source == "cifar10"
    for part, rows in (("train", 100), ("test", 40)):
        counts = found.counts(part)
        assert sum(sum(held.values()) for held in counts.values()) == rows
        assert [client for client, held in counts.items() if "bird" in held] == ["north"]
    whole = {
        image.tobytes() + label.encode() for image, label in zip(*load("cifar10", folder=folder).train, strict=True)
    }
    for images, labels in found.train.values():
        assert all(i.tobytes() + str(n).encode() in whole for i, n in zip(images, labels, strict=True))


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("kind", ["homogeneous", "overlapping", "disjoint", "equal"])
def test_every_set_in_every_way(folder: Path, source: str, kind: str) -> None:
    found = divided(source, partition=kind, clients=2, folder=folder)
    assert found.forget == FORGET[source]
    assert [client for client, held in found.counts().items() if found.forget in held] == ["north"]


def test_digits_are_divided_the_same_way_for_training_and_test() -> None:
    found = divided("digits", clients=("a", "b", "c", "d", "e"), forget="three", owner="c", seed=0)
    train, test = found.train, found.test
    assert sum(len(y) for _, y in train.values()) + sum(len(y) for _, y in test.values()) == 1797
    for name in train:
        assert set(train[name][1]) == set(test[name][1])
        assert ("three" in train[name][1]) == (name == "c")
    assert train["a"][0].shape[1:] == (1, 8, 8) and train["a"][0].dtype == np.float32


def test_texts_stay_with_their_labels(folder: Path) -> None:
    found = divided("ag_news", folder=folder)
    for texts, labels in found.train.values():
        assert isinstance(texts, list)
        assert [found.labels["ag_news"][int(t.split(",")[0].split()[1]) % 4] for t in texts] == labels.tolist()


def test_different_tasks(folder: Path) -> None:
    found = divided("cifar10+mnist", folder=folder)
    assert list(found.tasks.values()) == ["cifar10"] * 3 + ["mnist"] * 2
    assert {images.shape[1:] for images, _ in found.train.values()} == {(3, 32, 32)}
    assert (found.forget, found.owner, found.forget_source) == ("bird", "north", "cifar10")
    assert set(found.counts()["centre"]) <= set(range(10))
    rows = as_rows(found.train["west"], task=found.tasks["west"])
    assert {label.task for label in rows.labels} == {"mnist"}
    other = divided("cifar10+mnist", folder=folder, forget="4")
    assert (other.forget, other.owner, other.forget_source) == (4, "west", "mnist")
    assert [client for client, held in other.counts().items() if 4 in held] == ["west"]
    owned = divided("cifar10+mnist", folder=folder, owner="centre", clients=("w", "centre"))
    assert (owned.forget, owned.owner) == (3, "centre")


def test_a_shared_label_has_an_owner_that_holds_it(folder: Path) -> None:
    for seed in range(8):
        found = divided("cifar10", folder=folder, share=True, seed=seed)
        holders = [client for client, held in found.counts().items() if "bird" in held]
        assert found.owner == holders[0]
        for client in found.train:
            if client in holders:
                assert divided("cifar10", folder=folder, share=True, seed=seed, owner=client).owner == client
            else:
                with pytest.raises(DataError, match=f"client {client!r} holds no 'bird': {holders[0]}"):
                    divided("cifar10", folder=folder, share=True, seed=seed, owner=client)


def test_subsets_are_stratified_and_the_same_every_time(folder: Path) -> None:
    one, two = (divided("cifar10", folder=folder, rows=50, clients=2) for _ in range(2))
    total = {label: sum(held.get(label, 0) for held in one.counts().values()) for label in one.labels["cifar10"]}
    assert set(total.values()) == {5}
    assert sum(len(labels) for _, labels in one.test.values()) == ROWS["cifar10"][1] // 2
    for client in one.train:
        assert np.array_equal(one.train[client][0], two.train[client][0])
    other = divided("cifar10", folder=folder, rows=50, clients=2, seed=1)
    assert any(one.counts()[c] != other.counts()[c] for c in one.train)
    both = divided("cifar10+mnist", folder=folder, rows=110, clients=2)
    assert [len(labels) for _, labels in both.train.values()] == [50, 60]


def test_subsets_of_uneven_labels() -> None:
    wine = load("wine")
    for rows in (3, 4, 10, 77, 132, 133):
        found = subset({"wine": wine}, rows=rows, seed=0)["wine"]
        assert len(found.train[1]) == rows
        there, kept = (np.unique(data.train[1], return_counts=True)[1] for data in (wine, found))
        assert np.abs(kept - there * rows / 133).max() < 1 + (rows < 10)
    for rows in (2, 134):
        with pytest.raises(DataError, match=r"ask for 3 \(one for each label\) to 133"):
            subset({"wine": wine}, rows=rows, seed=0)


def test_a_label_that_only_tests_have(folder: Path) -> None:
    file = folder / "ag_news_csv" / "train.csv"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith('"2"')), encoding="utf-8")
    for clients in (1, 2):
        with pytest.raises(DataError, match=r"no training row of ag_news is labelled 'Sports'|would hold no row"):
            divided("ag_news", clients=clients, folder=folder)
    with pytest.raises(DataError, match="name another label to forget"):
        divided("ag_news", clients=1, folder=folder)
    assert divided("ag_news", clients=1, folder=folder, forget="World").owner == "north"


def test_rows_are_not_in_its_repr(folder: Path) -> None:
    assert "bird" in repr(divided("cifar10", folder=folder))
    assert "array" not in repr(divided("cifar10", folder=folder))


def test_what_cannot_be_divided(folder: Path) -> None:
    refused = {
        "Did you mean 'cifar10'": {"source": "cifar1"},
        "names a data set twice": {"source": "mnist+mnist"},
        "too few clients (1) for cifar10 and mnist": {"source": "cifar10+mnist", "clients": 1},
        "there is no label 'brid' in cifar10. Did you mean 'bird'": {"forget": "brid"},
        "in cifar10. Known are airplane, automobile": {"forget": "?"},
        "there is no client 'nort'. Did you mean 'north'": {"owner": "nort"},
        "two clients are called 'a'": {"clients": ("a", "b", "a")},
        "there is no partition": {"partition": "overlap"},
        "too few clients (0) for cifar10": {"clients": ()},
        "500,000,000 clients are too many; give at most 100,000": {"clients": 500_000_000},
    }
    for words, given in refused.items():
        with pytest.raises((DataError, NotFoundError)) as caught:
            divided(**{"source": "cifar10", "folder": folder, **given})
        assert words in str(caught.value)
