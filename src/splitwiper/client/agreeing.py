"""Agreement on labels (Algorithm 3): one client's part in it, message by message over its link.

On one machine, a federation lets its clients take turns. Between organisations, each client runs its own part, and
waits for the others. The clients name the participants in the first message of a negotiation. The server has no say,
because it could leave somebody out or add somebody: it relays sealed messages, and learns only that clients negotiate.
A latecomer takes the codebook from the finished negotiation. A client stores only the codebook at the end: one that is
restarted resumes from the relay, and two processes of one client send one message per sequence number.

Where strangers can write on the relay, messages that the group's key does not open are skipped, unless they are from a
participant: that is reported, because one of the two has another key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random, SystemRandom

from splitwiper.client.context import ClientContext
from splitwiper.errors import AbsentClientError, ConfigError, CorruptError, InputError
from splitwiper.masking.codebook import Codebook, settings_text
from splitwiper.masking.consensus import Participant
from splitwiper.masking.modes import expand
from splitwiper.masking.negotiation import Negotiation, unreadable
from splitwiper.wire import Link

_FIRST, _LONGEST = 0.05, 2.0
"""Seconds between polls of the relay: after a message, and after a long silence."""


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """Who is to agree on labels, and how long to wait for them.

    Attributes:
        members: the participating clients, with or without this one. Empty: those named by the negotiation in progress.
        anew: abandon a negotiation with other participants, which cannot end because one of them never joins.
        patience: seconds to wait at most.
        on_wait: called with a text that says whom the client waits for.
    """

    members: Sequence[str] = ()
    anew: bool = False
    patience: float = 600.0
    on_wait: Callable[[str], None] | None = None


class LabelAgreement:
    """One client's part in an agreement on labels."""

    def __init__(self, client: ClientContext, link: Link, *, strangers: bool, version: int = 1) -> None:
        self._client, self._link, self._strangers = client, link, strangers
        self._key = client.group.key()
        self._negotiation = Negotiation(link, self._key, version, strangers=strangers)
        self._participant: Participant | None = None
        self._successors: tuple[str, ...] = ()
        """The participants of a negotiation that replaced an abandoned one."""
        self._announced: set[str] = set()

    # --- message by message --------------------------------------------------------------------------------

    @property
    def roster(self) -> tuple[str, ...]:
        """The participants, as far as messages or an abandoned negotiation name them."""
        return self._negotiation.roster or self._successors

    @property
    def messages(self) -> int:
        """The number of messages so far."""
        return self._negotiation.turns

    def finished(self) -> bool:
        """Read new messages, and return whether all have agreed.

        Raises:
            CorruptError: a message cannot be read, and no stranger can have written it.
        """
        self._negotiation.listen()
        while self._negotiation.successors:
            # the last message of an abandoned negotiation stays: it leads to the next
            self._link.ended(self._negotiation.topic, self._negotiation.proof)
            self._successors = self._negotiation.successors
            self._negotiation = Negotiation(
                self._link, self._key, self._negotiation.version + 1, strangers=self._strangers
            )
            self._negotiation.listen()
        return self._negotiation.consensus is not None

    def speak(self, roster: Sequence[str]) -> bool:
        """Post this client's message if it is its turn; return whether it was.

        The ``roster`` names the participants; it is used before the first message.
        """
        if self._participant is None:
            client = self._client
            draw = _draw(client, spoken=self._negotiation.spoken(client.name))
            self._participant = Participant(client.name, set(client.labels()), client.config.masking, draw)
        return self._negotiation.speak(self._participant, roster)

    def codebook(self) -> Codebook | None:
        """Read new messages; return the codebook if all have agreed on it, None otherwise.

        Raises:
            CorruptError: a message cannot be read, and no stranger can have written it.
            ConfigError: the group hides labels by other settings, or these labels need more codes than there are.
        """
        self.finished()
        self._check_masking()
        if (consensus := self._negotiation.consensus) is None:
            return None
        return expand(consensus.labels, self._key, self._client.config.masking, version=self._negotiation.version)

    def take(self) -> None:
        """Store the codebook that all have agreed on. Errors are those of `codebook`."""
        if (codebook := self.codebook()) is None:
            raise CorruptError("the agreement on labels is not finished: messages of it are missing.")
        self._link.ended(self._negotiation.topic)  # first: a codebook in use needs its messages
        self._client.group.take(codebook, self._client.labels())

    def _check_masking(self) -> None:
        """Require the group's masking settings to equal this client's: only then are codes the same for all."""
        mine, group = settings_text(self._client.config.masking), self._negotiation.masking
        if group and group != mine:
            differing = []
            for theirs, own in zip(group.splitlines(), mine.splitlines(), strict=False):
                if theirs != own:
                    differing.append(f"{theirs} there, {own} here")
            raise ConfigError(
                f"the group hides labels by other settings than client {self._client.name!r} joined with "
                f"({'; '.join(differing)}): join in a new folder with the group's client.masking."
            )

    # --- waiting for the others ----------------------------------------------------------------------------

    def complete(self, how: Gathering) -> None:
        """Run the protocol to completion and store the codebook.

        Raises:
            AbsentClientError: the others did not join in time; calling it again resumes.
            InputError: the negotiation was started with other clients than those named.
            ConfigError: nobody was named, and no negotiation was started.
            CorruptError: a member's message cannot be read, because one of the two has another group key.
        """
        end, wait = time.monotonic() + how.patience, _FIRST
        named = tuple(sorted({*how.members, self._client.name})) if how.members else ()
        if how.anew and not named:
            raise ConfigError("to begin anew, name those who are to agree.")
        self.codebook()  # reads who takes part
        if how.anew and self.roster and set(self.roster) != set(named):
            self._negotiation.give_up(self._client.name, named)
        while self.codebook() is None:
            roster = self._who(named)
            self._check_heard(roster, how)
            if self.speak(roster):
                wait = _FIRST
                continue
            if time.monotonic() + wait > end:
                raise AbsentClientError(
                    f"{self._waits(roster)}. Have them join, and run the same again: it continues, and nothing is "
                    "lost. To continue without a client that never joins, name all others and begin anew."
                )
            self._tell(self._waits(roster), how)
            time.sleep(wait)
            wait = min(1.5 * wait, _LONGEST)
        self.take()

    def _who(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Return the participants: those of the negotiation in progress, or those named for a new one."""
        begun = self.roster
        if begun and named and set(begun) != set(named):
            raise InputError(
                f"a negotiation about labels among {', '.join(begun)} has already begun; you named "
                f"{', '.join(named)}. Name the same clients, or none; or, to abandon that negotiation, begin anew."
            )
        if not (begun or named):
            for sender, place in self._negotiation.unread.items():  # its sender may belong to the group
                raise CorruptError(f"{unreadable(sender, place)} If {sender!r} is not in the group, name all that are.")
            raise ConfigError(
                "nobody has begun to agree on labels: name all clients that take part, or wait until they begin."
            )
        return begun or named

    def _check_heard(self, roster: Sequence[str], how: Gathering) -> None:
        """Refuse to wait for a member whose message cannot be read; mention others whose messages cannot."""
        for sender, place in self._negotiation.unread.items():
            if sender == (self._negotiation.speaker or roster[0]) and sender != self._client.name:
                raise CorruptError(
                    f"{unreadable(sender, place)} Compare the files of the group key: a client that has another one "
                    "joins again with the right one, and the negotiation continues."
                )
            if sender != self._client.name:
                self._tell(f"a message from {sender!r} cannot be read, and was skipped", how)

    def _waits(self, roster: Sequence[str]) -> str:
        speaker = self._negotiation.speaker or roster[0]
        unheard = self._negotiation.silent if self._negotiation.turns else roster
        silent = [name for name in unheard if name not in (speaker, self._client.name)]
        more = f" (not heard of yet: {', '.join(silent)})" if silent else ""
        return f"the agreement on labels waits for {speaker!r}{more}"

    def _tell(self, text: str, how: Gathering) -> None:
        if how.on_wait and text not in self._announced:
            self._announced.add(text)
            how.on_wait(f"{text}.")


def _draw(client: ClientContext, *, spoken: int) -> Random:
    """Return a client's source of chance: the operating system, or its key if the experiment must be repeatable.

    One that has ``spoken`` before draws anew, so that a client that is interrupted repeatedly does not repeat itself.
    """
    key = client.store.key() if client.config.keys == "seeded" else None
    return Random(key + b"+" * spoken) if key else SystemRandom()  # noqa: S311
