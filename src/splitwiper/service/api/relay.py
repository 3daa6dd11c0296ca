"""Sealed messages between clients, which the server relays and cannot read."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from splitwiper.errors import DataError
from splitwiper.server import Server
from splitwiper.service.api.call import ApiCall, queries
from splitwiper.service.api.shapes import ApiShape, PostedShape
from splitwiper.wire import lock_of

router = APIRouter(prefix="/v1/board", tags=["relay"])
_MOST = 1 << 20
"""Bytes of messages in one answer, unless the first message alone is longer."""
_TOPIC = r"^labels/[0-9]{1,9}$"
Topic = Annotated[str, Query(max_length=64, pattern=_TOPIC)]


class Body(ApiShape):
    """A sealed message, in base64."""

    body: Annotated[str, Field(max_length=3 << 20)]


class End(ApiShape):
    """The end of a negotiation. If there is a proof, messages that begin with its digest are erased."""

    topic: Annotated[str, Field(max_length=64, pattern=_TOPIC)]
    proof: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""


@router.get("/topic")
@queries
def topic(server: Server, call: ApiCall) -> dict[str, str]:
    """Return the topic of the current negotiation, or of the last one."""
    call.service.check_joined(call.client)
    return {"topic": server.topic()}


@router.get("/messages")
@queries
def messages(
    server: Server, call: ApiCall, topic: Topic, since: Annotated[int, Query(ge=0, le=1 << 31)] = 0
) -> list[PostedShape]:
    """Return the messages of a topic from a sequence number on, in batches if they are long. Repeat until empty.

    An erased message has an empty body.
    """
    call.service.check_joined(call.client)
    call.service.negotiations.listened(topic)
    batch, size = list[PostedShape](), 0
    for message in server.posted(topic, since):
        size += len(message.body)
        # at least one message, however long: otherwise the reader would never get past it
        if batch and size > _MOST:
            break
        text = base64.b64encode(message.body).decode()
        batch.append(PostedShape(place=message.place, sender=message.sender, body=text))
    return batch


@router.put("/messages/{place}", status_code=204)
@queries
def post(
    server: Server, call: ApiCall, topic: Topic, place: Annotated[int, Path(ge=0, le=1 << 31)], body: Body
) -> None:
    """Relay a message to the other clients. Each sequence number is used once."""
    try:
        sealed = base64.b64decode(body.body, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise DataError("the message is not in base64.") from problem
    call.service.check_joined(call.client)
    server.post(call.client, topic, place, sealed)
    call.service.negotiations.spoken(topic)


@router.post("/end", status_code=204)
@queries
def end(server: Server, call: ApiCall, body: End) -> None:
    """End a negotiation. Its messages, with the agreed codebook, are kept for clients that join later.

    To abandon it instead, send the proof: messages that begin with the proof's digest are erased. A negotiation that
    nobody ends is erased after a long silence.
    """
    call.service.check_joined(call.client)
    # a topic without messages is not noted as ended: a client could name any number of them
    if server.posted(body.topic):
        call.service.negotiations.ended(body.topic)
        if body.proof:
            server.store.relay.erase(body.topic, lock_of(bytes.fromhex(body.proof)))
