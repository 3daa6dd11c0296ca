"""One client: its half, its requests, and its side of the protocol (Algorithms 1 and 2, client part).

`sync` is the heart: it brings everything that follows from the rows (slices without what was forgotten, checkpoints,
the frozen half, the shard on the server) up to date. It may be killed at any instant and called again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from splitwiper.certainty import disturbed, same_fault
from splitwiper.client import pretrain as training
from splitwiper.client.checking import check_rows
from splitwiper.client.checkpoints import Recorder, TreeShelf
from splitwiper.client.content import row_macs
from splitwiper.client.context import ClientContext
from splitwiper.client.embed import Sending, embed, embed_into, with_ranges
from splitwiper.client.hiding import label_mac
from splitwiper.client.holdings import Added
from splitwiper.client.prediction import answers, answers_at_home, fitting, unmasked
from splitwiper.client.selection import Choice, select
from splitwiper.client.spending import record_prediction, record_upload, spent, without_names
from splitwiper.data.rows import Rows
from splitwiper.errors import (
    CorruptError,
    DataError,
    NotFoundError,
    ResourceError,
    SplitWiperError,
    TrainingError,
)
from splitwiper.formats import counted
from splitwiper.loop import Pausing, finish
from splitwiper.masking.codebook import Codebook
from splitwiper.privacy import Spending
from splitwiper.seeding import digest
from splitwiper.splitting import ServerHalf
from splitwiper.store import files
from splitwiper.store.ledger import Head
from splitwiper.store.tensors import load_state
from splitwiper.wire import Label, Request, Scores, Shard, Ticket
from splitwiper.wire.codecs import LARGEST
from splitwiper.wire.commitments import shard_commitment

_T = TypeVar("_T")


class Client(ClientContext):
    """A client over its own folder. Everything it does is timed."""

    # --- learning ------------------------------------------------------------------------------------------

    def add(self, rows: Rows, *, checked: bool = False) -> Added:
        """Take rows in. `sync` does the rest.

        Args:
            rows: what to take in.
            checked: whether `check` or `check_rows` has just passed them.

        Raises:
            DataError: rows that do not fit the earlier ones, the half, or the closed set of labels.
        """
        with self._timed(), self.tree.book.lease("adding rows"):
            self._obey()
            if not checked:
                self.check(rows)
            self.holdings.check(rows)  # under the lease: another process may have added others meanwhile
            return self.holdings.add(rows, self._key())

    def check(self, rows: Rows) -> None:
        """Refuse rows that cannot be learned from, before anything is kept.

        Raises:
            DataError: rows that do not fit the earlier ones, the half, or the closed set of labels.
        """
        self.holdings.check(rows)
        check_rows(rows, client=self.name, config=self.config, half=self._half, columns=self._columns)

    def unforgotten(self, rows: Rows, book: Codebook) -> set[Label]:
        """The labels of rows, but those the codebook lacks and whose rows were all forgotten: they will be refused."""
        odd = [n for n, label in enumerate(rows.labels) if label not in book.codes]
        if not odd:
            return set(rows.labels)
        gone, macs = self.tree.suppressed(), row_macs(self.holdings.arranged(rows), self._key())
        return set(rows.labels) - {rows.labels[n] for n in odd} | {rows.labels[n] for n in odd if macs[n] not in gone}

    # --- forgetting ----------------------------------------------------------------------------------------

    def choose(
        self,
        *,
        classes: Sequence[str | int] | None = None,
        samples: Sequence[int] | None = None,
        everything: bool = False,
    ) -> Choice:
        """Which rows a request means. Nothing is changed.

        Raises:
            RequestError: nothing, or more than one thing, was named, or what was named is not held.
        """
        with self._timed():
            return select(self.tree, self.holdings, classes=classes, samples=samples, everything=everything)

    def forget(self, choice: Choice) -> Request:
        """Suppress rows at once and for ever, and make the request that tells the server. `sync` does the rest.

        Rows that came or went since they were chosen are chosen from again: a class that is forgotten is forgotten
        with the rows that another process is adding to it.

        Raises:
            RequestError: what was named is not held any more.
        """
        ticket, seconds = secrets.token_hex(16), 0.0
        while True:
            with self._timed():
                labels = self._wholly(choice.macs)
                seconds += self.take_spent().seconds
                committed = self.tree.forget(
                    ticket, choice.level, choice.macs, seconds=seconds, labels=labels, seen=choice.seen
                )
                if committed is not None:
                    return Request(ticket, self.name, choice.level, committed)
                choice = choice.again()

    def _wholly(self, macs: Sequence[bytes]) -> list[bytes]:
        """HMACs of labels that no row is left of once these are gone."""
        if not self.config.masking.is_on:
            return []
        gone, rows = set(macs), list(self.holdings.surviving())
        left = {label for value, label in rows if value not in gone}
        return [label_mac(self._key(), label) for label in {label for _, label in rows} - left]

    def send_requests(self) -> list[str]:
        """Hand open requests to the server; returns every ticket that still waits to be answered."""
        with self._timed():
            for row in self.tree.requests("open"):
                ticket = self._link.submit(Request(row["ticket"], self.name, row["level"], row["commitment"]))
                if ticket.state == "settled":  # the server held nothing: what is sent from here on is no answer to it
                    self.tree.sending("", [row["ticket"]])
                self.tree.mark([row["ticket"]], "sent")
            return [row["ticket"] for row in self.tree.requests("sent")]

    def heed(self) -> bool:
        """Note where the server erased this client's shard without its doing, or accepts none; True if it is news."""
        found = self._link.standing(self.name)
        if (self.tree.book.meta("evicted") or "") != found.evicted:
            self.tree.remember(evicted=found.evicted)
        if not found.seq:
            return False
        answered, news = [], self.tree.book.meta("removal") != str(found.seq)
        if news or self.tree.requests("sent"):
            answered = [ticket.id for ticket in self._link.tickets(self.name) if ticket.state != "accepted"]
        if news:
            self.tree.note_removal(found.seq, found.why, answers=answered, again=found.by != "training")
        elif answered:
            self.tree.sending("", answered)
        self.tree.mark(answered, "done")  # what is sent from here on answers nothing that is answered
        return news

    def trouble(self) -> str:
        """Why the server holds no shard of this client though it has rows, and the remedy; empty where it does."""
        if evicted := self.tree.book.meta("evicted"):
            return (
                f"an operator of the server has evicted {self.name!r} ({evicted}): its shard was erased there, and no "
                "other is accepted. Rows and folder here are in order; ask the operator to admit it again, and join."
            )
        if why := self.tree.book.meta("set_aside"):
            return (
                f"the server has set aside what {self.name!r} sent ({why}): it was erased there, and the model is "
                "trained without it. The folder here is in order. Rows of unusual size are the likely cause: forget "
                "those, and the rest is sent again; or start anew with scaled inputs (standardise = true)."
            )
        return ""

    def unknown_tickets(self) -> list[Ticket]:
        """Requests the server has in this client's name that its folder knows nothing of."""
        return self.tree.unknown(self._link.tickets(self.name))

    def _obey(self) -> None:
        """Carry out what was asked of the server in this client's name while its folder was away.

        Over a network nobody but this folder can ask in its name, so no rows are erased on a server's word.

        Raises:
            CorruptError: the server knows of requests this folder does not: it is an older copy, and rows that were
                forgotten may be in it.
        """
        told = self._link.tickets(self.name)
        if lost := self.tree.unheard(told):  # the server is an older copy: ask again
            self.tree.ask_again(lost)
        unknown = self.tree.unknown(told)
        many = counted(len(unknown), "request")
        if unknown and self._link.travels and any(True for _ in self.holdings.surviving()):
            raise CorruptError(
                f"the server has {many} of client {self.name!r} that its folder does not know, the last with ticket "
                f"{unknown[-1].id[:40]!r}. If this folder is an older copy, forgotten rows may be in it: restore a "
                "newer copy. If it is not, the server made them up: nothing is sent to it or erased here."
            )
        if unknown and unknown[-1].level != "client":
            raise CorruptError(
                f"the folder of client {self.name!r} is older than what the server knows, which has {many} to forget "
                "that the folder lacks, so forgotten rows may be in it. Restore a newer copy. Only if there is none: "
                "move the folder away, forget the whole client (everything=True), and learn again rows that may stay."
            )
        for ticket in unknown:
            everything = [value for value, _ in self.holdings.surviving()]
            labels = self._wholly(everything)
            self.tree.forget(ticket.id, ticket.level, everything, seconds=0.0, labels=labels, committed=False)
            self.tree.mark([ticket.id], "sent" if ticket.state == "accepted" else "done")

    # --- keeping up ----------------------------------------------------------------------------------------

    def sync(self, *, again: bool = False) -> bool:
        """Erase what is suppressed, re-train from the last checkpoint that never saw it, hand the shard over.

        Args:
            again: hand it over even if the server is known to have had it.

        Returns:
            Whether anything was sent.
        """
        return finish(self.syncing(again=again))

    def syncing(self, *, again: bool = False) -> Pausing[bool]:
        """`sync`, with pauses in which other clients can go on."""
        with self.tree.book.lease("pre-training"):
            return (yield from self._paused(self._syncing(again)))

    def _paused(self, work: Pausing[_T]) -> Pausing[_T]:
        """Work whose pauses are not this client's time."""
        while True:
            with self._timed():
                try:
                    next(work)
                except StopIteration as end:
                    result: _T = end.value
                    return result
            yield

    def _syncing(self, again: bool) -> Pausing[bool]:
        self.tree.sweep()
        self._obey()
        if self.heed():
            again = False
        tickets = self.send_requests()  # before the suppression list is read: a ticket's rows are on it
        self.holdings.erase_suppressed()
        slices = self.holdings.slices()
        if slices and self.tree.book.meta("evicted"):  # requests were settled when the shard was erased, or at once
            self.tree.mark(tickets, "done")
            return False
        if not slices:
            sent = bool(tickets) or bool(self.tree.book.meta("uploaded"))
            if sent:
                self._withdraw(tickets)
            self._done(tickets)
            return sent
        computed = False
        try:
            recipe = self._recipe()
            wanted = digest("shard", training.half_key(recipe, slices))
            state = yield from self._train(recipe, slices)
            if not (again or tickets or self.tree.book.meta("uploaded") != wanted or self.tree.is_behind()):
                return False
            outgoing, sending = self._shard(recipe, state, slices)
            computed = True
            if self.config.noise.is_on:  # before it goes out: what may have been seen is counted
                copies, group = sending.releases
                record_upload(
                    self.tree, wanted, copies=copies, group=group if self.config.noise.reading == "mean" else 1
                )
            written = files.file_digest(outgoing) if self._link.travels else None
            salt = self.tree.shard_salt(wanted, tickets)
            statement = self.statement(tickets, salt=salt)
            if written is not None:
                self.tree.sending(shard_commitment(bytes.fromhex(salt), written), tickets)
            # a process that lost its lease must not bring old rows back; others may forget while bytes travel
            fence = self.tree.book.change
            accepted = self._link.upload(self.name, outgoing, statement, digest=written, fence=fence)
        except (DataError, TrainingError, CorruptError) as problem:
            # what is left cannot be trained on or sent, but what is to be forgotten goes all the same; unless the rows
            # are not the reason, and trying again may work
            if tickets and not (isinstance(problem, ResourceError) or problem is self._of_callback):
                if not (computed or isinstance(problem, CorruptError)):
                    yield from self._repeating(problem, slices)
                self._withdraw(tickets)
                self._stuck(tickets, problem)
            raise
        files.erase(outgoing)
        self._done(tickets, uploaded=wanted, accepted=written or accepted.digest, accepted_salt=salt)
        return True

    def _repeating(self, problem: SplitWiperError, slices: Mapping[int, Shard]) -> Pausing[None]:
        """Compute again what failed, keeping nothing; nothing is to be erased for a fault that does not repeat.

        Raises:
            BusyError: it succeeds, or fails otherwise: something else in this program had a part in it.
        """
        try:
            yield from self._outgoing(self._recipe(), slices, Recorder(), self._link.largest_value())
        except (DataError, TrainingError) as again:
            if same_fault(problem, again):
                return
        raise disturbed(f"client {self.name!r}") from problem

    def _stuck(self, tickets: Sequence[str], problem: SplitWiperError) -> None:
        """Note that the server holds nothing because the rows that are left cannot be trained on."""
        self._done(tickets)
        if isinstance(problem, CorruptError):  # it may be mended: try again
            self.tree.remember(unsent="rows")
        else:
            self.tree.remember(untrainable=str(problem))

    def _withdraw(self, tickets: Sequence[str]) -> None:
        if self._link.travels:
            self.tree.sending("", tickets)
        statement = self.statement(tickets, coded=False)
        self._link.withdraw(self.name, statement, fence=self.tree.book.change)

    def _train(self, recipe: training.Recipe, slices: Mapping[int, Shard]) -> Pausing[dict[str, Tensor]]:
        """The frozen half: the one at hand if it was computed from exactly these rows, else a new one."""
        key = training.half_key(recipe, slices)
        half = self.tree.half()
        if half is not None and half[0].key == key:
            with suppress(CorruptError):  # what is damaged is computed again
                return load_state(self.tree.root / "half" / half[0].file, half[0].digest)
        state = yield from self._frozen(recipe, slices, TreeShelf(self.tree))
        self.tree.put_half(key, state, recipe.fingerprint())
        return state

    def _frozen(
        self, recipe: training.Recipe, slices: Mapping[int, Shard], shelf: training.Shelf
    ) -> Pausing[dict[str, Tensor]]:
        """The half's frozen state, computed anew as far as the shelf has nothing."""
        state = yield from training.pretrain(recipe, slices, shelf=shelf, on_stage=self._progress)
        return with_ranges(recipe, state, list(slices.values()), columns=self._columns, on_batch=self._progress)

    def _shard(
        self, recipe: training.Recipe, state: Mapping[str, Tensor], slices: Mapping[int, Shard]
    ) -> tuple[Path, Sending]:
        """Embed every surviving row into a shard file in the outbox."""
        path = self.tree.root / "outbox" / files.random_name("shard")
        rows, largest = list(slices.values()), self._link.largest_value()
        sending = embed(path, recipe, state, rows, columns=self._columns, on_batch=self._progress, largest=largest)
        return path, sending

    def _done(self, tickets: Sequence[str], *, uploaded: str = "", accepted: str = "", accepted_salt: str = "") -> None:
        """Note what the server holds now, and erase the names of what it held before."""
        self.tree.mark(tickets, "done")
        half = self.tree.half()
        gone = {} if uploaded else {"shard_salt": ""}  # with it, who guesses the rows could tell the erased shard's
        self.tree.remember(
            uploaded=uploaded,
            accepted=accepted,
            accepted_salt=accepted_salt,
            unsent="",
            set_aside="",
            **gone,
            **without_names(self.tree, shard=uploaded, half=half[0].key if half else ""),
        )

    def reupload(self) -> None:
        """Send the shard again, whatever the server said before."""
        self.sync(again=True)

    def recompute(self) -> tuple[dict[str, Tensor], str]:
        """The half's state and the shard's digest, from the surviving rows and the context alone."""
        with self.tree.book.lease("verifying"):
            recipe, slices = self._recipe(), self.holdings.slices()
            self.holdings.audit(recipe.key)
            shelf = Recorder()
            found = finish(self._outgoing(recipe, slices, shelf, LARGEST))
            kept = self.tree.checkpoints()
            if shelf.digests != {n: record.digest for n, record in kept.items()}:
                raise CorruptError(f"the checkpoints of client {self.name!r} are not those its rows lead to.")
            for record in kept.values():
                load_state(self.tree.root / "checkpoints" / record.file, record.digest)
            return found

    def _outgoing(
        self, recipe: training.Recipe, slices: Mapping[int, Shard], shelf: training.Shelf, largest: float
    ) -> Pausing[tuple[dict[str, Tensor], str]]:
        """The half's state and the shard's digest; nothing is kept."""
        state = yield from self._frozen(recipe, slices, shelf)
        # not in the tree, which may be on a read-only disk; and without a name, so that nothing of these rows is left
        # behind where this process is killed
        with files.step("write", Path(gettempdir())), TemporaryFile(prefix="splitwiper-") as file:
            rows, told = list(slices.values()), self._progress
            embed_into(file, recipe, state, rows, columns=self._columns, on_batch=told, largest=largest)
            return state, files.digest_of(file)

    def pin(self, head: Head) -> None:
        """Remember how far the server's ledger had come: it may only grow from there."""
        self.tree.remember(head=f"{head}")

    def pinned(self) -> Head | None:
        """The ledger's head that this client remembers."""
        kept = self.tree.book.meta("head")
        return Head.parse(kept) if kept else None

    def sent(self) -> Sending:
        """What its shard is made of: for judging attacks on it; it is never sent.

        Raises:
            NotFoundError: it has no shard.
        """
        half = self.tree.half()
        if half is None or self.tree.is_behind():
            raise NotFoundError(f"client {self.name!r} has no rows, or unfinished work: call learn or settle.")
        state = load_state(self.tree.root / "half" / half[0].file, half[0].digest)
        return Sending(self._recipe(), state, list(self.holdings.slices().values()))

    # --- prediction ----------------------------------------------------------------------------------------

    def scores(self, inputs: Any, *, at_home: ServerHalf | None = None) -> Scores:
        """The whole network's outputs: this client's half here, the server's half there.

        Args:
            inputs: what to predict on.
            at_home: the server half's architecture: its weights are fetched, and nothing is sent.
        """
        half = self.tree.half()
        if half is None or self.unknown_tickets():
            raise NotFoundError(
                f"client {self.name!r} has no trained half: it holds no rows, was forgotten while its folder was away, "
                "or its work was interrupted. Call learn or settle."
            )
        named = fitting(inputs, f"client {self.name!r}", self.holdings)
        path, remedy = self.tree.root / "half" / half[0].file, f"`reupload({self.name!r})` computes it again"
        state, recipe = load_state(path, half[0].digest, remedy=remedy), self._recipe()
        if at_home is not None:
            told = answers_at_home(recipe, state, named, at_home, self._link.model(self.name))
        else:
            group = self._typical() if self.config.noise.reading == "mean" else 1
            if self.config.noise.is_on:
                record_prediction(self.tree, half[0].key, group=group)
            ask = partial(self._link.predict, self.name)
            told = answers(recipe, state, named, self._columns, ask, group=group)
        return told if recipe.hiding is None else unmasked(told, named, recipe.hiding, without=self._forgotten())

    def probe(self, ask: Callable[[Mapping[str, Tensor]], Scores], *, most: int) -> int:
        """Predict a few of the client's own surviving rows, as `scores` does, to see what answers.

        Args:
            ask: sends activations to the server half.
            most: rows at most, drawn at random.

        Returns:
            How many there were.

        Raises:
            NotFoundError: no rows are left, or there is no trained half.
        """
        half, slices = self.tree.half(), self.holdings.slices()
        if half is None or not slices:
            raise NotFoundError(f"no rows of client {self.name!r} are left to predict.")
        part = secrets.choice(list(slices.values()))
        rows = sorted(secrets.SystemRandom().sample(range(part.rows), min(most, part.rows)))
        recipe = self._recipe()
        named = {name: np.asarray(part.columns[name])[rows] for name in recipe.names}
        answers(recipe, load_state(self.tree.root / "half" / half[0].file, half[0].digest), named, self._columns, ask)
        return len(rows)

    def _typical(self) -> int:
        """Rows of a label, on average over those it holds."""
        rows = [label for _, label in self.holdings.surviving()]
        return max(1, len(rows) // max(1, len(set(rows))))

    def privacy(self) -> Spending:
        """What its noise has spent so far, of each row and of each value."""
        return spent(self.tree, self.config.noise, self._columns)

    def _forgotten(self) -> set[Label]:
        """Labels of the codebook that the client has forgotten and holds no rows of."""
        key, gone = self._key(), self.tree.forgotten()
        held = {label for _, label in self.holdings.surviving()} if gone else set()
        return (
            {x for x in self.group.codebook().labels if label_mac(key, x) in gone and x not in held} if gone else set()
        )
