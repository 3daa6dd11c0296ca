"""The table of harms: what the attacker does before or while the others work.

Each harm is a context: what it did stays, or goes on, until it is left.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass

import httpx
import numpy as np
import torch
from safetensors.torch import save

from benchmarks.adversary.attacker import COLUMN, WIDTH, Attacker
from splitwiper import Label
from splitwiper.service.certificate import Attestation
from splitwiper.service.site.link import _plain
from splitwiper.wire import Spent

_SLOW = 20_000
"""Rows that take the server a while to train on."""
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Harm:
    """One kind of harm.

    Attributes:
        name: what it is called.
        does: what the attacker is to do, in a sentence.
        do: does it.
    """

    name: str
    does: str
    do: Callable[[Attacker], AbstractContextManager[None]]


HARMS: list[Harm] = []


def _harm(do: Callable[[Attacker], Iterator[None]]) -> None:
    """Enter a harm into the table, under its function's name."""
    HARMS.append(Harm(do.__name__.replace("_", " "), (do.__doc__ or "").rstrip("."), contextmanager(do)))


@_harm
def nobody(_attacker: Attacker) -> Iterator[None]:
    """Do nothing: what the others do, and how long it takes, without an attacker."""
    yield


# --- shards that break training ----------------------------------------------------------------------------


@_harm
def huge_values(attacker: Attacker) -> Iterator[None]:
    """Send two rows of 9e29, which make the loss NaN."""
    attacker.send(attacker.shard(np.full((2, WIDTH), 9e29, np.float32)))
    yield


@_harm
def values_at_the_limit(attacker: Attacker) -> Iterator[None]:
    """Send values that are large, finite and within every limit, and break training all the same."""
    for power in range(29, 2, -1):  # the largest that is accepted
        values = np.full((64, WIDTH), 10.0**power, np.float32)
        values[::2] *= -1
        if attacker.send(attacker.shard(values)):
            break
    yield


@_harm
def not_numbers(attacker: Attacker) -> Iterator[None]:
    """Send NaN and infinite values."""
    for value in (np.nan, np.inf):
        attacker.send(attacker.shard(np.full((4, WIDTH), value, np.float32)))
    yield


@_harm
def restless_shard(attacker: Attacker) -> Iterator[None]:
    """Replace the shard again and again, so that training never ends."""
    attacker.send(attacker.shard(rows=_SLOW))

    def again(_: httpx.Client) -> None:
        attacker.link.upload(attacker.name, attacker.shard(rows=_SLOW), attacker.statement())

    with attacker.meanwhile(1, again):
        yield


@_harm
def edge_of_training(attacker: Attacker) -> Iterator[None]:
    """Send rows of ±56,234 until they can be trained on, so that training fails once somebody else's shard changes."""
    for _ in range(4):
        values = np.full((32, WIDTH), 56234, np.float32) * np.random.default_rng().choice([-1, 1], (32, WIDTH))
        attacker.send(attacker.shard(values.astype(np.float32)))
        time.sleep(2.0)  # it is trained on, or set aside
    yield


@_harm
def restless_requests(attacker: Attacker) -> Iterator[None]:
    """Ask, and answer with another shard, again and again, so that training starts over."""
    attacker.send(attacker.shard())

    def again(_: httpx.Client) -> None:
        ticket = attacker.ask()
        attacker.link.upload(attacker.name, attacker.shard(), attacker.statement(tickets=(ticket,)))

    with attacker.meanwhile(1, again):
        yield


@_harm
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


@_harm
def tiny_shards(attacker: Attacker) -> Iterator[None]:
    """Send one small shard after another, whoever waits, so that the ledger grows."""

    def again(_: httpx.Client) -> None:
        attacker.link.upload(attacker.name, attacker.shard(), attacker.statement())

    attacker.register()
    with attacker.meanwhile(1, again):
        yield


# --- harm through shards ---------------------------------------------------------------------------------


