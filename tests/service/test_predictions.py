"""Predictions over a real server: any number of labels, clients in turn, and only for those who joined."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from federation.runs import FEATURES, halves, settings, three
from service.conftest import announced, shard
from service.serving import link_of, service_over
from splitwiper import Federation, split
from splitwiper.errors import IdentityError, WithdrawnError
from splitwiper.server import Server
from splitwiper.service.api import predictions
from splitwiper.service.api.copies import Copies, Copy
from splitwiper.service.api.receiving import received
from splitwiper.service.connections import limits
from splitwiper.service.connections.limits import MemoryQuota, Turns
from splitwiper.service.site.own_key import OwnKey
from splitwiper.store import ServerStore
from splitwiper.wire.codecs import fitted_in, pack
from splitwiper.wire.tensors import read_tensors


@pytest.fixture
def learned(run: Federation) -> Federation:
    run.learn(three())
    return run


def test_thousands_of_long_labels_cross(run: Federation, serve, certs: Path) -> None:
    count = 2000
    x = np.random.default_rng(0).normal(size=(count, FEATURES)).astype(np.float32)
    names = [f"{number:04d}".ljust(984, "x") for number in range(count)]
    run.learn({"north": (x, names)})
    for link in (link_of(serve(probabilities=allowed), certs, "south") for allowed in (True, False)):
        scores = link.predict("south", {"activation": torch.zeros(3, 8)})
        assert scores.logits.shape == (3, count) and {label.name for label in scores.labels} == set(names)
        copy = link.model("south")
        assert copy.labels == scores.labels and copy.commitment == scores.model and len(copy.salt) == 64


def test_a_codebook_is_a_word(url: str, http, tmp_path: Path) -> None:
    told = announced(shard(tmp_path / "s"))
    told["statement"]["codebook"] = "a\r\nSet-Cookie: b"
    answer = http(url).post("/v1/uploads", json=told)
    assert answer.status_code == 422 and "codebook" in answer.json()["message"]


def test_the_bits_of_an_answer_depend_on_the_request_alone(learned, serve, certs: Path) -> None:
    link, rows = link_of(serve(), certs, "north"), torch.rand(2 * predictions.PIECE + 44, 8)
    whole = link.predict("north", {"activation": rows}).logits
    parts = [link.predict("north", {"activation": part}).logits for part in rows.split(predictions.PIECE)]
    assert torch.equal(whole, torch.cat(parts))


def test_what_the_cut_does_not_send_is_refused(learned, serve, http) -> None:
    north, rows = http(serve()), torch.zeros(2, 8)
    for odd in (
        {"activation": rows, "more": torch.zeros(2, 1000)},
        {"more": rows},
        {"activation": rows, "@low/x": torch.ones(8)},
    ):
        answer = north.post("/v1/predict", content=save(odd))
        assert answer.status_code == 422 and "the cut sends ['activation']" in answer.json()["message"]
    assert north.post("/v1/predict", content=save({"activation": rows})).status_code == 200


def test_a_prediction_is_in_memory_once() -> None:
    body = bytearray(save({"activation": torch.zeros(64, 8), "mask": torch.ones(64, dtype=torch.bool)}))
    tensors, metadata = read_tensors(body)
    body[-64:] = bytes(64)
    body[-64 - 4 : -64] = np.float32(7).tobytes()
    assert not tensors["mask"].any() and tensors["activation"][-1, -1] == 7 and not metadata


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}}',
        b'{"a": {"dtype": "F32", "shape": [-1, -3], "data_offsets": [0, 12]}}',
        b'{"a": {"dtype": "F32", "shape": [30], "data_offsets": [0, 120]}}',
        b'{"a": {"dtype": "F32", "shape": [3.0], "data_offsets": [0, 12]}}',
        b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [-12, 0]}}',
        b'{"a": {"dtype": "F99", "shape": [3], "data_offsets": [0, 12]}}',
        b'{"a": {"dtype": "U8", "shape": %s, "data_offsets": [0, 1]}}' % str([1] * 99).encode(),
        b"[" * 30_000,
    ],
)
def test_files_that_are_none(header: bytes) -> None:
    with pytest.raises(ValueError, match="not a safetensors file"):
        read_tensors(bytearray(len(header).to_bytes(8, "little") + header + bytes(16)))


def test_coded_activations_are_answered_and_checked(tmp_path: Path, certs: Path) -> None:
    """Ranges of integers have no rows: they go with every piece."""
    run = Federation(tmp_path / "coded", halves(), settings(codec="int8"))
    run.learn(three())
    server = run._server
    ranges = fitted_in({"@low/activation": torch.zeros(8), "@step/activation": torch.full((8,), 0.01)})
    rows = pack({"activation": torch.rand(predictions.PIECE + 3, 8)}, server.columns, "int8", ranges)
    with service_over(run.path / "server", run.halves.server, certs) as url:
        there = link_of(url, certs, "north").predict("north", rows)
    assert torch.allclose(there.logits, server.predict("north", rows).logits, atol=1e-5)


def test_only_who_has_joined_gets_labels_and_the_model(learned, serve, certs: Path, tmp_path: Path) -> None:
    url, rows = serve(signed=True), {"activation": torch.zeros(2, 8)}
    link = link_of(url, certs, "south", tries=1)
    for ask in (lambda: link.predict("south", rows), lambda: link.model("south")):
        with pytest.raises(IdentityError, match="'south' has not joined"):
            ask()
    own = link_of(url, certs, "south", signer=OwnKey(tmp_path, link.federation()["run"]))
    own.register("south")
    assert own.predict("south", rows).labels and own.model("south").labels


def test_slow_downloads_of_old_models_are_broken_off() -> None:
    """Each would keep a whole model in memory, for as long as the reader likes."""
    copies = Copies()
    tracemalloc.start()
    copy = copies.add("first", b"x" * (64 << 20))
    pieces = copy.pieces()
    size = len(asyncio.run(anext(pieces)))
    assert 0 < size < copy.size and copies.find("first") is copy
    assert tracemalloc.get_traced_memory()[0] > copy.size
    newer = [copies.add(f"model {number}", b"y" * (3 << 20)) for number in range(3)]
    with pytest.raises(WithdrawnError, match="newer models"):
        asyncio.run(anext(pieces))
    assert copies.find("first") is None and tracemalloc.get_traced_memory()[0] < copy.size
    tracemalloc.stop()
    for one in newer:
        assert b"".join(asyncio.run(collected(one))) == b"y" * one.size


async def collected(copy: Copy) -> list[bytes]:
    return [piece async for piece in copy.pieces()]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Predictions take their time; who was served, in order."""
    served, predict = list[str](), Server.predict

    def slowly(server: Server, client: str, boundary: dict[str, torch.Tensor]) -> object:
        served.append(client)
        time.sleep(0.02)
        return predict(server, client, boundary)

    monkeypatch.setattr(Server, "predict", slowly)
    yield served


