"""What any link promises. Every implementation runs through these tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
import torch

from federation.runs import halves, settings, three
from queue_link import queue_link
from service.serving import Everybody, certificates, service_over
from shards import written
from splitwiper import Federation, Label
from splitwiper.errors import BusyError, DataError, NotFoundError
from splitwiper.federation.link import InProcessLink
from splitwiper.wire import Column, Link, Request, Spent, Statement, lock_of
from splitwiper.wire.metering import MeteredLink

Shards = Callable[..., Path]
PROOF = bytes(range(32))


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("certs") / "ca")


@pytest.fixture(params=["in-process", "metered", "queues", "https"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def linked(kind: str, certs: Path) -> Iterator[Callable[[Federation], Link]]:
    """Gives links to a federation's server, of each kind."""
    with ExitStack() as stack:

        def make(federation: Federation) -> Link:
            if kind == "in-process":
                return InProcessLink(federation._server)
            if kind == "metered":
                return MeteredLink(InProcessLink(federation._server))
            if kind == "queues":
                return stack.enter_context(queue_link(federation.path / "server", federation.halves.server))
            url = stack.enter_context(service_over(federation.path / "server", federation.halves.server, certs))
            return stack.enter_context(closing(Everybody(url, certs)))

        yield make


@pytest.fixture
def link(linked: Callable[[Federation], Link], tmp_path: Path) -> Link:
    """A link to a fresh server whose cut sends eight floats a row."""
    return linked(Federation(tmp_path / "run", halves(), settings()))


@pytest.fixture
def shard(tmp_path: Path) -> Shards:
    def make(rows: int = 6, *, width: int = 8, value: float = 0.5, labels: tuple[str, ...] = ("cat", "dog")) -> Path:
        path = tmp_path / f"{rows}-{width}-{value}-{len(labels)}.safetensors"
        values = np.full((rows, width), value, np.float32)
        return written(path, Column("activation", "F32", (width,)), values, [Label("", name) for name in labels])

    return make


def said(*tickets: str) -> Statement:
    return Statement("c", "i", "k", {}, tickets, Spent(seconds=1.0))


def test_an_upload_may_be_repeated(link: Link, shard: Shards) -> None:
    first = link.upload("north", shard(), said())
    assert link.upload("north", shard(), said()) == first
    assert first.generation == 1
    second = link.upload("north", shard(7), said())
    assert second.generation == 2 and second.digest != first.digest


@pytest.mark.parametrize(
    ("kind", "message"),
    [({"width": 9}, "the cut sends"), ({"value": float("nan")}, "NaN"), ({"value": float("inf")}, "infinite")],
)
def test_a_bad_shard_is_refused_and_the_good_one_stays(
    link: Link, shard: Shards, kind: dict[str, float], message: str
) -> None:
    good = link.upload("north", shard(), said())
    with pytest.raises(DataError, match=message):
        link.upload("north", shard(**kind), said())
    assert link.upload("north", shard(), said()) == good


def test_a_label_table_may_not_name_what_no_row_has(link: Link, shard: Shards) -> None:
    with pytest.raises(DataError, match="table of 3 labels"):
        link.upload("north", shard(2, labels=("a", "b", "c")), said())


def test_withdrawing_may_be_repeated(link: Link, shard: Shards) -> None:
    link.upload("north", shard(), said())
    link.withdraw("north", said())
    link.withdraw("north", said())
    assert link.upload("north", shard(), said()).generation == 3


def test_requests_move_from_accepted_to_erased(link: Link, shard: Shards) -> None:
    link.upload("north", shard(), said())
    request = Request("t1", "north", "class", "c0" * 32)
    assert link.submit(request).state == "accepted"
    assert link.submit(request) == link.submit(request)
    link.upload("north", shard(5), said("t1"))
    assert [t.state for t in link.tickets("north")] == ["erased"]


