"""Harms by what is sent: shards, files and requests."""

from __future__ import annotations

import base64
import json
import secrets
import struct
import time
from collections.abc import Iterator

import httpx
import numpy as np

from benchmarks.adversary.attacker import COLUMN, WIDTH, Attacker
from benchmarks.adversary.harm import harm
from splitwiper import Label
from splitwiper.service.site.link import _plain
from splitwiper.wire import Spent

_SLOW = 20_000
"""Rows that take the server a while to train on."""


@harm
def nobody(_attacker: Attacker) -> Iterator[None]:
    """Do nothing: what the others do, and how long it takes, without an attacker."""
    yield


# --- shards that break training ----------------------------------------------------------------------------


@harm
def huge_values(attacker: Attacker) -> Iterator[None]:
    """Send two rows of 9e29, which make the loss NaN."""
    attacker.send(attacker.shard(np.full((2, WIDTH), 9e29, np.float32)))
    yield


@harm
def values_at_the_limit(attacker: Attacker) -> Iterator[None]:
    """Send values that are large, finite and within every limit, and break training all the same."""
    for power in range(29, 2, -1):  # the largest that is accepted
        values = np.full((64, WIDTH), 10.0**power, np.float32)
        values[::2] *= -1
        if attacker.send(attacker.shard(values)):
            break
    yield


@harm
def not_numbers(attacker: Attacker) -> Iterator[None]:
    """Send NaN and infinite values."""
    for value in (np.nan, np.inf):
        attacker.send(attacker.shard(np.full((4, WIDTH), value, np.float32)))
    yield


@harm
def restless_shard(attacker: Attacker) -> Iterator[None]:
    """Replace the shard again and again, so that training never ends."""
    attacker.send(attacker.shard(rows=_SLOW))

    def again(_: httpx.Client) -> None:
        attacker.link.upload(attacker.name, attacker.shard(rows=_SLOW), attacker.statement())

    with attacker.meanwhile(1, again):
        yield


@harm
def edge_of_training(attacker: Attacker) -> Iterator[None]:
    """Send rows of ±56,234 until they can be trained on, so that training fails once somebody else's shard changes."""
    for _ in range(4):
        values = np.full((32, WIDTH), 56234, np.float32) * np.random.default_rng().choice([-1, 1], (32, WIDTH))
        attacker.send(attacker.shard(values.astype(np.float32)))
        time.sleep(2.0)  # it is trained on, or set aside
    yield


@harm
def restless_requests(attacker: Attacker) -> Iterator[None]:
    """Ask, and answer with another shard, again and again, so that training starts over."""
    attacker.send(attacker.shard())

    def again(_: httpx.Client) -> None:
        ticket = attacker.ask()
        attacker.link.upload(attacker.name, attacker.shard(), attacker.statement(tickets=(ticket,)))

    with attacker.meanwhile(1, again):
        yield


@harm
def everything_at_once(attacker: Attacker) -> Iterator[None]:
    """Ask, send shards and withdraw them in any order, from three threads, each call beside the others."""
    asked: list[str] = []

    def some(_: httpx.Client) -> None:
        tickets = tuple(asked[-1:])
        what = secrets.choice(("ask", "learn", "answer", "withdraw"))
        if what == "ask":
            asked.append(attacker.ask())
        elif what == "withdraw":
            attacker.link.withdraw(attacker.name, attacker.statement(tickets=tickets))
        else:
            told = attacker.statement(tickets=tickets if what == "answer" else ())
            attacker.link.upload(attacker.name, attacker.shard(rows=secrets.choice((1, 8, 500))), told)

    attacker.register()
    with attacker.meanwhile(3, some):
        yield


@harm
def tiny_shards(attacker: Attacker) -> Iterator[None]:
    """Send one small shard after another, whoever waits, so that the ledger grows."""

    def again(_: httpx.Client) -> None:
        attacker.link.upload(attacker.name, attacker.shard(), attacker.statement())

    attacker.register()
    with attacker.meanwhile(1, again):
        yield


# --- harm through shards ---------------------------------------------------------------------------------


@harm
def costs_for_nothing(attacker: Attacker) -> Iterator[None]:
    """Charge costs to a ticket that is nobody's, so that others' receipts say that the attacker was contacted."""
    spent = Spent(seconds=1e9, bytes_up=1 << 60, bytes_down=1 << 60)
    attacker.send(attacker.shard(), tickets=("no-such-ticket",), spent=spent)
    for _ in range(8):
        attacker.attempt(
            "withdraw",
            lambda: attacker.link.withdraw(attacker.name, attacker.statement(tickets=("none",), spent=spent)),
        )
    yield


