"""What sites sign is checked here before the server acts on it: registrations, and statements about shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitwiper.errors import DataError, FormatError
from splitwiper.service.cases import Cases
from splitwiper.service.certificate.site import Registration, ShardStatement
from splitwiper.store import ServerTree
from splitwiper.wire import Statement
from splitwiper.wire.commitments import shard_commitment


def register(tree: ServerTree, cases: Cases, client: str, signed: Mapping[str, Any]) -> None:
    """Register the key that a site signs with, in the ledger first.

    Args:
        tree: the server's.
        cases: remembers keys.
        client: who calls, as the certificate or token says.
        signed: the registration.

    Raises:
        DataError: it is no registration, or one for another store or in another name.
        ForbiddenError: another key is registered.
    """
    try:
        made = Registration.read(signed)
    except FormatError as problem:
        raise DataError(str(problem)) from problem
    _check_place(tree, client, made.federation, made.client)
    if cases.key(client) is not None:
        cases.check_key(client, made.key)
    tree.register_key(client, made.key)
    cases.register(made, signed)


def check_shard(
    tree: ServerTree, cases: Cases, client: str, signed: Mapping[str, Any] | None, statement: Statement, *, must: bool
) -> ShardStatement | None:
    """Check what a site signed about a shard, or about withdrawing it, against what it says with it.

    Args:
        tree: the server's.
        cases: remembers keys.
        client: who calls, as the certificate or token says.
        signed: what was signed.
        statement: what comes with the shard.
        must: refuse what is not signed.

    Returns:
        What was signed; None where nothing was, and need not be. Whether it is about the shard's very bytes is still
        to be seen: compare its digest.

    Raises:
        DataError: it is not signed, or something else is.
        ForbiddenError: another key signed than the site's.
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
    _check_place(tree, client, made.federation, made.client)
    said = (statement.codebook, statement.outputs, statement.tickets)
    committed = shard_commitment(bytes.fromhex(statement.salt), made.digest) if made.digest else ""
    if (made.codebook, made.outputs, made.tickets) != said or made.commitment != committed:
        raise DataError("what is signed is not what is said with the shard: codebook, tickets or commitment differ.")
    cases.check_key(client, made.key)
    cases.check_serial(made)
    return made


def _check_place(tree: ServerTree, client: str, federation: str, name: str) -> None:
    if (federation, name) != (tree.book.meta("run") or "", client):
        raise DataError(
            f"what is signed is for client {name!r} of store {federation[:16]!r}; this is store "
            f"{(tree.book.meta('run') or '')[:16]!r}, and the certificate or token says {client!r}. The name in the "
            "site's file must be the one in its certificate."
        )
