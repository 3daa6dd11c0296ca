"""Agreement on labels among the clients of a federation, over the link (Algorithm 3)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random, SystemRandom

from splitwiper.client import Client
from splitwiper.data.labels import alike, told_apart
from splitwiper.errors import AbsentClientError, CorruptError, DataError, NotFoundError, SplitWiperError, let_go
from splitwiper.federation.members import Members
from splitwiper.masking.codebook import Codebook, expand
from splitwiper.masking.consensus import Consensus, Participant
from splitwiper.masking.talk import Talk
from splitwiper.store.board import version_of
from splitwiper.wire import Label


@dataclass(frozen=True)
class Agreement:
    """What it took to agree on labels.

    Attributes:
        clients: who took part.
        messages: sealed messages that the server relayed.
        seconds: from the first word to the last codebook.
        problems: what kept clients from having the codebook, by name.
    """

    clients: tuple[str, ...]
    messages: int
    seconds: float
    problems: Mapping[str, SplitWiperError] = field(default_factory=dict)


def agree(members: Members, names: Sequence[str]) -> Agreement | None:
    """See to it that clients which hide their labels have the newest codebook; None where all have.

    Clients that come later take the codebook that the others agreed on, which must know their labels. One client's
    trouble keeps no other from it; it is told in the agreement.
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
        if waited := [name for name in roster if not members.has_joined(name) and members.server.tree.shard(name)]:
            return _waiting(members, lacking, problems, waited, start)
        if not all(members.has_joined(name) and members.client(name).labels() for name in roster):
            roster, version = sorted(talks), version + 1  # somebody left for good: those who are here start anew
        found = _talk(members, roster, version)
    if found is not None:
        problems |= _take([lacking[name] for name in sorted(talks)], found, version)
    words = len(found.transcript) if found else 0
    return Agreement(tuple(sorted(talks)), words, time.perf_counter() - start, problems)


def _lacking(
    members: Members, names: Sequence[str], version: int
) -> tuple[dict[str, Client], dict[str, SplitWiperError]]:
    """Clients with rows and without a codebook of this version, and what kept others from being looked at."""
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
    members: Members,
    lacking: Mapping[str, Client],
    problems: dict[str, SplitWiperError],
    waited: Sequence[str],
    start: float,
) -> Agreement:
    """An agreement that was interrupted waits for clients that are away: who has a codebook goes on with it."""
    away = AbsentClientError(
        f"an agreement on labels waits for {', '.join(waited)}, whose folder is not here: bring it, or forget the "
        "whole client (everything=True); then settle."
    )
    problems |= {name: away for name, client in lacking.items() if not client.group.has_codebook()}
    return Agreement((), 0, time.perf_counter() - start, problems)


def _heard(
    members: Members, clients: Mapping[str, Client], version: int
) -> tuple[dict[str, Talk], dict[str, SplitWiperError]]:
    """What was said so far, as each client hears it; one with another secret hears nothing, and stops nobody."""
    talks: dict[str, Talk] = {}
    problems: dict[str, SplitWiperError] = {}
    for name, client in clients.items():
        try:
            talk = Talk(members.link, client.group.key(), version)
            talk.listen()
            talks[name] = talk
        except CorruptError as problem:
            problems[name] = let_go(problem)
    return talks, problems


def rekey(members: Members, labels: Sequence[Label] = ()) -> Agreement:
    """Agree anew, with every client that has rows: the only way a codebook changes.

    Args:
        members: the clients.
        labels: to be agreed on besides those that clients hold.

    Raises:
        AbsentClientError: the server holds a shard of a client whose folder is not here.
        NotFoundError: nobody has rows.
        DataError: labels read like others of another type, an integer and its digits.
    """
    holders = [shard.client for shard in members.server.tree.shards()]
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
    for client in present:  # who cannot read the group's words is told before anything is begun
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


def _newest(members: Members) -> int:
    """The version that is being agreed on, or was last."""
    return version_of(members.link.topic()) or 1


def _talk(members: Members, roster: Sequence[str], version: int) -> Consensus:
    """Let the clients of a roster talk until all are done."""
    masking = members.config.client.masking
    speakers = [
        (Talk(members.link, c.group.key(), version), Participant(c.name, set(c.labels()), masking, draw(c)))
        for c in map(members.client, roster)
    ]
    while True:
        for talk, participant in speakers:
            talk.speak(participant, roster)
            if (found := talk.consensus) is not None:
                return found


def draw(client: Client, *, begun: int = 0) -> Random:
    """Where a client's chance comes from: the operating system, or its key where an experiment is to be repeated.

    Args:
        client: who draws.
        begun: how often the client began before, so that one that is interrupted time and again does not repeat itself.
    """
    key = client.tree.key() if client.config.keys == "seeded" else None
    return Random(key + b"+" * begun) if key else SystemRandom()  # noqa: S311


def codebook(client: Client, found: Consensus, version: int) -> Codebook:
    """The codebook that follows from what was agreed on."""
    return expand(found.labels, client.group.key(), client.config.masking, version=version)


def _take(clients: Sequence[Client], found: Consensus, version: int) -> dict[str, SplitWiperError]:
    """Give clients their codebook; what keeps one from having it keeps no other."""
    problems: dict[str, SplitWiperError] = {}
    for client in clients:
        try:
            client.group.take(codebook(client, found, version), client.labels())
        except SplitWiperError as problem:
            problems[client.name] = let_go(problem)
    return problems
