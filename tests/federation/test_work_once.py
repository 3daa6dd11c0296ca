"""What a client does once where it could do it several times: read its rows, ask for its tickets, try new rows."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from federation.runs import FEATURES, halves, learned, settings, three
from splitwiper import ClientConfig, Federation
from splitwiper.client import Client, check_rows
from splitwiper.client import embed as embed_module
from splitwiper.client import row_store as holdings_module
from splitwiper.client.embed import BATCH
from splitwiper.config import Masking
from splitwiper.data.rows import as_rows
from splitwiper.errors import CorruptError, DataError, NotFoundError
from splitwiper.federation import reconcile as reconcile_module
from splitwiper.federation.registry import ClientRegistry
from splitwiper.store import files


@pytest.fixture
def fed(tmp_path: Path) -> Federation:
    return learned(tmp_path / "run", settings(slices=3))


def test_slices_are_read_once_until_they_change(fed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    read, digest = Counter[Path](), files.file_digest

    def counted(path: Path) -> str:
        read[path] += 1
        return digest(path)

    monkeypatch.setattr(holdings_module.files, "file_digest", counted)
    client = fed._client("north")
    held = client.holdings
    before = {record.file for record in client.store.slices().values()}
    for _ in range(3):
        assert len(held.ids()) == 30 and len(client.labels()) == 3 and client.choose(classes=["cat"]).macs
    assert {path.name for path in read} == before and set(read.values()) == {1}
    with_birds = {part.path for part in held.slices().values() if "bird" in {label.name for label in part.labels}}
    client.forget(client.choose(classes=["bird"]))
    client.sync()
    assert len(held.ids()) == 20  # new files are read, and those before are gone
    assert with_birds and not any(path.exists() for path in with_birds)
    held.audit(client._key())  # who verifies reads all of them again
    newest = {record.file for record in client.store.slices().values()}
    assert all(read[path] >= 2 for path in read if path.name in newest)


def test_a_slice_that_is_damaged_meanwhile_is_noticed(fed: Federation) -> None:
    client = fed._client("north")
    assert client.holdings.ids()
    path = next((client.store.root / "slices").iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorruptError, match="restore it from a backup"):
        client.holdings.ids()


def test_tickets_are_asked_for_once(fed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    client, asked = fed._client("north"), list[str]()
    link, tickets = client._link, client._link.tickets
    monkeypatch.setattr(link, "tickets", lambda name: asked.append(name) or tickets(name), raising=False)
    client.sync()
    assert asked == ["north"]


class Counting(nn.Module):
    """A client half that counts the rows it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.rows = nn.Linear(FEATURES, 4), list[int]()

    def __deepcopy__(self, _: object) -> Counting:
        return self

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.rows.append(len(x))
        return {"activation": self.layer(x.float())}


def test_rows_are_tried_on_a_bounded_sample() -> None:
    x = np.zeros((5 * BATCH, FEATURES), np.float32)
    half, columns = Counting(), ()
    check_rows(as_rows((x, [0] * len(x)), task=""), client="n", config=ClientConfig(), half=half, columns=columns)
    assert sum(half.rows) == BATCH
    whole = Counting()  # integers too, where none of them is a place in a table
    rows = as_rows((x.astype(np.int64), [0] * len(x)), task="")
    check_rows(rows, client="n", config=ClientConfig(), half=whole, columns=columns)
    assert sum(whole.rows) == BATCH


def test_every_place_in_a_table_is_tried() -> None:
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 4)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"activation": self.table(x).flatten(1)}

    x = np.zeros((3 * BATCH, 2), np.int64)
    x[BATCH + 3, 1] = 5
    rows = as_rows((torch.from_numpy(x), [0] * len(x)), task="")
    with pytest.raises(DataError, match=f"between rows {BATCH} and {2 * BATCH - 1}"):
        check_rows(rows, client="n", config=ClientConfig(), half=Lookup(), columns=())


@pytest.mark.parametrize("codec", ["none", "int8", "int4"])
def test_a_shard_is_planned_once(tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, plan_for = list[str](), embed_module.plan_for

    def counted(*arguments: Any) -> Any:
        planned.append("plan")
        return plan_for(*arguments)

    monkeypatch.setattr(embed_module, "plan_for", counted)
    fed = Federation(tmp_path / "run", halves(), settings(codec=codec))
    fed.learn({"north": three()["north"]})
    assert len(planned) == 1
    fed.learn({"north": three()["north"]})
    assert len(planned) == 1  # nothing is sent
    fed.unlearn("north", classes=["bird"])
    assert len(planned) == 2


def test_no_client_stays_open_after_a_call(tmp_path: Path) -> None:
    """What is open would keep files on the disk that another process erases."""
    fed = learned(tmp_path / "run")
    fed.predict("north", three()["north"][0])
    Federation(tmp_path / "run", halves()).unlearn("north", classes=["bird"])
    gc.collect()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8") if Path("/proc/self/maps").exists() else ""
    assert not [line for line in maps.splitlines() if str(tmp_path) in line and "clients" in line]
    with pytest.raises(NotFoundError, match="no client"):
        fed.unlearn("nobody", classes=["bird"])
    assert fed.unlearn("north", classes=["cat"]).exact


def test_calls_and_threads_have_clients_of_their_own(fed: Federation) -> None:
    registry, seen = fed._registry, list[Client]()
    with registry.call():
        mine = registry.client("north")
        assert registry.client("north") is mine
        thread = threading.Thread(target=lambda: seen.append(registry.client("north")))
        thread.start()
        thread.join(60)
        with registry.call():  # from a callback
            seen.append(registry.client("north"))
        assert registry.client("north") is mine and len({id(mine), *map(id, seen)}) == 3


def test_a_client_is_opened_and_agrees_once_in_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, agreed, open_, agree = Counter[str](), list[list[str]](), ClientRegistry.open, reconcile_module.agree

    def counted(self: ClientRegistry, name: str) -> Client:
        opened[name] += 1
        return open_(self, name)

    def heard(registry: ClientRegistry, names: list[str]) -> object:
        agreed.append(names)
        return agree(registry, names)

    monkeypatch.setattr(ClientRegistry, "open", counted)
    monkeypatch.setattr(reconcile_module, "agree", heard)
    masking = Masking(mode="partition", gamma=2)
    fed = Federation(tmp_path / "run", halves(), settings(masking=masking))
    assert fed.learn(three()).agreement is not None
    assert opened == Counter(three().keys()) and agreed == [sorted(three())]
    opened.clear()
    fed.unlearn("north", classes=["bird"])
    assert opened == Counter(["north"])
    opened.clear()
    fed.predict_both("south", three()["south"][0])
    assert opened == Counter(["south"])
