"""Clients over another link than a federation's own: what they learn and forget is the same, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.runs import assert_same, halves, settings, three
from queue_link import queue_link
from splitwiper import Federation
from splitwiper.client import Client
from splitwiper.client.agreeing import Gathering
from splitwiper.config import Masking, Noise
from splitwiper.errors import AbsentClientError, CorruptError
from splitwiper.server import Server
from splitwiper.store import ClientStore, ServerStore
from splitwiper.wire import Link, Request

HIDDEN = Masking(mode="partition", gamma=2, cover=0.5)


def over(fed: Federation, link: Link, name: str, *, one_party: bool = True) -> Client:
    """A client of a federation over another link."""
    fed._registry.join(name, "")
    store = ClientStore(fed.path / "clients" / name)
    return Client(store, fed.halves.client, fed._server.columns, link, one_party=one_party)


def train(fed: Federation) -> None:
    """What the server does by itself, in a process of its own."""
    Server(ServerStore(fed.path / "server"), fed.halves.server).train()


def learned_in_turns(clients: dict[str, Client]) -> None:
    """Each client goes on as far as it can without the others, then the next."""
    left, rows = list(clients), three()
    for _ in range(200):
        for name in list(left):
            try:
                clients[name].learn(rows[name], gathering=Gathering(members=sorted(clients), patience=0))
                left.remove(name)
            except AbsentClientError as problem:
                assert "waits for" in str(problem)
        if not left:
            return
    raise AssertionError(f"{left} did not agree")


@pytest.mark.parametrize("codec", ["none", "int8"])
def test_learning_forgetting_and_predicting_with_hidden_labels(tmp_path: Path, codec: str) -> None:
    config, rows = settings(masking=HIDDEN, keys="seeded", slices=2, codec=codec), three()
    own = Federation(tmp_path / "own", halves(), config)
    own.learn(rows)
    other = Federation(tmp_path / "other", halves(), config)
    with queue_link(other.path / "server", other.halves.server) as link:
        clients = {name: over(other, link, name) for name in rows}
        learned_in_turns(clients)
        train(other)
        assert_same(own, other)
        for name, client in clients.items():
            assert client.predict(rows[name][0]) == own.predict(name, rows[name][0])
        receipt = own.unlearn("north", classes=["bird"])
        request = clients["north"].forget(clients["north"].choose(classes=["bird"]))
        assert clients["north"].sync() and not clients["south"].sync()
        train(other)
        told = clients["north"].receipt(request.ticket)
        assert told.exact and told.level == receipt.level and told.context["codebook"] != ""
        assert_same(own, other)
        both = clients["north"].predict_both(rows["north"][0])
        assert both.names == own.predict("north", rows["north"][0]) and "bird" not in both.names
        local = clients["south"].predict(rows["south"][0], local=other.halves.server)
        assert local == own.predict("south", rows["south"][0])
    again = Federation(tmp_path / "other", halves())
    assert again.verify().exact and not again.status().todo


def test_only_where_one_party_runs_everything_others_can_ask_in_a_clients_name(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), settings())
    with queue_link(fed.path / "server", fed.halves.server) as link:
        client = over(fed, link, "north", one_party=False)
        client.learn(three()["north"])
        link.submit(Request("made-up", "north", "client"))
        with pytest.raises(CorruptError, match="nothing is sent to it or erased here"):
            client.sync()
        assert client.holdings.ids()
        trusting = over(fed, link, "north")
        assert trusting.sync() and not trusting.holdings.ids()


def test_a_receipt_says_what_the_clients_noise_has_spent(tmp_path: Path) -> None:
    noise = Noise(mechanism="laplace", epsilon=0.5, clip=1.0, reading="value", nonnegative=True)
    fed = Federation(tmp_path / "run", halves(), settings(noise=noise))
    with queue_link(fed.path / "server", fed.halves.server) as link:
        client = over(fed, link, "north")
        client.learn(three()["north"])
        request = client.forget(client.choose(classes=["bird"]))
        client.sync()
        train(fed)
        assert link.receipt(request.ticket).privacy == {}  # the server does not know
        assert client.receipt(request.ticket).privacy == client.privacy().to_dict() != {}
        assert fed.receipt(request.ticket).privacy == client.privacy().to_dict()