def test_a_client_sees_and_answers_its_own_tickets_alone(link: Link, shard: Shards) -> None:
    link.upload("north", shard(), said())
    link.upload("south", shard(7), said())
    link.submit(Request("t1", "north", "class", "c0" * 32))
    assert link.tickets("south") == ()
    link.upload("south", shard(8), said("t1"))
    assert [t.state for t in link.tickets("north")] == ["accepted"]


def test_prediction_needs_a_model(link: Link) -> None:
    with pytest.raises(NotFoundError, match="learn first"):
        link.predict("north", {"activation": torch.zeros(2, 8)})


def test_prediction_gives_a_row_per_input_and_a_column_per_label(
    linked: Callable[[Federation], Link], tmp_path: Path
) -> None:
    fed = Federation(tmp_path / "other", halves(), settings())
    fed.learn(three())
    scores = linked(fed).predict("north", {"activation": torch.zeros(5, 8)})
    assert scores.logits.shape == (5, len(scores.labels)) and scores.labels == fed.labels


# --- messages between clients, and the server half to predict with locally -----------------------------------------


def test_messages_are_relayed_in_order_and_may_be_posted_again(link: Link) -> None:
    assert link.topic() == "" and link.posted("labels/1") == ()
    link.post("north", "labels/1", 0, b"one")
    link.post("south", "labels/1", 1, b"two")
    link.post("south", "labels/1", 1, b"two")
    assert link.topic() == "labels/1"
    assert [(m.place, m.sender, m.body) for m in link.posted("labels/1")] == [
        (0, "north", b"one"),
        (1, "south", b"two"),
    ]
    assert [m.body for m in link.posted("labels/1", since=1)] == [b"two"]


def test_a_place_is_filled_once_and_in_turn(link: Link) -> None:
    link.post("north", "labels/1", 0, b"one")
    with pytest.raises(DataError, match="already there, from 'north'"):
        link.post("south", "labels/1", 0, b"mine")
    with pytest.raises(DataError, match="still empty"):
        link.post("south", "labels/1", 2, b"too early")
    with pytest.raises(DataError, match="beyond the limit"):
        link.post("south", "labels/1", 1, b"x" * (2 << 20))
    assert len(link.posted("labels/1")) == 1


def test_a_new_talk_replaces_the_one_before_where_no_stranger_can_speak(link: Link, kind: str) -> None:
    link.post("north", "labels/1", 0, b"one")
    link.post("south", "labels/2", 0, b"anew")
    assert link.topic() == "labels/2"
    left = link.posted("labels/1")  # between organisations, nobody's words erase another's
    assert [m.body for m in left] == ([b"one"] if kind == "https" else [])


def test_a_talk_that_is_given_up_is_erased_for_who_has_the_proof(link: Link) -> None:
    link.post("north", "labels/1", 0, lock_of(PROOF) + b"one")
    link.post("south", "labels/1", 1, b"not locked")
    for proof in (b"", b"\1" * 32):
        link.ended("labels/1", proof)
        link.ended("labels/2", proof)
    assert all(message.body for message in link.posted("labels/1"))
    link.ended("labels/1", PROOF)
    link.ended("labels/1", PROOF)
    assert [message.body for message in link.posted("labels/1")] == [b"", b"not locked"]


def test_a_receipt_says_what_was_done(linked: Callable[[Federation], Link], tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(three())
    waiting = fed.submit("north", classes=["bird"])
    link = linked(fed)
    with pytest.raises((NotFoundError, BusyError)):
        link.receipt(waiting.id)
    (receipt,) = fed.settle()
    assert link.receipt(waiting.id) == receipt and receipt.exact


def test_the_server_half_can_be_fetched(linked: Callable[[Federation], Link], tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), settings())
    link = linked(fed)
    with pytest.raises(NotFoundError, match="learn first"):
        link.model("north")
    fed.learn(three())
    copy = link.model("north")
    boundary = {"activation": torch.rand(5, 8)}
    told = link.predict("north", boundary)
    assert copy.labels == told.labels
    torch.testing.assert_close(fed.halves.server.loaded(copy.state).logits(boundary), told.logits)
