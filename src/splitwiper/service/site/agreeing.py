"""Agreement on labels between separate sites (Algorithm 3): each runs its own side, over the server's relay.

The clients name the participants in the first message of a negotiation. The server has no say, because it could leave
somebody out or add somebody: it relays sealed messages, and learns only that clients negotiate. Clients send in turn,
so a site waits until the others have joined; a latecomer takes the codebook from the finished negotiation. A site
stores only the codebook at the end: a restarted site resumes from the relay, and two processes of one site send for the
same client, one message per sequence number.

Anybody with a certificate can write on the relay. Messages that the group's key does not open are skipped, unless they
are from a participant: that is reported, because one of the two has another key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from splitwiper.client import Client
from splitwiper.data.rows import Rows
from splitwiper.errors import AbsentClientError, ConfigError, CorruptError, InputError
from splitwiper.federation.agreeing import codebook, draw
from splitwiper.masking.codebook import Codebook, settings_text
from splitwiper.masking.consensus import Participant
from splitwiper.masking.negotiation import MessageRelay, Negotiation, unreadable

_FIRST, _LONGEST = 0.05, 2.0
"""Seconds between polls of the relay: after a message, and after a long silence."""


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """Who is to agree on labels, and how long to wait for them.

    Attributes:
        members: the participating clients, with or without this one. Empty: those named by the negotiation in progress.
        anew: abandon a negotiation with other participants, which cannot end because one of them never joins.
        patience: seconds to wait at most.
        told: called with a text that says whom the site waits for.
    """

    members: Sequence[str] = ()
    anew: bool = False
    patience: float = 600.0
    told: Callable[[str], None] | None = None


class SharedBoard(MessageRelay, Protocol):
    """A relay that strangers can also write on, and that erases negotiations on request or after a long silence."""

    def ended(self, topic: str, proof: bytes = b"") -> None:
        """Report that a negotiation has ended: it is kept or, with its proof, erased."""
        ...


class Side:
    """One site's side of an agreement.

    Args:
        client: the site's client.
        board: the link to its server, which relays messages.
    """

    def __init__(self, client: Client, board: SharedBoard) -> None:
        self._client, self._board = client, board
        self._key = client.group.key()
        self._talk = Negotiation(board, self._key, 1, strict=False)
        self._roster: tuple[str, ...] = ()
        """The participants of a negotiation that replaced an abandoned one."""
        self._told: set[str] = set()

    def heard(self) -> Codebook | None:
        """Return the codebook if the others have already agreed on it; None otherwise."""
        self._listen()
        found = self._talk.consensus
        return codebook(self._client, found, self._talk.version) if found else None

    def check(self, rows: Rows) -> None:
        """Refuse rows with labels that the others have not agreed on, before anything is stored.

        Raises:
            DataError: the message names such a label.
        """
        group = self._client.group
        codebook = group.codebook() if group.has_codebook() else self.heard()
        if codebook is not None:
            codebook.check(self._client.unforgotten(rows, codebook))

    def agree(self, how: Gathering) -> None:
        """Run the protocol to completion and store the codebook. Does nothing with a codebook, or without rows.

        Raises:
            AbsentClientError: the others did not join in time; calling it again resumes.
            InputError: the negotiation was started with other clients than those named.
            ConfigError: nobody was named, and no negotiation was started.
            CorruptError: a member's message cannot be read, because one of the two has another group key.
        """
        if self._client.group.has_codebook() or not self._client.labels():
            return
        end, wait = time.monotonic() + how.patience, _FIRST
        named = tuple(sorted({*how.members, self._client.name})) if how.members else ()
        self._check_names(named, how)
        speaks: Participant | None = None
        while (codebook := self.heard()) is None:
            roster = self._who(named)
            self._check_heard(roster, how)
            speaks = speaks or self._participant()
            if self._talk.speak(speaks, roster):
                wait = _FIRST
                continue
            if time.monotonic() + wait > end:
                raise AbsentClientError(
                    f"{self._waits(roster)}. Have them join, and run the same again: it goes on, and nothing is lost. "
                    "To go on without somebody who never comes, name all others and begin anew."
                )
            self._tell(self._waits(roster), how)
            time.sleep(wait)
            wait = min(1.5 * wait, _LONGEST)
        self._board.ended(self._talk.topic)  # first: a codebook in use needs its messages
        self._client.group.take(codebook, self._client.labels())

    # --- who takes part ------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._talk.listen()
        while self._talk.successors:
            self._board.ended(self._talk.topic, self._talk.proof)  # its last message stays: it leads to the next
            self._roster = self._talk.successors
            self._talk = Negotiation(self._board, self._key, self._talk.version + 1, strict=False)
            self._talk.listen()
        self._check_masking()

    def _check_masking(self) -> None:
        """Require the group's masking settings to equal this client's: only then are codes the same for all.

        Raises:
            ConfigError: they differ.
        """
        mine, group = settings_text(self._client.config.masking), self._talk.masking
        if group and group != mine:
            pairs = zip(group.splitlines(), mine.splitlines(), strict=False)
            odd = "; ".join(f"{theirs} there, {own} here" for theirs, own in pairs if theirs != own)
            raise ConfigError(
                f"the group hides labels by other settings than client {self._client.name!r} joined with ({odd}): join "
                "in a new folder with the group's client.masking."
            )

    def _check_names(self, named: tuple[str, ...], how: Gathering) -> None:
        """Start over with the named clients if the negotiation has others and ``how.anew`` is set."""
        if how.anew and not named:
            raise ConfigError("to begin anew, name those who are to agree.")
        self._listen()
        begun = self._talk.roster or self._roster
        if how.anew and begun and set(begun) != set(named):
            self._talk.give_up(self._client.name, named)

    def _who(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Return the participants: those of the negotiation in progress, or those named for a new one."""
        begun = self._talk.roster or self._roster
        if begun and named and set(begun) != set(named):
            raise InputError(
                f"{', '.join(begun)} are to agree on labels, as the talk says that was begun; you named "
                f"{', '.join(named)}. Name the same, or nobody; or, to give that talk up, begin anew."
            )
        if not (begun or named):
            self._check_strangers()
            raise ConfigError(
                "nobody has begun to agree on labels: name all clients that are to, or come back when they have begun."
            )
        return begun or named

    def _participant(self) -> Participant:
        client = self._client
        chance = draw(client, begun=self._talk.words)
        return Participant(client.name, set(client.labels()), client.config.masking, chance)

    # --- what cannot be read -------------------------------------------------------------------------------

    def _check_heard(self, roster: Sequence[str], how: Gathering) -> None:
        for sender, place in self._talk.unread.items():
            if sender == (self._talk.speaker or roster[0]) and sender != self._client.name:
                raise CorruptError(
                    f"{unreadable(sender, place)} Compare the files of the group key; who has another one joins again "
                    "with the right one, and the talk goes on."
                )
            if sender != self._client.name:
                self._tell(f"{sender!r} said what cannot be read: passed over", how)

    def _check_strangers(self) -> None:
        """Refuse to start without names if a message could not be read: its sender may belong to the group.

        Raises:
            CorruptError: there is such a message.
        """
        if self._talk.unread:
            sender, place = next(iter(self._talk.unread.items()))
            raise CorruptError(f"{unreadable(sender, place)} If {sender!r} is none of the group, name all that are.")

    # --- waiting -------------------------------------------------------------------------------------------

    def _waits(self, roster: Sequence[str]) -> str:
        speaker = self._talk.speaker or roster[0]
        unheard = self._talk.silent if self._talk.words else roster
        silent = [name for name in unheard if name not in (speaker, self._client.name)]
        more = f" (not heard of yet: {', '.join(silent)})" if silent else ""
        return f"the agreement on labels waits for {speaker!r}{more}"

    def _tell(self, text: str, how: Gathering) -> None:
        if how.told and text not in self._told:
            self._told.add(text)
            how.told(f"{text}.")