@_harm
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


@_harm
def long_labels(attacker: Attacker) -> Iterator[None]:
    """Send 150 labels of 984 characters."""
    labels = tuple(Label("", f"{n:04}" + "x" * 980) for n in range(150))
    attacker.send(attacker.shard(rows=150, labels=labels))
    yield


@_harm
def many_labels(attacker: Attacker) -> Iterator[None]:
    """Send 20,000 labels."""
    attacker.send(attacker.shard(rows=20_000, labels=tuple(Label("", f"label {n:05}") for n in range(20_000))))
    yield


@_harm
def million_outputs(attacker: Attacker) -> Iterator[None]:
    """Say that the codebook has a million outputs."""
    codes = (Label("", 0), Label("", 1))
    attacker.send(attacker.shard(labels=codes), codebook="ab" * 32, outputs=1_000_000)
    yield


@_harm
def broken_codebook(attacker: Attacker) -> Iterator[None]:
    """Name a codebook with line breaks in it."""
    codes = (Label("", 0), Label("", 1))
    attacker.send(attacker.shard(labels=codes), codebook="a\r\nX-Evil: 1", outputs=2)
    yield


@_harm
def other_codebook(attacker: Attacker) -> Iterator[None]:
    """Hide labels by another codebook, where the others hide none."""
    attacker.send(attacker.shard(labels=(Label("", 0), Label("", 1))), codebook="ab" * 32, outputs=2)
    yield


@_harm
def tickets_of_nobody(attacker: Attacker) -> Iterator[None]:
    """Say that the shard answers 900 requests that were never made."""
    tickets = tuple(secrets.token_hex(16) for _ in range(900))
    attacker.send(attacker.shard(), tickets=tickets)
    yield


# --- files -------------------------------------------------------------------------------------------------


@_harm
def huge_header(attacker: Attacker) -> Iterator[None]:
    """Send a shard whose header has 55 MiB."""
    header = json.dumps({"__metadata__": {"format": "x" * (55 << 20)}}).encode()
    attacker.send(attacker.file(struct.pack("<Q", len(header)) + header))
    yield


@_harm
def many_dimensions(attacker: Attacker) -> Iterator[None]:
    """Send a shard whose tensor has 100 dimensions."""
    good = attacker.shard().read_bytes()
    (length,) = struct.unpack("<Q", good[:8])
    header = json.loads(good[8 : 8 + length])
    header[COLUMN.name]["shape"] = [8, *[1] * 98, WIDTH]
    raw = json.dumps(header).encode()
    attacker.send(attacker.file(struct.pack("<Q", len(raw)) + raw + good[8 + length :]))
    yield


@_harm
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


@_harm
def request_without_data(attacker: Attacker) -> Iterator[None]:
    """Ask to be forgotten without having sent a row."""
    attacker.register()
    attacker.ask()
    yield


@_harm
def silent_request(attacker: Attacker) -> Iterator[None]:
    """Ask to be forgotten, and fall silent."""
    attacker.send(attacker.shard())
    attacker.ask()
    yield


@_harm
def many_requests(attacker: Attacker) -> Iterator[None]:
    """Ask as often as allowed, while the others work."""
    attacker.register()

    def again(_: httpx.Client) -> None:
        attacker.ask()
        time.sleep(0.02)

    with attacker.meanwhile(2, again):
        yield


@_harm
def requests_for_others(attacker: Attacker) -> Iterator[None]:
    """Ask in the names of others."""
    attacker.register()
    for name in ("north", "south", "west"):
        attacker.ask(client=name)
    yield


@_harm
def keys_for_others(attacker: Attacker) -> Iterator[None]:
    """Register keys in the names of others, and one of small order in the attacker's own."""
    for name in ("north", "south", "west"):
        attacker.call("POST", "/v1/site-key", json=attacker.key.register(name))
    small = {"payload": base64.b64encode(b"{}").decode(), "payloadType": "x", "signatures": [{"keyid": "0", "sig": ""}]}
    attacker.call("POST", "/v1/site-key", json=small)
    yield


