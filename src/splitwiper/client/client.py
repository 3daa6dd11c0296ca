"""One client: its half, its requests, and its side of the protocol (Algorithms 1 and 2, client part).

`sync` is the heart: it brings everything derived from the rows (slices without forgotten rows, checkpoints, the frozen
half, the shard on the server) up to date. It may be killed at any instant and called again.
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
from splitwiper.client.checkpoints import CheckpointRecorder, StoreShelf
from splitwiper.client.content import row_macs
from splitwiper.client.context import ClientContext
from splitwiper.client.embed import Sending, embed, embed_into, with_fitted
from splitwiper.client.hiding import label_mac
from splitwiper.client.prediction import answers, fitting, local_scores, unmasked
from splitwiper.client.row_store import Added
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
from splitwiper.masking.codebook import Codebook
from splitwiper.privacy import Spending
from splitwiper.seeding import digest
from splitwiper.splitting import ServerHalf
from splitwiper.store import files
from splitwiper.store.ledger import Head
from splitwiper.store.tensors import load_state
from splitwiper.training.loop import Pausing, finish
from splitwiper.wire import Label, Request, Scores, Shard, Ticket
from splitwiper.wire.codecs import LARGEST
from splitwiper.wire.commitments import shard_commitment

_T = TypeVar("_T")


class Client(ClientContext):
    """A client over its own folder. All its work is timed."""

    # --- learning ------------------------------------------------------------------------------------------

    def add(self, rows: Rows, *, checked: bool = False) -> Added:
        """Add rows to the store. `sync` does the rest.

        Args:
            rows: the rows to add.
            checked: whether `check` or `check_rows` has just accepted them.

        Raises:
            DataError: rows do not fit the earlier ones, the half, or the closed set of labels.
        """
        with self._timed(), self.store.database.lease("adding rows"):
            self._obey()
            if not checked:
                self.check(rows)
            self.holdings.check(rows)  # again, under the lease: another process may have added rows meanwhile
            return self.holdings.add(rows, self._key())

    def check(self, rows: Rows) -> None:
        """Refuse rows that cannot be learned from, before anything is stored.

        Raises:
            DataError: rows do not fit the earlier ones, the half, or the closed set of labels.
        """
        self.holdings.check(rows)
        check_rows(rows, client=self.name, config=self.config, half=self._half, columns=self._columns)

    def unforgotten(self, rows: Rows, codebook: Codebook) -> set[Label]:
        """Return the labels of rows, except those that the codebook lacks and whose rows were all forgotten."""
        odd = [n for n, label in enumerate(rows.labels) if label not in codebook.codes]
        if not odd:
            return set(rows.labels)
        gone, macs = self.store.suppressed(), row_macs(self.holdings.arranged(rows), self._key())
        return set(rows.labels) - {rows.labels[n] for n in odd} | {rows.labels[n] for n in odd if macs[n] not in gone}

    # --- forgetting ----------------------------------------------------------------------------------------

    def choose(
        self,
        *,
        classes: Sequence[str | int] | None = None,
        samples: Sequence[int] | None = None,
        everything: bool = False,
    ) -> Choice:
        """Select the rows that a request names. Nothing is changed.

        Raises:
            RequestError: nothing, or more than one thing, was named, or the client does not hold it.
        """
        with self._timed():
            return select(self.store, self.holdings, classes=classes, samples=samples, everything=everything)

    def forget(self, choice: Choice) -> Request:
        """Suppress rows immediately and permanently, and record the request for the server. `sync` does the rest.

        If rows were added or removed after the choice was made, it is made again: forgetting a class includes rows
        of it that another process is adding.

        Raises:
            RequestError: the client no longer holds what was named.
        """
        ticket, seconds = secrets.token_hex(16), 0.0
        while True:
            with self._timed():
                labels = self._wholly(choice.macs)
                seconds += self.take_spent().seconds
                committed = self.store.forget(
                    ticket, choice.level, choice.macs, seconds=seconds, labels=labels, seen=choice.seen
                )
                if committed is not None:
                    return Request(ticket, self.name, choice.level, committed)
                choice = choice.again()

    def _wholly(self, macs: Sequence[bytes]) -> list[bytes]:
        """Return HMACs of the labels that have no rows left once these are gone."""
        if not self.config.masking.is_on:
            return []
        gone, rows = set(macs), list(self.holdings.surviving())
        left = {label for value, label in rows if value not in gone}
        return [label_mac(self._key(), label) for label in {label for _, label in rows} - left]

    def send_requests(self) -> list[str]:
        """Submit open requests to the server; return every ticket that still waits to be answered."""
        with self._timed():
            for row in self.store.requests("open"):
                ticket = self._link.submit(Request(row["ticket"], self.name, row["level"], row["commitment"]))
                if ticket.state == "settled":  # the server held nothing, so no later upload answers this request
                    self.store.sending("", [row["ticket"]])
                self.store.mark([row["ticket"]], "sent")
            return [row["ticket"] for row in self.store.requests("sent")]

    def heed(self) -> bool:
        """Note that the server erased this client's shard on its own, or refuses new ones; True if this is new."""
        found = self._link.standing(self.name)
        if (self.store.database.meta("evicted") or "") != found.evicted:
            self.store.remember(evicted=found.evicted)
        if not found.seq:
            return False
        answered, news = [], self.store.database.meta("removal") != str(found.seq)
        if news or self.store.requests("sent"):
            answered = [ticket.id for ticket in self._link.tickets(self.name) if ticket.state != "accepted"]
        if news:
            self.store.note_removal(found.seq, found.why, answers=answered, again=found.by != "training")
        elif answered:
            self.store.sending("", answered)
        self.store.mark(answered, "done")  # later uploads answer none of these
        return news

    def trouble(self) -> str:
        """Return why the server holds no shard of this client although it has rows, and the remedy; else ''."""
        if evicted := self.store.database.meta("evicted"):
            return (
                f"an operator of the server has evicted {self.name!r} ({evicted}): its shard was erased there, and no "
                "other is accepted. Rows and folder here are in order; ask the operator to admit it again, and join."
            )
        if why := self.store.database.meta("set_aside"):
            return (
                f"the server has set aside what {self.name!r} sent ({why}): it was erased there, and the model is "
                "trained without it. The folder here is in order. Rows of unusual size are the likely cause: forget "
                "those, and the rest is sent again; or start anew with scaled inputs (standardise = true)."
            )
        return ""

    def unknown_tickets(self) -> list[Ticket]:
        """Return requests that the server has in this client's name and that its folder does not know."""
        return self.store.unknown(self._link.tickets(self.name))

    def _obey(self) -> None:
        """Carry out requests made to the server in this client's name while its folder was away.

        Over a network only this folder can make requests in its name, so no rows are erased on the server's word.

        Raises:
            CorruptError: the server knows requests that this folder does not: the folder is an older copy, and
                forgotten rows may be in it.
        """
        told = self._link.tickets(self.name)
        if lost := self.store.unheard(told):  # the server's database is an older copy: submit again
            self.store.ask_again(lost)
        unknown = self.store.unknown(told)
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
            self.store.forget(ticket.id, ticket.level, everything, seconds=0.0, labels=labels, committed=False)
            self.store.mark([ticket.id], "sent" if ticket.state == "accepted" else "done")

    # --- keeping up ----------------------------------------------------------------------------------------

    def sync(self, *, again: bool = False) -> bool:
        """Erase suppressed rows, re-train from the last checkpoint that never saw them, and upload the shard.

        Args:
            again: upload even if the server is known to have received this shard.

        Returns:
            Whether anything was sent.
        """
        return finish(self.syncing(again=again))

    def syncing(self, *, again: bool = False) -> Pausing[bool]:
        """Do `sync`'s work, with pauses in which other clients can continue."""
        with self.store.database.lease("pre-training"):
            return (yield from self._paused(self._syncing(again)))

    def _paused(self, work: Pausing[_T]) -> Pausing[_T]:
        """Run work without counting its pauses as this client's time."""
        while True:
            with self._timed():
                try:
                    next(work)
                except StopIteration as end:
                    result: _T = end.value
                    return result
            yield

    def _syncing(self, again: bool) -> Pausing[bool]:
        self.store.sweep()
        self._obey()
        if self.heed():
            again = False
        tickets = self.send_requests()  # before the suppression list is read: it then has every ticket's rows
        self.holdings.erase_suppressed()
        slices = self.holdings.slices()
        if slices and self.store.database.meta(
            "evicted"
        ):  # requests were settled when the shard was erased, or on arrival
            self.store.mark(tickets, "done")
            return False
        if not slices:
            sent = bool(tickets) or bool(self.store.database.meta("uploaded"))
            if sent:
                self._withdraw(tickets)
            self._done(tickets)
            return sent
        computed = False
        try:
            recipe = self._recipe()
            wanted = digest("shard", training.half_key(recipe, slices))
            state = yield from self._train(recipe, slices)
            if not (again or tickets or self.store.database.meta("uploaded") != wanted or self.store.is_behind()):
                return False
            outgoing, sending = self._shard(recipe, state, slices)
            computed = True
            if self.config.noise.is_on:  # before the upload: whatever may have been seen is counted
                copies, group = sending.releases
                record_upload(
                    self.store, wanted, copies=copies, group=group if self.config.noise.reading == "mean" else 1
                )
            written = files.file_digest(outgoing) if self._link.travels else None
            salt = self.store.shard_salt(wanted, tickets)
            statement = self.statement(tickets, salt=salt)
            if written is not None:
                self.store.sending(shard_commitment(bytes.fromhex(salt), written), tickets)
            # a process that lost its lease must not restore old rows; others may forget while bytes travel
            fence = self.store.database.change
            accepted = self._link.upload(self.name, outgoing, statement, digest=written, fence=fence)
        except (DataError, TrainingError, CorruptError) as problem:
            # the remaining rows cannot be trained on or sent, but the forgotten ones are withdrawn all the same; unless
            # the rows are not the reason, and trying again may work
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
        """Repeat failed work, storing nothing; a fault that does not repeat must not erase anything.

        Raises:
            BusyError: it succeeds, or fails otherwise: something else in this process interfered.
        """
        try:
            yield from self._outgoing(self._recipe(), slices, CheckpointRecorder(), self._link.largest_value())
        except (DataError, TrainingError) as again:
            if same_fault(problem, again):
                return
        raise disturbed(f"client {self.name!r}") from problem

    def _stuck(self, tickets: Sequence[str], problem: SplitWiperError) -> None:
        """Note that the server holds nothing because the remaining rows cannot be trained on."""
        self._done(tickets)
        if isinstance(problem, CorruptError):  # it may be repaired: try again
            self.store.remember(unsent="rows")
        else:
            self.store.remember(untrainable=str(problem))

    def _withdraw(self, tickets: Sequence[str]) -> None:
        if self._link.travels:
            self.store.sending("", tickets)
        statement = self.statement(tickets, coded=False)
        self._link.withdraw(self.name, statement, fence=self.store.database.change)

    def _train(self, recipe: training.PretrainingInputs, slices: Mapping[int, Shard]) -> Pausing[dict[str, Tensor]]:
        """Return the frozen half: the stored one if it was computed from exactly these rows, else a new one."""
        key = training.half_key(recipe, slices)
        half = self.store.half()
        if half is not None and half[0].key == key:
            with suppress(CorruptError):  # a damaged half is computed again
                return load_state(self.store.root / "half" / half[0].file, half[0].digest)
        state = yield from self._frozen(recipe, slices, StoreShelf(self.store))
        self.store.put_half(key, state, recipe.fingerprint())
        return state

    def _frozen(
        self, recipe: training.PretrainingInputs, slices: Mapping[int, Shard], shelf: training.Shelf
    ) -> Pausing[dict[str, Tensor]]:
        """Compute the half's frozen state, starting from the last usable checkpoint on the shelf."""
        state = yield from training.pretrain(recipe, slices, shelf=shelf, on_stage=self._progress)
        return with_fitted(recipe, state, list(slices.values()), columns=self._columns, on_batch=self._progress)

    def _shard(
        self, recipe: training.PretrainingInputs, state: Mapping[str, Tensor], slices: Mapping[int, Shard]
    ) -> tuple[Path, Sending]:
        """Embed every surviving row into a shard file in the outbox."""
        path = self.store.root / "outbox" / files.random_name("shard")
        rows, largest = list(slices.values()), self._link.largest_value()
        sending = embed(path, recipe, state, rows, columns=self._columns, on_batch=self._progress, largest=largest)
        return path, sending

    def _done(self, tickets: Sequence[str], *, uploaded: str = "", accepted: str = "", accepted_salt: str = "") -> None:
        """Record what the server holds now, and erase the names of what it held before."""
        self.store.mark(tickets, "done")
        half = self.store.half()
        gone = {} if uploaded else {"shard_salt": ""}  # the salt would confirm a guess at the erased shard's rows
        self.store.remember(
            uploaded=uploaded,
            accepted=accepted,
            accepted_salt=accepted_salt,
            unsent="",
            set_aside="",
            **gone,
            **without_names(self.store, shard=uploaded, half=half[0].key if half else ""),
        )

    def reupload(self) -> None:
        """Upload the shard again, whatever the server answered before."""
        self.sync(again=True)

    def recompute(self) -> tuple[dict[str, Tensor], str]:
        """Compute the half's state and the shard's digest from only the surviving rows and the context."""
        with self.store.database.lease("verifying"):
            recipe, slices = self._recipe(), self.holdings.slices()
            self.holdings.audit(recipe.key)
            shelf = CheckpointRecorder()
            found = finish(self._outgoing(recipe, slices, shelf, LARGEST))
            kept = self.store.checkpoints()
            if shelf.digests != {n: record.digest for n, record in kept.items()}:
                raise CorruptError(f"the checkpoints of client {self.name!r} are not those its rows lead to.")
            for record in kept.values():
                load_state(self.store.root / "checkpoints" / record.file, record.digest)
            return found

    def _outgoing(
        self, recipe: training.PretrainingInputs, slices: Mapping[int, Shard], shelf: training.Shelf, largest: float
    ) -> Pausing[tuple[dict[str, Tensor], str]]:
        """Compute the half's state and the shard's digest without storing anything."""
        state = yield from self._frozen(recipe, slices, shelf)
        # not in the store, which may be on a read-only disk; and in an unnamed file, so that nothing of these rows
        # remains if this process is killed
        with files.step("write", Path(gettempdir())), TemporaryFile(prefix="splitwiper-") as file:
            rows, told = list(slices.values()), self._progress
            embed_into(file, recipe, state, rows, columns=self._columns, on_batch=told, largest=largest)
            return state, files.digest_of(file)

    def pin(self, head: Head) -> None:
        """Remember a ledger head of the server: later ledgers must extend it."""
        self.store.remember(head=f"{head}")

    def pinned(self) -> Head | None:
        """Return the ledger head that this client remembers."""
        kept = self.store.database.meta("head")
        return Head.parse(kept) if kept else None

    def sent(self) -> Sending:
        """Return the contents of its shard, to judge attacks on it; the result is never sent.

        Raises:
            NotFoundError: it has no shard.
        """
        half = self.store.half()
        if half is None or self.store.is_behind():
            raise NotFoundError(f"client {self.name!r} has no rows, or unfinished work: call learn or settle.")
        state = load_state(self.store.root / "half" / half[0].file, half[0].digest)
        return Sending(self._recipe(), state, list(self.holdings.slices().values()))

    # --- prediction ----------------------------------------------------------------------------------------

    def scores(self, inputs: Any, *, local: ServerHalf | None = None) -> Scores:
        """Compute the whole network's outputs: this client's half here, the server's half on the server.

        Args:
            inputs: the inputs to predict on.
            local: the server half's architecture: if given, the weights are downloaded, and nothing is sent.
        """
        half = self.store.half()
        if half is None or self.unknown_tickets():
            raise NotFoundError(
                f"client {self.name!r} has no trained half: it holds no rows, was forgotten while its folder was away, "
                "or its work was interrupted. Call learn or settle."
            )
        named = fitting(inputs, f"client {self.name!r}", self.holdings)
        path, remedy = self.store.root / "half" / half[0].file, f"`reupload({self.name!r})` computes it again"
        state, recipe = load_state(path, half[0].digest, remedy=remedy), self._recipe()
        if local is not None:
            told = local_scores(recipe, state, named, local, self._link.model(self.name))
        else:
            group = self._typical() if self.config.noise.reading == "mean" else 1
            if self.config.noise.is_on:
                record_prediction(self.store, half[0].key, group=group)
            ask = partial(self._link.predict, self.name)
            told = answers(recipe, state, named, self._columns, ask, group=group)
        return told if recipe.hiding is None else unmasked(told, named, recipe.hiding, without=self._forgotten())

    def probe(self, ask: Callable[[Mapping[str, Tensor]], Scores], *, most: int) -> int:
        """Predict a few of the client's own surviving rows, as `scores` does, to test the server half.

        Args:
            ask: sends activations to the server half.
            most: the largest number of rows, drawn at random.

        Returns:
            The number of rows predicted.

        Raises:
            NotFoundError: no rows are left, or there is no trained half.
        """
        half, slices = self.store.half(), self.holdings.slices()
        if half is None or not slices:
            raise NotFoundError(f"no rows of client {self.name!r} are left to predict.")
        part = secrets.choice(list(slices.values()))
        rows = sorted(secrets.SystemRandom().sample(range(part.rows), min(most, part.rows)))
        recipe = self._recipe()
        named = {name: np.asarray(part.columns[name])[rows] for name in recipe.names}
        answers(recipe, load_state(self.store.root / "half" / half[0].file, half[0].digest), named, self._columns, ask)
        return len(rows)

    def _typical(self) -> int:
        """Return the average number of rows per label that the client holds."""
        rows = [label for _, label in self.holdings.surviving()]
        return max(1, len(rows) // max(1, len(set(rows))))

    def privacy(self) -> Spending:
        """Return what its noise has spent so far, of each row and of each value."""
        return spent(self.store, self.config.noise, self._columns)

    def _forgotten(self) -> set[Label]:
        """Return labels of the codebook that the client has forgotten and holds no rows of."""
        key, gone = self._key(), self.store.forgotten()
        held = {label for _, label in self.holdings.surviving()} if gone else set()
        return (
            {x for x in self.group.codebook().labels if label_mac(key, x) in gone and x not in held} if gone else set()
        )
