"""Algorithms 1 and 2, client part: what follows from a client's rows and requests is brought up to date.

`sync` erases forgotten rows from the slices, trains the half from the last checkpoint that never saw them, embeds the
rows, and has the server replace the shard. It may be killed at any instant and called again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

from torch import Tensor

from splitwiper.certainty import disturbed, same_fault
from splitwiper.client import pretrain
from splitwiper.client.checkpoints import CheckpointRecorder, StoredCheckpoints
from splitwiper.client.context import ClientContext
from splitwiper.client.embed import Sending, embed, fit
from splitwiper.client.hiding import label_mac
from splitwiper.client.spending import record_upload, without_names
from splitwiper.errors import CorruptError, DataError, ResourceError, SplitWiperError, TrainingError
from splitwiper.formats import counted
from splitwiper.seeding import digest
from splitwiper.store import files
from splitwiper.store.tensors import load_state
from splitwiper.training.loop import Pausing, finish
from splitwiper.wire import Label, Request, Shard
from splitwiper.wire.codecs import LARGEST
from splitwiper.wire.commitments import shard_commitment


class Syncing(ClientContext):
    """A client that keeps its half and its shard up to date with its rows."""

    # --- the server's records ------------------------------------------------------------------------------

    def _obey(self) -> None:
        """Carry out requests made to the server in this client's name while its folder was away.

        Between parties only this folder can make requests in its name, so no rows are erased on the server's word.

        Raises:
            CorruptError: the server knows requests that this folder does not: the folder is an older copy, and
                forgotten rows may be in it.
        """
        tickets = self._link.tickets(self.name)
        if lost := self.store.unheard(tickets):  # the server's database is an older copy: submit again
            self.store.ask_again(lost)
        unknown = self.store.unknown(tickets)
        many = counted(len(unknown), "request")
        if unknown and not self._one_party and next(self.holdings.surviving(), None):
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
            self.store.set_state([ticket.id], "sent" if ticket.state == "accepted" else "done")

    def _wholly(self, macs: Sequence[bytes]) -> list[bytes]:
        """Return HMACs of the labels that have no rows left once these are gone."""
        if not self.config.masking.is_on:
            return []
        gone, leaving, left = set(macs), set[Label](), set[Label]()
        for value, label in self.holdings.surviving():
            (leaving if value in gone else left).add(label)
        return [label_mac(self._key(), label) for label in leaving - left]

    def send_requests(self) -> list[str]:
        """Submit open requests to the server; return every ticket that still waits to be answered."""
        with self.timed():
            for row in self.store.requests("open"):
                ticket = self._link.submit(Request(row["ticket"], self.name, row["level"], row["commitment"]))
                if ticket.state == "settled":  # the server held nothing, so no later upload answers this request
                    self.store.sending("", [row["ticket"]])
                self.store.set_state([row["ticket"]], "sent")
            return [row["ticket"] for row in self.store.requests("sent")]

    def heed(self) -> bool:
        """Note that the server erased this client's shard on its own, or refuses new ones; True if this is new."""
        standing = self._link.standing(self.name)
        if (self.store.database.meta("evicted") or "") != standing.evicted:
            self.store.remember(evicted=standing.evicted)
        if not standing.seq:
            return False
        answered, news = [], self.store.database.meta("removal") != str(standing.seq)
        if news or self.store.requests("sent"):
            answered = [ticket.id for ticket in self._link.tickets(self.name) if ticket.state != "accepted"]
        if news:
            self.store.note_removal(standing.seq, standing.why, answers=answered, again=standing.by != "training")
        elif answered:
            self.store.sending("", answered)
        self.store.set_state(answered, "done")  # later uploads answer none of these
        return news

    # --- keeping up ----------------------------------------------------------------------------------------

    def sync(self, *, again: bool = False) -> bool:
        """Erase suppressed rows, re-train from the last checkpoint that never saw them, and upload the shard.

        Return whether anything was sent. With ``again``, the shard is, even if the server is known to have it.
        """
        with self.timed():
            return finish(self.syncing(again=again))

    def syncing(self, *, again: bool = False) -> Pausing[bool]:
        """Do `sync`'s work, with pauses in which other clients can continue. The caller times it (`timed`)."""
        with self.store.database.lease("pre-training"):
            self.store.sweep()
            self._obey()
            if self.heed():
                again = False
            tickets = self.send_requests()  # before the suppression list is read: it then has every ticket's rows
            self.holdings.erase_suppressed()
            slices = self.holdings.slices()
            if slices and self.store.database.meta("evicted"):
                self.store.set_state(tickets, "done")  # they were settled when the shard was erased, or on arrival
                return False
            if not slices:
                sent = bool(tickets) or bool(self.store.database.meta("uploaded"))
                if sent:
                    self._withdraw(tickets)
                self._done(tickets)
                return sent
            outgoing = self.store.root / "outbox" / files.random_name("shard")
            try:
                half_inputs = self._half_inputs()
                key = pretrain.half_key(half_inputs, slices)
                wanted, state = digest("shard", key), self._stored_half(key)
                if state is None:
                    checkpoints = StoredCheckpoints(self.store)
                    frozen = yield from pretrain.pretrain(
                        half_inputs, slices, checkpoints=checkpoints, on_stage=self._progress
                    )
                    sending = Sending(half_inputs, frozen, list(slices.values()))
                    fit(sending, columns=self._columns, on_batch=self._progress)
                    self.store.put_half(key, sending.state, half_inputs.fingerprint())
                if not (again or tickets or self.store.database.meta("uploaded") != wanted or self.store.is_behind()):
                    return False
                if state is not None:
                    sending = Sending(half_inputs, state, list(slices.values()))
                largest = self._link.largest_value()
                with files.atomic_file(outgoing) as file:
                    embed(file, sending, columns=self._columns, on_batch=self._progress, largest=largest)
                self._upload(outgoing, wanted, tickets, sending)
            except (DataError, TrainingError, CorruptError) as problem:
                yield from self._give_up(problem, tickets, slices, computed=outgoing.exists())
                raise
            files.erase(outgoing)
            return True

    def _stored_half(self, key: str) -> dict[str, Tensor] | None:
        """Return the stored half if its key is this one and it is intact."""
        half = self.store.half()
        if half is not None and half[0].key == key:
            with suppress(CorruptError):  # a damaged half is computed again
                return load_state(self.store.root / "half" / half[0].file, half[0].digest)
        return None

    def _upload(self, shard: Path, wanted: str, tickets: Sequence[str], sending: Sending) -> None:
        """Have the server replace the shard; whatever may have been seen is recorded before it is sent."""
        if self.config.noise.is_on:
            copies, group = sending.releases
            record_upload(self.store, wanted, copies=copies, group=group)
        written, salt = files.file_digest(shard), self.store.shard_salt(wanted, tickets)
        statement = self.statement(tickets, salt=salt)
        self.store.sending(shard_commitment(bytes.fromhex(salt), written), tickets)
        # a process that lost its lease must not restore old rows; others may forget while bytes travel
        self._link.upload(self.name, shard, statement, digest=written, fence=self.store.database.change)
        self._done(tickets, uploaded=wanted, accepted=written, accepted_salt=salt)

    def _withdraw(self, tickets: Sequence[str]) -> None:
        self.store.sending("", tickets)
        statement = self.statement(tickets, coded=False)
        self._link.withdraw(self.name, statement, fence=self.store.database.change)

    def _done(self, tickets: Sequence[str], *, uploaded: str = "", accepted: str = "", accepted_salt: str = "") -> None:
        """Record what the server holds now, and erase the names of what it held before."""
        self.store.set_state(tickets, "done")
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

    # --- when the remaining rows cannot be trained on ------------------------------------------------------

    def _give_up(
        self, problem: SplitWiperError, tickets: Sequence[str], slices: Mapping[int, Shard], *, computed: bool
    ) -> Pausing[None]:
        """Withdraw the forgotten rows although the remaining ones cannot be trained on or sent.

        Not if the rows are not the reason, and trying again may work.
        """
        if not tickets or isinstance(problem, ResourceError) or problem is self._of_callback:
            return
        if not (computed or isinstance(problem, CorruptError)):
            yield from self._repeating(problem, slices)
        self._withdraw(tickets)
        self._done(tickets)
        if isinstance(problem, CorruptError):  # it may be repaired: try again
            self.store.remember(unsent="rows")
        else:
            self.store.remember(untrainable=str(problem))

    def _repeating(self, problem: SplitWiperError, slices: Mapping[int, Shard]) -> Pausing[None]:
        """Repeat failed work, storing nothing; a fault that does not repeat must not erase anything.

        Raises:
            BusyError: it succeeds, or fails otherwise: something else in this process interfered.
        """
        try:
            yield from self._outgoing(self._half_inputs(), slices, CheckpointRecorder(), self._link.largest_value())
        except (DataError, TrainingError) as again:
            if same_fault(problem, again):
                return
        raise disturbed(f"client {self.name!r}") from problem

    def trouble(self) -> str:
        """Return why the server holds no shard of this client although it has rows, and the remedy; else ''."""
        if evicted := self.store.database.meta("evicted"):
            return (
                f"an operator of the server has evicted {self.name!r} ({evicted}): its shard was erased there, and no "
                "other is accepted. The rows and the folder here are intact. Ask the operator to admit the client "
                "again, then join."
            )
        if why := self.store.database.meta("set_aside"):
            return (
                f"the server has set aside what {self.name!r} sent ({why}): it was erased there, and the model is "
                "trained without it. The folder here is intact. Rows with unusually large values are the likely "
                "cause: forget those, and the rest is sent again; or start anew with scaled inputs (standardise = "
                "true)."
            )
        return ""

    # --- computing again -----------------------------------------------------------------------------------

    def recompute(self) -> tuple[dict[str, Tensor], str]:
        """Compute the half's state and the shard's digest from only the surviving rows and the context."""
        with self.store.database.lease("verifying"):
            half_inputs, slices = self._half_inputs(), self.holdings.slices()
            self.holdings.audit(half_inputs.key)
            checkpoints = CheckpointRecorder()
            state, shard = finish(self._outgoing(half_inputs, slices, checkpoints, LARGEST))
            kept = self.store.checkpoints()
            if checkpoints.digests != {number: record.digest for number, record in kept.items()}:
                raise CorruptError(f"the checkpoints of client {self.name!r} are not those its rows lead to.")
            for record in kept.values():
                load_state(self.store.root / "checkpoints" / record.file, record.digest)  # raises if damaged
            return state, shard

    def _outgoing(
        self,
        half_inputs: pretrain.ClientHalfInputs,
        slices: Mapping[int, Shard],
        checkpoints: pretrain.CheckpointStore,
        largest: float,
    ) -> Pausing[tuple[dict[str, Tensor], str]]:
        """Compute the half's state and the shard's digest without storing anything."""
        state = yield from pretrain.pretrain(half_inputs, slices, checkpoints=checkpoints, on_stage=self._progress)
        sending = Sending(half_inputs, state, list(slices.values()))
        fit(sending, columns=self._columns, on_batch=self._progress)
        # not in the store, which may be on a read-only disk; and in an unnamed file, so that nothing of these rows
        # remains if this process is killed
        with files.step("write", Path(gettempdir())), TemporaryFile(prefix="splitwiper-") as file:
            embed(file, sending, columns=self._columns, on_batch=self._progress, largest=largest)
            return sending.state, files.digest_of(file)
