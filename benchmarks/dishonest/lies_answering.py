"""Lies of the service: about certificates, receipts, models and heads. Each changes a module of this process."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from splitwiper.server import Server
from splitwiper.service import running, worker
from splitwiper.service.api import certificates
from splitwiper.service.certificate import Envelope, Keyring, SigningKey, certify
from splitwiper.service.certificate.canonical import dumps
from splitwiper.service.certificate.issuing import kept_at
from splitwiper.service.records.requests import RequestRecords, certified
from splitwiper.store import ServerStore
from splitwiper.wire import Request, Scores, Ticket

KEPT = "kept"
"""An earlier copy of the store, in the same folder; see `kinds`."""
Lie = Callable[[], None]


# --- certificates and receipts -----------------------------------------------------------------------------


def _certifies(forged: Callable[[ServerStore, RequestRecords, str, float], dict[str, Any]]) -> None:
    certificates.certified = lambda store, cases, ticket, days: forged(store, cases, ticket, days)


def old_certificate() -> None:
    """Hand out the client's oldest certificate for every ticket."""

    def oldest(store: ServerStore, cases: RequestRecords, ticket: str, days: float) -> dict[str, Any]:
        return certified(store, cases, store.tickets(store.ticket(ticket).client)[0].id, days=days)

    _certifies(oldest)


def others_certificate() -> None:
    """Hand out the certificate of another client's newest request."""

    def other(store: ServerStore, cases: RequestRecords, ticket: str, days: float) -> dict[str, Any]:
        client = store.ticket(ticket).client
        found = [one for one in store.tickets() if one.client != client and one.state == "settled"]
        return certified(store, cases, found[-1].id, days=days)

    _certifies(other)


def _altered(change: Callable[[dict[str, Any]], None]) -> None:
    """Hand out certificates with other statements, signed with the server's own key."""

    def forged(store: ServerStore, cases: RequestRecords, ticket: str, days: float) -> dict[str, Any]:
        body = json.loads(Envelope.from_dict(certified(store, cases, ticket, days=days)).payload)
        change(body["predicate"])
        return Envelope.sign(dumps(body), [Keyring.of(store).key()]).to_dict()

    _certifies(forged)


def other_federation() -> None:
    """Hand out certificates of another federation."""
    _altered(lambda said: said.update(federation="0" * 32))


def strangers_key() -> None:
    """Sign certificates with a key that no site knows."""

    def forged(store: ServerStore, cases: RequestRecords, ticket: str, _days: float) -> dict[str, Any]:
        kept_at(store, ticket).unlink(missing_ok=True)
        case = cases.find(ticket)
        return certify(store, ticket, SigningKey(b"x" * 32), request=case.signed if case else None)

    _certifies(forged)


def smaller_request() -> None:
    """Enter a request into the ledger that commits to other rows than were asked for."""
    submit = Server.submit

    def smaller(self: Server, request: Request, *, at_once: bool = True) -> Ticket:
        return submit(self, dataclasses.replace(request, commitment="5e" * 32), at_once=at_once)

    Server.submit = smaller  # type: ignore[method-assign]


def other_receipt() -> None:
    """Report another receipt than the one in the ledger."""
    _rewrites(r"GET /v1/requests/\w+/receipt", lambda told: {**told, "server_seconds": 3600.0})


def no_attestations() -> None:
    """Leave out what auditors and sites attest to."""
    _rewrites(r"GET /v1/requests/\w+/certificate", lambda told: {**told, "attestations": []})


# --- requests ----------------------------------------------------------------------------------------------


def never() -> None:
    """Take requests, and never train again."""
    worker._quiet = lambda *_: False


def drops_requests() -> None:
    """Say that a request is accepted, and record nothing."""

    def forgetful(_self: Server, request: Request, **_: bool) -> Ticket:
        return Ticket(request.ticket, request.client, request.level, "accepted", "2030-01-01T00:00:00+00:00")

    Server.submit = forgetful  # type: ignore[method-assign]
    RequestRecords.of = lambda *_: {}  # type: ignore[method-assign, assign]


