"""Agreement on labels among the clients of a federation, which take turns over the link (Algorithm 3)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from splitwiper.client.agreeing import LabelAgreement
from splitwiper.data.labels import alike, told_apart
from splitwiper.errors import AbsentClientError, CorruptError, DataError, NotFoundError, SplitWiperError, let_go
from splitwiper.federation.registry import ClientRegistry
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


def agree(registry: ClientRegistry, names: Sequence[str]) -> Agreement | None:
    """Bring clients that hide their labels to the newest codebook; return None if all have it.

    Clients that join later take the codebook that the others agreed on, which must contain their labels. One client's
    failure does not stop the others; it is reported in the agreement.
    """
    if not registry.config.client.masking.is_on:
        return None
    version, start = _newest(registry), time.perf_counter()
    parts, finished, problems = _parts(registry, names, version)
    if not parts:
        return Agreement((), 0, time.perf_counter() - start, problems) if problems else None
    if not finished:
        # messages name the participants; before the first one, these are all clients that need a codebook
        roster = next(iter(parts.values())).roster or sorted(parts)
        if waited := [name for name in roster if not registry.has_joined(name) and registry.server.store.shard(name)]:
            away = AbsentClientError(
                f"an agreement on labels waits for {', '.join(waited)}, whose folder is not here: bring it back, or "
                "forget the whole client (everything=True); then settle."
            )
            for name in parts:
                if not registry.client(name).group.has_codebook():  # others go on with the one that they have
                    problems[name] = away
            return Agreement((), 0, time.perf_counter() - start, problems)
        for name in roster:
            if not registry.has_joined(name) or not registry.client(name).labels():
                roster, version = sorted(parts), version + 1  # somebody left for good: those present start over
                parts = {name: registry.client(name).agreement(version) for name in roster}
                break
        speakers = dict(parts)
        for name in roster:
            if name not in parts:  # it has the codebook, and takes part so that the others get it
                speakers[name] = registry.client(name).agreement(version)
        _take_turns(speakers, roster)
    problems |= _take(parts)
    return _agreed(parts, start, problems)


def _parts(
    registry: ClientRegistry, names: Sequence[str], version: int
) -> tuple[dict[str, LabelAgreement], bool, dict[str, SplitWiperError]]:
    """Return the parts of clients with rows but no codebook of this version, and whether they have agreed.

    A client that cannot be read, or has another secret and reads no messages, stops nobody: its error is returned.
    """
    parts: dict[str, LabelAgreement] = {}
    problems: dict[str, SplitWiperError] = {}
    finished = False
    for name in names:
        try:
            client = registry.client(name)
            if client.group.has_codebook(version) or not client.labels():
                continue
            part = client.agreement(version)
            finished = part.finished()
            parts[name] = part
        except CorruptError as problem:
            problems[name] = let_go(problem)
    return parts, finished, problems


def rekey(registry: ClientRegistry, labels: Sequence[Label] = ()) -> Agreement:
    """Negotiate again, with every client that has rows: the only way a codebook changes.

    ``labels`` are agreed on besides those that clients hold.

    Raises:
        AbsentClientError: the server holds a shard of a client whose folder is not here.
        NotFoundError: no client has rows.
        DataError: labels read like others of another type: an integer and the same digits as text.
    """
    holders = {shard.client for shard in registry.server.store.shards()}
    if away := sorted(holders.difference(registry.here())):
        raise AbsentClientError(
            f"a new codebook needs every client, and {', '.join(away)} is not here: bring the folder back, or forget "
            "the whole client first (everything=True)."
        )
    start = time.perf_counter()
    present = [client for client in map(registry.client, registry.here()) if client.labels()]
    if not present:
        raise NotFoundError("nobody holds rows, so there are no labels to agree on: learn first.")
    known = set(labels).union(*(client.labels() for client in present))
    for label, other in alike(labels, known):
        raise DataError(f"{told_apart(label, other)} Name {label.name!r} only where nobody has {other.name!r}.")
    for client in present:  # a client that cannot read the group's messages fails before anything is begun
        if client.group.has_codebook():
            client.group.codebook()
    for client in present:
        registry.mark_pending(client.name)
    present[0].group.wish(labels)  # one client proposes them for all
    version = _newest(registry) + 1
    parts = {client.name: client.agreement(version) for client in present}
    _take_turns(parts, list(parts))
    problems = _take(parts)
    return _agreed(parts, start, problems)


def _newest(registry: ClientRegistry) -> int:
    """Return the version under negotiation, or the latest one."""
    return version_of(registry.link.topic()) or 1


def _take_turns(parts: Mapping[str, LabelAgreement], roster: Sequence[str]) -> None:
    """Let the clients of a roster take turns until all are done."""
    while True:
        for name in roster:
            parts[name].speak(roster)
            if parts[name].finished():
                return


def _agreed(parts: Mapping[str, LabelAgreement], start: float, problems: Mapping[str, SplitWiperError]) -> Agreement:
    messages = max(part.messages for part in parts.values())  # one that failed may not have read all
    return Agreement(tuple(parts), messages, time.perf_counter() - start, problems)


def _take(parts: Mapping[str, LabelAgreement]) -> dict[str, SplitWiperError]:
    """Have clients store the codebook; one that fails does not stop the others, nor forgetting."""
    problems: dict[str, SplitWiperError] = {}
    for name, part in parts.items():
        try:
            part.take()
        except SplitWiperError as problem:
            problems[name] = let_go(problem)
    return problems