# --- predictions -------------------------------------------------------------------------------------------


@_harm
def flood_of_predictions(attacker: Attacker) -> Iterator[None]:
    """Ask for 4,096 predictions at a time on twelve connections, without pause."""
    attacker.send(attacker.shard())
    body = save({COLUMN.name: torch.zeros(4096, WIDTH)})
    with attacker.meanwhile(12, lambda http: http.post("/v1/predict", content=body)):
        yield


@_harm
def useless_tensors(attacker: Attacker) -> Iterator[None]:
    """Send predictions with tensors of 200 MB that the cut does not have."""
    attacker.send(attacker.shard())
    body = save({COLUMN.name: torch.zeros(1, WIDTH), "more": torch.zeros(1, 50 << 20)})
    for _ in range(3):
        attacker.call("POST", "/v1/predict", content=body)
    yield


@_harm
def odd_predictions(attacker: Attacker) -> Iterator[None]:
    """Send predictions of infinite, NaN and enormous activations."""
    attacker.send(attacker.shard())
    for value in (float("nan"), float("inf"), 3e38):
        attacker.call("POST", "/v1/predict", content=save({COLUMN.name: torch.full((16, WIDTH), value)}))
    yield


# --- connections and bodies --------------------------------------------------------------------------------


@_harm
def idle_connections(attacker: Attacker) -> Iterator[None]:
    """Keep 190 TLS connections open with a certificate, and say nothing."""
    with attacker.connections(190):
        yield


@_harm
def silent_connections(attacker: Attacker) -> Iterator[None]:
    """Keep 260 connections open that never begin a handshake."""
    with attacker.connections(260, tls=False):
        yield


@_harm
def dripping_bodies(attacker: Attacker) -> Iterator[None]:
    """Send bodies a byte at a time on 24 connections."""

    def drip(http: httpx.Client) -> None:
        def bytes_slowly() -> Iterator[bytes]:
            for _ in range(40):
                yield b"{"
                time.sleep(0.25)

        http.post("/v1/requests", content=bytes_slowly(), headers=_JSON)

    with attacker.meanwhile(24, drip):
        yield


@_harm
def large_bodies(attacker: Attacker) -> Iterator[None]:
    """Send JSON of four megabytes, deeply nested, on eight connections."""
    body = b"[" * (4 << 20)
    with attacker.meanwhile(8, lambda http: http.post("/v1/requests", content=body, headers=_JSON)):
        yield


@_harm
def many_fields(attacker: Attacker) -> Iterator[None]:
    """Send JSON of four megabytes with hundreds of thousands of fields that no call has, on four connections."""
    body = b"{" + b",".join(b'"%x":0' % number for number in range(400_000)) + b"}"
    with attacker.meanwhile(4, lambda http: http.post("/v1/requests", content=body, headers=_JSON)):
        yield


@_harm
def flood_of_calls(attacker: Attacker) -> Iterator[None]:
    """Call whatever there is as fast as possible on eight connections."""
    with attacker.meanwhile(8, lambda http: http.get("/v1/requests")):
        yield


@_harm
def unread_answers(attacker: Attacker) -> Iterator[None]:
    """Ask for the server half on 60 connections, and never read the answer."""
    attacker.send(attacker.shard())
    ask = b"GET /v1/model HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 4
    with attacker.connections(60, say=ask):
        yield


@_harm
def headers_without_end(attacker: Attacker) -> Iterator[None]:
    """Send short headers without end on twelve connections."""
    with attacker.meanwhile(12, lambda _: attacker.pour(b"GET /healthz HTTP/1.1\r\n", b"ab:cd\r\n" * 4000)):
        yield