def test_one_that_floods_and_others_are_served_in_turn(learned, serve, certs: Path, slow: list[str]) -> None:
    url = serve()
    flood = [link_of(url, certs, "north") for _ in range(6)]
    south = link_of(url, certs, "south")
    south.tickets("south")  # so that it is connected
    many, few = {"activation": torch.zeros(2048, 8)}, {"activation": torch.zeros(2, 8)}
    threads = [threading.Thread(target=link.predict, args=("north", many)) for link in flood]
    for thread in threads:
        thread.start()
    while len(slow) < 5:
        time.sleep(0.01)
    for _ in range(4):
        south.predict("south", few)
    last = len(slow) - 1 - slow[::-1].index("south")
    assert "north" in slow[slow.index("south") : last] and last < 60  # and not behind 96 pieces of north's
    for thread in threads:
        thread.join()
    assert slow.count("north") == 6 * 2048 // predictions.PIECE


def test_a_client_has_so_many_predictions_waiting(learned, serve, certs: Path, http, slow: list[str]) -> None:
    url, many, few = serve(queued=1), torch.zeros(2048, 8), save({"activation": torch.zeros(2, 8)})
    links = [link_of(url, certs, "north", tries=1) for _ in range(3)]
    threads = [threading.Thread(target=link.predict, args=("north", {"activation": many})) for link in links]
    for thread in threads:
        thread.start()
    while slow.count("north") < 4:  # two are in work by then, and one waits
        time.sleep(0.005)
    answer = http(url).post("/v1/predict", content=few)
    assert answer.status_code == 429 and answer.json()["kind"] == "QuotaError" and answer.headers["retry-after"] == "1"
    assert "connection" not in answer.headers
    assert http(url, "south").post("/v1/predict", content=few).status_code == 200
    with suppress(httpx.TransportError):  # nobody reads it, so the answer may be lost with the connection
        large = http(url).post("/v1/predict", content=save({"activation": torch.zeros(1 << 14, 8)}))
        assert large.status_code == 429 and large.headers["connection"] == "close"
    for thread in threads:
        thread.join()
    assert http(url).post("/v1/predict", content=few).status_code == 200


