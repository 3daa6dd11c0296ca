"""The program users write, and what they may bring to it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import splitwiper
from federation.runs import FEATURES, assert_same, halves, ids_at, learned, settings, table, three
from splitwiper import Config, Federation, Label, ModelConfig
from splitwiper.errors import ConfigError, DataError, NotFoundError


def test_the_root_exports_what_it_says() -> None:
    assert len(splitwiper.__all__) <= 12
    assert all(hasattr(splitwiper, name) for name in splitwiper.__all__)


class Items(Dataset):
    def __init__(self, values: np.ndarray, labels: np.ndarray) -> None:
        self.values, self.labels = values, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, str]:
        return torch.from_numpy(self.values[i]), str(self.labels[i])


def test_every_form_of_data_gives_the_same_run(tmp_path: Path) -> None:
    data = three()
    pairs = Federation(tmp_path / "pairs", halves(), settings())
    pairs.learn(data)
    items = pairs.twin(tmp_path / "items")
    items.learn({name: Items(*both) for name, both in data.items()})
    assert_same(pairs, items)
    tensors = pairs.twin(tmp_path / "tensors")
    tensors.learn([(name, (torch.from_numpy(x), list(y))) for name, (x, y) in data.items()])
    assert_same(pairs, tensors)
    double = pairs.twin(tmp_path / "double")
    double.learn({name: (x.astype(np.float64), y) for name, (x, y) in data.items()})
    assert_same(pairs, double)


def test_integer_labels_come_back_as_integers(tmp_path: Path) -> None:
    x = table(0, ("a",), 12)[0]
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn({"one": TensorDataset(torch.from_numpy(x), torch.arange(12) % 3)})
    assert fed.labels == (Label("", 0), Label("", 1), Label("", 2))
    assert set(fed.predict("one", x)) <= {0, 1, 2} and all(type(p) is int for p in fed.predict("one", x))
    fed.unlearn("one", classes=[np.int64(1)])
    assert [label.name for label in fed.labels] == [0, 2]


def test_labels_of_two_tasks_never_collide(tmp_path: Path) -> None:
    x = table(0, ("a",), 12)[0]
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn({"one": (x, np.arange(12) % 2), "two": (x, np.arange(12) % 3)}, tasks={"one": "odd", "two": "rest"})
    assert len(fed.labels) == 5
    assert set(fed.predict("one", x)) <= {0, 1}
    assert fed.predict_proba("one", x).shape == (12, 5)
    with pytest.raises(DataError, match="joined for task 'odd'"):
        fed.learn({"one": (x, np.arange(12))}, tasks={"one": "rest"})


def test_probabilities_and_their_order(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), settings())
    data = three()
    fed.learn(data)
    values = data["south"][0]
    chances = fed.predict_proba("south", values)
    assert np.allclose(chances.sum(axis=1), 1, atol=1e-5)
    assert [fed.labels[i].name for i in chances.argmax(axis=1)] == fed.predict("south", values)


def test_reopening_a_run(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(data)
    again = Federation(tmp_path / "run", halves(seed=99))  # other weights, same architecture: the run's own count
    assert again.predict("south", data["south"][0]) == fed.predict("south", data["south"][0])
    assert again.verify().exact
    with pytest.raises(ConfigError, match=r"client\.epochs is 2, given 10"):
        Federation(tmp_path / "run", halves(), Config(seed=5, server=settings().server))
    with pytest.raises(ConfigError, match="does not name its model"):
        Federation(tmp_path / "run")


def test_reopening_by_import_path_alone(tmp_path: Path) -> None:
    model = ModelConfig(
        factory="splitwiper.models:mlp",
        args={"inputs": FEATURES, "outputs": 3, "hidden": 12, "cut": 8},
        inputs={"x": f"float32[{FEATURES}]"},
        at="stem",
    )
    base = settings()
    fed = Federation(tmp_path / "run", config=Config(seed=5, server=base.server, client=base.client, model=model))
    fed.learn(three())
    again = Federation(tmp_path / "run")
    assert again.verify().exact
    receipt = again.unlearn("north", classes=["bird"])
    assert Federation(tmp_path / "run").verify(receipt).exact
    with pytest.raises(NotFoundError, match="no run"):
        Federation(tmp_path / "nothing")


def test_learning_the_same_again_changes_nothing(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    first = fed.learn(data)
    model = fed._server.store.model()
    second = fed.learn(data)
    assert fed._server.store.model() == model
    assert second.losses == () and second.added["north"].new == 0 and second.added["north"].held == 30
    assert second.added["north"].ids == first.added["north"].ids == tuple(ids_at(fed, "north", range(30)))
    assert len(set(first.added["north"].ids)) == 30
    assert all(s.bytes_up == 0 for s in second.spent.values())


def test_identical_rows_are_one_row(tmp_path: Path) -> None:
    values, labels = table(1, ("cat", "dog"), 10)
    twice = (np.concatenate([values, values[:3]]), np.concatenate([labels, labels[:3]]))
    fed = Federation(tmp_path / "run", halves(), settings())
    added = fed.learn({"north": twice}).added["north"]
    assert len(set(added.ids)) == 10 and (added.new, added.held) == (10, 3)
    assert added.ids[10:] == added.ids[:3] and set(fed.rows("north")) == set(added.ids)
    fed.unlearn("north", samples=[added.ids[11]])  # row 1 again
    assert added.ids[1] not in fed.rows("north") and len(fed.rows("north")) == 9
    back = fed.learn({"north": twice}).added["north"]
    assert back.ids[1] is None and back.ids[11] is None and back.refused == 2
    kept = [i for i in range(13) if i not in (1, 11)]
    assert [back.ids[i] for i in kept] == [added.ids[i] for i in kept]  # an id never changes


def test_a_client_returns_after_forgetting(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings(slices=2))
    fed.learn(data)
    fed.unlearn("north", everything=True)
    with pytest.raises(NotFoundError, match="no trained half"):
        fed.predict("north", data["north"][0])
    fresh = table(77, ("bird", "cat"), 9)
    both = (np.concatenate([data["north"][0], fresh[0]]), np.concatenate([data["north"][1], fresh[1]]))
    added = fed.learn({"north": both}).added["north"]
    assert (added.new, added.refused) == (9, 30)
    assert added.ids == (*[None] * 30, *ids_at(fed, "north", range(9), fresh))
    assert set(fed.rows("north")) == set(added.ids[30:])
    twin = fed.twin(tmp_path / "twin")
    twin.learn({**data, "north": fresh})
    assert_same(fed, twin)


def test_evaluation_counts_each_client_on_its_own_rows(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(data)
    found = fed.evaluate(data)
    for name, (x, y) in data.items():
        right = sum(p == t for p, t in zip(fed.predict(name, x), y, strict=True))
        assert (found.clients[name].overall.right, found.clients[name].overall.rows) == (right, len(y))
    assert found.overall.rows == sum(len(y) for _, y in data.values())
    assert sum(s.rows for s in found.per_label.values()) == found.overall.rows
    fed.unlearn("north", classes=["bird"])
    assert fed.evaluate(data).per_label[Label("", "bird")].accuracy == 0.0


def test_status_tells_what_waits(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run")
    assert fed.status().todo == () and fed.status().model == "current"
    ticket = fed.submit("north", classes=["bird"])
    waiting = fed.status()
    assert any(ticket.id[:8] in line for line in waiting.todo)
    assert [c.open_requests for c in waiting.clients if c.name == "north"] == [1]
    fed.settle()
    done = fed.status()
    assert done.todo == () and done.tickets[0].state == "settled"
    assert all(r.why for r in done.remains)


def test_seeded_keys_make_a_run_repeatable(tmp_path: Path) -> None:
    runs = [
        Federation(tmp_path / name, halves(), settings(keys=kind))
        for name, kind in zip("abc", ("seeded",) * 2 + ("random",), strict=True)
    ]
    for fed in runs:
        fed.learn(three())
    assert_same(runs[0], runs[1])
    keys = [(fed.path / "clients" / "north" / "key").read_text() for fed in runs]
    assert keys[0] == keys[1] != keys[2]
