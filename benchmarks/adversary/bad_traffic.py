"""Harms by how the service is used: predictions, connections, bodies and messages."""

from __future__ import annotations

import base64
import json
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import httpx
import torch
from safetensors.torch import save

from benchmarks.adversary.attacker import COLUMN, WIDTH, Attacker
from benchmarks.adversary.harm import harm
from splitwiper.service.certificate import Attestation, Envelope
from splitwiper.service.certificate.canonical import dumps

_JSON = {"Content-Type": "application/json"}


# --- predictions -------------------------------------------------------------------------------------------


@harm
def flood_of_predictions(attacker: Attacker) -> Iterator[None]:
    """Ask for 4,096 predictions at a time on twelve connections, without pause."""
    attacker.send(attacker.shard())
    body = save({COLUMN.name: torch.zeros(4096, WIDTH)})
    with attacker.meanwhile(12, lambda http: http.post("/v1/predict", content=body)):
        yield


@harm
def useless_tensors(attacker: Attacker) -> Iterator[None]:
    """Send predictions with tensors of 200 MB that the cut does not have."""
    attacker.send(attacker.shard())
    body = save({COLUMN.name: torch.zeros(1, WIDTH), "more": torch.zeros(1, 50 << 20)})
    for _ in range(3):
        attacker.call("POST", "/v1/predict", content=body)
    yield


@harm
def odd_predictions(attacker: Attacker) -> Iterator[None]:
    """Send predictions of infinite, NaN and enormous activations."""
    attacker.send(attacker.shard())
    for value in (float("nan"), float("inf"), 3e38):
        attacker.call("POST", "/v1/predict", content=save({COLUMN.name: torch.full((16, WIDTH), value)}))
    yield


# --- connections and bodies --------------------------------------------------------------------------------


@harm
def idle_connections(attacker: Attacker) -> Iterator[None]:
    """Keep 190 TLS connections open with a certificate, and say nothing."""
    with attacker.connections(190):
        yield


@harm
def silent_connections(attacker: Attacker) -> Iterator[None]:
    """Keep 260 connections open that never begin a handshake."""
    with attacker.connections(260, tls=False):
        yield


@harm
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


@harm
def large_bodies(attacker: Attacker) -> Iterator[None]:
    """Send JSON of four megabytes, deeply nested, on eight connections."""
    body = b"[" * (4 << 20)
    with attacker.meanwhile(8, lambda http: http.post("/v1/requests", content=body, headers=_JSON)):
        yield


@harm
def many_fields(attacker: Attacker) -> Iterator[None]:
    """Send JSON of four megabytes with hundreds of thousands of fields that no call has, on four connections."""
    body = b"{" + b",".join(b'"%x":0' % number for number in range(400_000)) + b"}"
    with attacker.meanwhile(4, lambda http: http.post("/v1/requests", content=body, headers=_JSON)):
        yield


@harm
def flood_of_calls(attacker: Attacker) -> Iterator[None]:
    """Call whatever there is as fast as possible on eight connections."""
    with attacker.meanwhile(8, lambda http: http.get("/v1/requests")):
        yield


@harm
def unread_answers(attacker: Attacker) -> Iterator[None]:
    """Ask for the server half on 60 connections, and never read the answer."""
    attacker.send(attacker.shard())
    ask = b"GET /v1/model HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 4
    with attacker.connections(60, say=ask):
        yield


@harm
def headers_without_end(attacker: Attacker) -> Iterator[None]:
    """Send short headers without end on twelve connections."""
    with attacker.meanwhile(12, lambda _: attacker.pour(b"GET /healthz HTTP/1.1\r\n", b"ab:cd\r\n" * 4000)):
        yield


@harm
def calls_behind_calls(attacker: Attacker) -> Iterator[None]:
    """Send ten thousand calls at once on each of 24 connections, and wait for no answer."""
    calls = b"GET /healthz HTTP/1.1\r\n\r\n" * 10_000
    with attacker.meanwhile(24, lambda _: attacker.pour(b"", calls, most=len(calls))):
        yield


@harm
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


@harm
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


@harm
def full_relay(attacker: Attacker) -> Iterator[None]:
    """Fill the relay with messages of a megabyte."""
    attacker.register()
    sealed = {"body": base64.b64encode(secrets.token_bytes(1 << 20)).decode()}
    for place in range(40):
        path = f"/v1/board/messages/{place}"
        if attacker.call("PUT", path, params={"topic": "labels/1"}, json=sealed) not in (204, 429):
            break
    yield


@harm
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


@harm
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


@harm
def wrong_signed_messages(attacker: Attacker) -> Iterator[None]:
    """Send signed messages with 32,000 elements of a wrong type on four connections, without pause."""
    attacker.register()
    payload = dumps({"epochs": [[]] * 32_000})
    signed = Envelope.sign(payload, [attacker.key.key()], payload_type=Attestation.PAYLOAD_TYPE).to_dict()
    with attacker.meanwhile(4, lambda http: http.post("/v1/attestations", json=signed)):
        yield