def test_all_pieces_are_answered_by_one_model(learned, serve, http, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is published meanwhile answers the whole of it, and no memory is counted for both answers."""
    import dataclasses

    predict, asked, take, held = Server.predict, list[int](), MemoryQuota.take, list[int]()

    def counting(quota: MemoryQuota, client: str, size: int) -> None:
        take(quota, client, size)
        held.append(quota._held[client])

    def changing(server: Server, client: str, boundary: dict[str, torch.Tensor]) -> object:
        asked.append(len(boundary["activation"]))
        scores = predict(server, client, boundary)
        return dataclasses.replace(scores, model="old" if len(asked) < 3 else "new", logits=scores.logits + len(asked))

    monkeypatch.setattr(Server, "predict", changing)
    monkeypatch.setattr(MemoryQuota, "take", counting)
    rows = torch.zeros(3 * predictions.PIECE, 8)
    answer = http(serve()).post("/v1/predict", content=save({"activation": rows}))
    assert asked == [predictions.PIECE] * 6  # two by the old one, one that shows it, and all again
    assert held[-1] == held[-2] > held[-3]
    tensors, told = read_tensors(bytearray(answer.content))
    assert told["model"] == "new" and torch.equal(load(answer.content)["logits"], tensors["logits"])
    first = tensors["logits"][:: predictions.PIECE, 0]
    assert torch.allclose(first - first[0], torch.arange(3.0))


def test_turns_go_round_and_survive_who_goes_away() -> None:
    async def play() -> list[str]:
        turns, order = Turns(), list[str]()

        async def work(client: str) -> None:
            async with turns.turn(client):
                order.append(client)
                await asyncio.sleep(0)

        async with turns.turn("first"):
            tasks = [asyncio.create_task(work(name)) for name in ("a", "a", "a", "b", "c", "b")]
            await asyncio.sleep(0)
            tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await work("last")
        return order

    assert asyncio.run(play()) == ["a", "b", "c", "a", "b", "last"]


def test_large_bodies_are_read_slowly_while_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        turns, size = Turns(), 1 << 20

        async def served(client: str) -> None:
            async with turns.turn(client):
                pass

        assert turns.pause("large", size, size) == 0  # nobody else is there
        await served("large")
        assert turns.pause("large", size, size) == 0
        await served("small")
        assert turns.pause("large", size, size) == size / limits._RATE
        assert turns.pause("large", 1000, 1000) == 0  # a small body
        monkeypatch.setattr(limits, "_ACTIVE", 0.0)
        assert turns.pause("large", size, size) == 0  # it has left

    asyncio.run(play())


def test_pauses_are_made_while_a_body_is_read() -> None:
    async def play() -> tuple[bytearray, float, list[tuple[int, int]]]:
        asked = list[tuple[int, int]]()

        def pause(piece: int, body: int) -> float:
            asked.append((piece, body))
            return 0.02

        async def pieces() -> AsyncIterator[bytes]:
            for piece in (b"one", b"and", b"another"):
                yield piece

        start = time.perf_counter()
        with MemoryQuota(1000).keeping("north") as held:
            body = await received(pieces(), held, most=100, pause=pause)
        return body, time.perf_counter() - start, asked

    body, took, asked = asyncio.run(play())
    assert body == b"oneandanother" and asked == [(3, 3), (3, 6), (7, 13)] and took >= 0.059


class Picky(nn.Module):
    """Asserts what its inputs are like, as the networks of some packages do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert bool((x < 100).all())
        return x


def test_whatever_a_network_raises_for_a_prediction_is_the_callers(tmp_path: Path, certs: Path, http) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), Picky(), nn.Linear(8, 3))
    fed = Federation(tmp_path / "run", split(model, at="0", example=torch.zeros(1, FEATURES)), settings())
    fed.learn(three())
    (column,) = (column.name for column in Server(ServerStore(fed.path / "server"), fed.halves.server).columns)
    with service_over(fed.path / "server", fed.halves.server, certs, signed=False) as url:
        answer = http(url).post("/v1/predict", content=save({column: torch.full((2, 8), 1e3)}))
    assert answer.status_code == 422 and "cannot take these activations" in answer.text
