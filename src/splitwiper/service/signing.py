"""Checks of what sites sign, before the server acts on it: registrations, and statements about shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitwiper.errors import DataError, FormatError
from splitwiper.service.certificate.site import Registration, ShardStatement
from splitwiper.service.requests import RequestRecords
from splitwiper.store import ServerStore
from splitwiper.wire import Statement
from splitwiper.wire.commitments import shard_commitment


def register(store: ServerStore, cases: RequestRecords, client: str, signed: Mapping[str, Any]) -> None:
    """Register the key that a site signs with, in the ledger first.

    Args:
        store: the server's store.
        cases: stores the registered keys.
        client: the caller's name, according to its certificate or token.
        signed: the registration.

    Raises:
        DataError: it is not a registration, or is for another store or another client.
        ForbiddenError: another key is registered.
    """
    try:
        made = Registration.read(signed)
    except FormatError as problem:
        raise DataError(str(problem)) from problem
    _check_place(store, client, made.federation, made.client)
    if cases.key(client) is not None:
        cases.check_key(client, made.key)
    store.register_key(client, made.key)
    cases.register(made, signed)


def check_shard(
    store: ServerStore,
    cases: RequestRecords,
    client: str,
    signed: Mapping[str, Any] | None,
    statement: Statement,
    *,
    must: bool,
) -> ShardStatement | None:
    """Check a site's signed statement about a shard, or its withdrawal, against what the upload says.

    Args:
        store: the server's store.
        cases: stores the registered keys.
        client: the caller's name, according to its certificate or token.
        signed: the signed statement.
        statement: the upload's own statement.
        must: refuse a missing signature.

    Returns:
        The signed statement; None if there is none and none is required. The caller must still compare its digest with
        the shard's bytes.

    Raises:
        DataError: the signature is missing, or the signed statement differs.
        ForbiddenError: it was not signed with the site's key.
    """
    if signed is None:
        if must:
            raise DataError(
                "a shard must be signed by the site's own key, and so must a withdrawal: 'splitwiper join' and "
                "'forget' do that; see the field 'signed' in the OpenAPI document."
            )
        return None
    try:
        made = ShardStatement.read(signed)
    except FormatError as problem:
        raise DataError(str(problem)) from problem
    _check_place(store, client, made.federation, made.client)
    said = (statement.codebook, statement.outputs, statement.tickets)
    committed = shard_commitment(bytes.fromhex(statement.salt), made.digest) if made.digest else ""
    if (made.codebook, made.outputs, made.tickets) != said or made.commitment != committed:
        raise DataError("what is signed is not what is said with the shard: codebook, tickets or commitment differ.")
    cases.check_key(client, made.key)
    cases.check_serial(made)
    return made


def _check_place(store: ServerStore, client: str, federation: str, name: str) -> None:
    if (federation, name) != (store.database.meta("run") or "", client):
        raise DataError(
            f"what is signed is for client {name!r} of store {federation[:16]!r}; this is store "
            f"{(store.database.meta('run') or '')[:16]!r}, and the certificate or token says {client!r}. The name in "
            "the site's file must be the one in its certificate."
        )