@harm
def long_labels(attacker: Attacker) -> Iterator[None]:
    """Send 150 labels of 984 characters."""
    labels = tuple(Label("", f"{n:04}" + "x" * 980) for n in range(150))
    attacker.send(attacker.shard(rows=150, labels=labels))
    yield


@harm
def many_labels(attacker: Attacker) -> Iterator[None]:
    """Send 20,000 labels."""
    attacker.send(attacker.shard(rows=20_000, labels=tuple(Label("", f"label {n:05}") for n in range(20_000))))
    yield


@harm
def million_outputs(attacker: Attacker) -> Iterator[None]:
    """Say that the codebook has a million outputs."""
    codes = (Label("", 0), Label("", 1))
    attacker.send(attacker.shard(labels=codes), codebook="ab" * 32, outputs=1_000_000)
    yield


@harm
def broken_codebook(attacker: Attacker) -> Iterator[None]:
    """Name a codebook with line breaks in it."""
    codes = (Label("", 0), Label("", 1))
    attacker.send(attacker.shard(labels=codes), codebook="a\r\nX-Evil: 1", outputs=2)
    yield


@harm
def other_codebook(attacker: Attacker) -> Iterator[None]:
    """Hide labels by another codebook, where the others hide none."""
    attacker.send(attacker.shard(labels=(Label("", 0), Label("", 1))), codebook="ab" * 32, outputs=2)
    yield


@harm
def tickets_of_nobody(attacker: Attacker) -> Iterator[None]:
    """Say that the shard answers 900 requests that were never made."""
    tickets = tuple(secrets.token_hex(16) for _ in range(900))
    attacker.send(attacker.shard(), tickets=tickets)
    yield


# --- files -------------------------------------------------------------------------------------------------


@harm
def huge_header(attacker: Attacker) -> Iterator[None]:
    """Send a shard whose header has 55 MiB."""
    header = json.dumps({"__metadata__": {"format": "x" * (55 << 20)}}).encode()
    attacker.send(attacker.file(struct.pack("<Q", len(header)) + header))
    yield


@harm
def many_dimensions(attacker: Attacker) -> Iterator[None]:
    """Send a shard whose tensor has 100 dimensions."""
    good = attacker.shard().read_bytes()
    (length,) = struct.unpack("<Q", good[:8])
    header = json.loads(good[8 : 8 + length])
    header[COLUMN.name]["shape"] = [8, *[1] * 98, WIDTH]
    raw = json.dumps(header).encode()
    attacker.send(attacker.file(struct.pack("<Q", len(raw)) + raw + good[8 + length :]))
    yield


@harm
def announced_and_not_sent(attacker: Attacker) -> Iterator[None]:
    """Announce uploads of 64 GiB, and send nothing."""
    attacker.register()
    for _ in range(8):
        mark, statement = secrets.token_hex(32), attacker.statement()
        body = {"size": 64 << 30, "mark": mark, "statement": _plain(statement)}
        body["signed"] = attacker.key.sign_shard(attacker.name, mark, statement, serial=secrets.randbits(30))
        attacker.call("POST", "/v1/uploads", json=body)
    yield


# --- requests ----------------------------------------------------------------------------------------------


@harm
def request_without_data(attacker: Attacker) -> Iterator[None]:
    """Ask to be forgotten without having sent a row."""
    attacker.register()
    attacker.ask()
    yield


@harm
def silent_request(attacker: Attacker) -> Iterator[None]:
    """Ask to be forgotten, and fall silent."""
    attacker.send(attacker.shard())
    attacker.ask()
    yield


@harm
def many_requests(attacker: Attacker) -> Iterator[None]:
    """Ask as often as allowed, while the others work."""
    attacker.register()

    def again(_: httpx.Client) -> None:
        attacker.ask()
        time.sleep(0.02)

    with attacker.meanwhile(2, again):
        yield


@harm
def requests_for_others(attacker: Attacker) -> Iterator[None]:
    """Ask in the names of others."""
    attacker.register()
    for name in ("north", "south", "west"):
        attacker.ask(client=name)
    yield


@harm
def keys_for_others(attacker: Attacker) -> Iterator[None]:
    """Register keys in the names of others, and one of small order in the attacker's own."""
    for name in ("north", "south", "west"):
        attacker.call("POST", "/v1/site-key", json=attacker.key.register(name))
    small = {"payload": base64.b64encode(b"{}").decode(), "payloadType": "x", "signatures": [{"keyid": "0", "sig": ""}]}
    attacker.call("POST", "/v1/site-key", json=small)
    yield