@_harm
def calls_behind_calls(attacker: Attacker) -> Iterator[None]:
    """Send ten thousand calls at once on each of 24 connections, and wait for no answer."""
    calls = b"GET /healthz HTTP/1.1\r\n\r\n" * 10_000
    with attacker.meanwhile(24, lambda _: attacker.pour(b"", calls, most=len(calls))):
        yield


@_harm
def calls_broken_off(attacker: Attacker) -> Iterator[None]:
    """Begin calls of every kind on twelve connections at a time, and leave in the middle."""
    head = b" HTTP/1.1\r\nHost: x\r\n"
    begun = (
        b"GET /v1/requests" + head + b"\r\n",
        b"GET /v1/model" + head + b"\r\n",
        b"POST /v1/requests" + head + b"Content-Length: 100\r\n\r\n{",
        b"POST /v1/requests" + head + b"Expect: 100-continue\r\nContent-Length: 100\r\n\r\n",
        b"POST /v1/predict" + head + b"Content-Length: 1000\r\n\r\nx",
        b"PATCH /v1/uploads/0" + head + b"Upload-Offset: 0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx",
        b"GET /v1/requests" + head + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    )

    def leave(_: httpx.Client) -> None:
        with attacker.connections(1, say=secrets.choice(begun)):
            time.sleep(0.05)

    attacker.register()
    with attacker.meanwhile(12, leave):
        yield


@_harm
def calls_on_many_connections(attacker: Attacker) -> Iterator[None]:
    """Keep four calls waiting on each of 30 connections, whatever is answered."""
    calls = b"GET /v1/requests HTTP/1.1\r\nHost: x\r\n\r\n" * 4

    def call(_: httpx.Client) -> None:
        opened = attacker.connection()
        with suppress(OSError), closing(opened or socket.socket()) as one:
            for _ in range(20):
                one.sendall(calls)
                answered = 0
                while answered < 4:
                    said = one.recv(1 << 20)
                    if not said:
                        return
                    answered += said.count(b"HTTP/1.1 ")

    with attacker.meanwhile(30, call):
        yield


# --- messages and heads ------------------------------------------------------------------------------------


@_harm
def full_relay(attacker: Attacker) -> Iterator[None]:
    """Fill the relay with messages of a megabyte."""
    attacker.register()
    sealed = {"body": base64.b64encode(secrets.token_bytes(1 << 20)).decode()}
    for place in range(40):
        path = f"/v1/board/messages/{place}"
        if attacker.call("PUT", path, params={"topic": "labels/1"}, json=sealed) not in (204, 429):
            break
    yield


@_harm
def forged_heads(attacker: Attacker) -> Iterator[None]:
    """Leave countersigned heads that the server never signed, and in the names of others."""
    attacker.register()
    head = attacker.link.head()
    for name in ("north", "south", attacker.name):
        attacker.call("POST", "/v1/ledger/witnesses", json=attacker.key.countersign(head, name))
    signed = attacker.key.countersign(head, attacker.name)
    for _ in range(50):
        odd = json.loads(json.dumps(signed).replace("=", "A", 1))
        attacker.call("POST", "/v1/ledger/witnesses", json=odd)
    yield


@_harm
def many_attestations(attacker: Attacker) -> Iterator[None]:
    """Hand over attestations about everybody's model while a certificate is made, more than a certificate carries."""
    attacker.register()
    key = attacker.key.key()

    def again(_: httpx.Client) -> None:
        told = attacker.link.model_entry()
        made = Attestation(
            federation=attacker.federation,
            model=told["entry"].get("model") or "",
            shard=secrets.token_hex(32),
            size=int(told["size"]),
            root=str(told["root"]),
            role="site",
            name=attacker.name,
            epochs=(),
            of=0,
            outcome="mismatch",
            fingerprint={},
            made="2026-01-01T00:00:00+00:00",
            key=key.public.raw.hex(),
        )
        attacker.link.attest(made.sign(key))

    with attacker.meanwhile(1, again):
        yield
