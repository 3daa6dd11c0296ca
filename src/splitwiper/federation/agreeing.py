"""Negotiation of labels among the clients of a federation, over the link (Algorithm 3)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random, SystemRandom

from splitwiper.client import Client
from splitwiper.data.labels import alike, told_apart
from splitwiper.errors import AbsentClientError, CorruptError, DataError, NotFoundError, SplitWiperError, let_go
from splitwiper.federation.registry import ClientRegistry
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.consensus import Consensus, Participant
from splitwiper.masking.modes import expand
from splitwiper.masking.negotiation import Negotiation
from splitwiper.store.relay import version_of
from splitwiper.wire import Label


@dataclass(frozen=True)
class Agreement:
    """The outcome of a negotiation about labels.

    Attributes:
        clients: the participants.
        messages: the number of sealed messages that the server relayed.
        seconds: time from the first message to the last codebook.
        problems: what kept clients from having the codebook, by client name.
    """

    clients: tuple[str, ...]
    messages: int
    seconds: float
    problems: Mapping[str, SplitWiperError] = field(default_factory=dict)


def agree(members: ClientRegistry, names: Sequence[str]) -> Agreement | None:
    """Bring clients that hide their labels to the newest codebook; return None if all have it.

    Clients that join later take the codebook that the others agreed on, which must contain their labels. One client's
    failure does not stop the others; it is reported in the agreement.
    """
    if not members.config.client.masking.is_on:
        return None
    version, start = _newest(members), time.perf_counter()
    lacking, problems = _lacking(members, names, version)
    if not lacking and not problems:
        return None
    talks, deaf = _heard(members, lacking, version)
    problems |= deaf
    found = next((talk.consensus for talk in talks.values()), None)
    if found is None and talks:
        roster = list(next(iter(talks.values())).roster) or sorted(talks)
        if waited := [name for name in roster if not members.has_joined(name) and members.server.store.shard(name)]:
            return _waiting(members, lacking, problems, waited, start)
        if not all(members.has_joined(name) and members.client(name).labels() for name in roster):
            roster, version = sorted(talks), version + 1  # somebody left for good: those present start over
        found = _talk(members, roster, version)
    if found is not None:
        problems |= _take([lacking[name] for name in sorted(talks)], found, version)
    words = len(found.transcript) if found else 0
    return Agreement(tuple(sorted(talks)), words, time.perf_counter() - start, problems)


def _lacking(
    members: ClientRegistry, names: Sequence[str], version: int
) -> tuple[dict[str, Client], dict[str, SplitWiperError]]:
    """Return clients with rows but no codebook of this version, and the errors of clients that cannot be read."""
    lacking: dict[str, Client] = {}
    problems: dict[str, SplitWiperError] = {}
    for name in names:
        try:
            client = members.client(name)
            if not client.group.has_codebook(version) and client.labels():
                lacking[name] = client
        except CorruptError as problem:
            problems[name] = let_go(problem)
    return lacking, problems


def _waiting(
    members: ClientRegistry,
    lacking: Mapping[str, Client],
    problems: dict[str, SplitWiperError],
    waited: Sequence[str],
    start: float,
) -> Agreement:
    """Wait for absent clients in an interrupted negotiation; clients that have a codebook continue with it."""
    away = AbsentClientError(
        f"an agreement on labels waits for {', '.join(waited)}, whose folder is not here: bring it, or forget the "
        "whole client (everything=True); then settle."
    )
    problems |= {name: away for name, client in lacking.items() if not client.group.has_codebook()}
    return Agreement((), 0, time.perf_counter() - start, problems)


def _heard(
    members: ClientRegistry, clients: Mapping[str, Client], version: int
) -> tuple[dict[str, Negotiation], dict[str, SplitWiperError]]:
    """Read each client's view of the negotiation so far; one with another secret reads nothing and stops nobody."""
    talks: dict[str, Negotiation] = {}
    problems: dict[str, SplitWiperError] = {}
    for name, client in clients.items():
        try:
            talk = Negotiation(members.link, client.group.key(), version)
            talk.listen()
            talks[name] = talk
        except CorruptError as problem:
            problems[name] = let_go(problem)
    return talks, problems


def rekey(members: ClientRegistry, labels: Sequence[Label] = ()) -> Agreement:
    """Negotiate again, with every client that has rows: the only way a codebook changes.

    Args:
        members: the clients.
        labels: labels to agree on besides those that clients hold.

    Raises:
        AbsentClientError: the server holds a shard of a client whose folder is not here.
        NotFoundError: no client has rows.
        DataError: labels read like others of another type: an integer and the same digits as text.
    """
    holders = [shard.client for shard in members.server.store.shards()]
    if away := sorted(set(holders) - set(members.here())):
        raise AbsentClientError(
            f"a new codebook takes every client, and {', '.join(away)} is not here: bring the folder, or forget the "
            "whole client first (everything=True)."
        )
    start = time.perf_counter()
    present = [client for client in map(members.client, members.here()) if client.labels()]
    if not present:
        raise NotFoundError("nobody holds rows, so there are no labels to agree on: learn first.")
    known = {label for client in present for label in client.labels()}
    for label, other in alike(labels, known.union(labels)):
        raise DataError(f"{told_apart(label, other)} Name {label.name!r} only where nobody has {other.name!r}.")
    for client in present:  # a client that cannot read the group's messages fails before anything is begun
        if client.group.has_codebook():
            client.group.codebook()
    for client in present:
        members.mark(client.name)
    present[0].group.wish(labels)
    version = _newest(members) + 1
    found = _talk(members, [client.name for client in present], version)
    problems = _take(present, found, version)
    words = len(found.transcript)
    return Agreement(tuple(c.name for c in present), words, time.perf_counter() - start, problems)


def _newest(members: ClientRegistry) -> int:
    """Return the version under negotiation, or the latest one."""
    return version_of(members.link.topic()) or 1


def _talk(members: ClientRegistry, roster: Sequence[str], version: int) -> Consensus:
    """Let the clients of a roster take turns until all are done."""
    masking = members.config.client.masking
    speakers = [
        (Negotiation(members.link, c.group.key(), version), Participant(c.name, set(c.labels()), masking, draw(c)))
        for c in map(members.client, roster)
    ]
    while True:
        for talk, participant in speakers:
            talk.speak(participant, roster)
            if (found := talk.consensus) is not None:
                return found


def draw(client: Client, *, begun: int = 0) -> Random:
    """Return a client's source of chance: the operating system, or its key if the experiment must be repeatable.

    Args:
        client: the client.
        begun: how often the client began before, so that one that is interrupted repeatedly does not repeat itself.
    """
    key = client.store.key() if client.config.keys == "seeded" else None
    return Random(key + b"+" * begun) if key else SystemRandom()  # noqa: S311


def codebook(client: Client, found: Consensus, version: int) -> Codebook:
    """Compute the codebook that follows from the agreed labels."""
    return expand(found.labels, client.group.key(), client.config.masking, version=version)


def _take(clients: Sequence[Client], found: Consensus, version: int) -> dict[str, SplitWiperError]:
    """Give clients their codebook; a client that fails does not stop the others."""
    problems: dict[str, SplitWiperError] = {}
    for client in clients:
        try:
            client.group.take(codebook(client, found, version), client.labels())
        except SplitWiperError as problem:
            problems[client.name] = let_go(problem)
    return problems