# --- models and answers ------------------------------------------------------------------------------------


def _answers(change: Callable[[str, Scores], Scores]) -> None:
    predict = Server.predict
    Server.predict = lambda self, client, boundary: change(client, predict(self, client, boundary))  # type: ignore


def other_answers() -> None:
    """Answer with another model than the certified one, in its name."""
    _answers(lambda _, scores: dataclasses.replace(scores, logits=-scores.logits))


def other_answers_to_north() -> None:
    """Answer one site alone with another model."""
    _answers(lambda c, scores: dataclasses.replace(scores, logits=-scores.logits) if c == "north" else scores)


def other_download() -> None:
    """Hand out another model than the certified one, in its name."""
    model = Server.model

    def other(self: Server, client: str) -> Any:
        copy = model(self, client)
        return dataclasses.replace(copy, state={name: tensor + 1.0 for name, tensor in copy.state.items()})

    Server.model = other  # type: ignore[method-assign]


def old_model() -> None:
    """Answer with, and hand out, the model from before the request, together with the ledger's newest head."""
    predict, model = Server.predict, Server.model

    def old(self: Server) -> Server:
        return Server(ServerStore(self.store.root.parent / KEPT), self._half)

    Server.predict = lambda self, *given: predict(old(self), *given)  # type: ignore[method-assign, assign]
    Server.model = lambda self, *given: model(old(self), *given)  # type: ignore[method-assign, assign]


def no_download() -> None:
    """Hand the server half out to nobody."""
    service = running.Service

    def closed(root: Any, half: Any, config: Any, authenticator: Any) -> Any:
        return service(root, half, dataclasses.replace(config, hand_out=False), authenticator)

    running.Service = closed  # type: ignore[misc, assign]


# --- the ledger's heads ------------------------------------------------------------------------------------


def no_head() -> None:
    """Answer without the ledger's signed head."""
    _wraps(".*", lambda headers, body: ([(k, v) for k, v in headers if k != b"ledger-head"], body))


def no_witnesses() -> None:
    """Relay no countersigned heads."""
    _rewrites(r"GET /v1/ledger/witnesses", lambda _: [])


# --- answers on their way ----------------------------------------------------------------------------------

Headers = list[tuple[bytes, bytes]]


def _rewrites(pattern: str, change: Callable[[Any], Any]) -> None:
    """Change the JSON of good answers to calls (method and path) that fit a pattern."""

    def changed(headers: Headers, body: bytes) -> tuple[Headers, bytes]:
        told = json.loads(body)
        body = json.dumps(told if isinstance(told, Mapping) and "kind" in told else change(told)).encode()
        kept = [(name, value) for name, value in headers if name != b"content-length"]
        return [*kept, (b"content-length", str(len(body)).encode())], body

    _wraps(pattern, changed)


def _wraps(pattern: str, change: Callable[[Headers, bytes], tuple[Headers, bytes]]) -> None:
    """Stand between the service and its callers."""
    make = running.create_app

    def wrapped(service: Any) -> Any:
        inner = make(service)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or not re.fullmatch(pattern, f"{scope['method']} {scope['path']}"):
                await inner(scope, receive, send)
                return
            start, body = dict[str, Any](), b""

            async def gather(message: Any) -> None:
                nonlocal body
                if message["type"] == "http.response.start":
                    start.update(message)
                    return
                body += message.get("body", b"")
                if not message.get("more_body"):
                    headers, whole = change(list(start["headers"]), body)
                    await send({**start, "headers": headers})
                    await send({"type": "http.response.body", "body": whole})

            await inner(scope, receive, gather)

        return app

    running.create_app = wrapped


LIES: dict[str, Lie] = {
    made.__name__: made
    for made in (
        *(old_certificate, others_certificate, other_federation, strangers_key, smaller_request, other_receipt),
        *(no_attestations, never, drops_requests, other_answers, other_answers_to_north, other_download, old_model),
        *(no_download, no_head, no_witnesses),
    )
}
