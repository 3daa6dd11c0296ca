"""One client, over any link: it learns, forgets, predicts, and agrees on labels with other clients.

A federation works with several of them on one machine; a site on the network is one of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from splitwiper.client import scoring
from splitwiper.client.agreeing import Gathering, LabelAgreement
from splitwiper.client.checking import check_rows
from splitwiper.client.content import row_macs
from splitwiper.client.embed import Sending
from splitwiper.client.hiding import label_mac
from splitwiper.client.prediction import fitting, local_scores, remote_scores, unmasked
from splitwiper.client.row_store import Added
from splitwiper.client.scoring import Predicted
from splitwiper.client.selection import Choice, select
from splitwiper.client.spending import privacy_spent, record_prediction
from splitwiper.client.syncing import Syncing
from splitwiper.data.rows import Rows, is_wide
from splitwiper.data.sources import Reader, Source
from splitwiper.errors import ConfigError, NotFoundError
from splitwiper.masking.codebook import Codebook
from splitwiper.privacy import Spending
from splitwiper.splitting import ServerHalf
from splitwiper.store.client_store import FileRecord
from splitwiper.store.ledger import Head
from splitwiper.store.relay import version_of
from splitwiper.store.tensors import load_state
from splitwiper.wire import Label, Receipt, Request, Scores

Attempt = Callable[[Callable[[], Any]], Any]
"""Does one step of some work, perhaps several times over, and returns its result."""


# One object, in three files for their length: what a client has (`ClientContext`), how half and shard follow from its
# rows (`Syncing`), and what is asked of it. All share lease, clock and link; separate objects would only pass these on.
class Client(Syncing):
    """A client over its own folder."""

    # --- learning ------------------------------------------------------------------------------------------

    def learn(self, data: Source, *, gathering: Gathering | None = None, attempt: Attempt | None = None) -> Added:
        """Add rows, pre-train, and send the shard; if labels are hidden, agree on them with the others first.

        This is for one client on its own, such as a site, which waits for the others. `Federation.learn` takes the same
        steps (`check`, `add`, agree, `sync`) for all clients on one machine, each step for all of them, and trains.

        Args:
            data: the rows, or a function that returns them; it is called twice.
            gathering: whom to agree with, and how long to wait for them; not needed once there is a codebook.
            attempt: does each step, and may repeat one that fails; once by default.

        Raises:
            AbsentClientError: the others did not join. The rows are kept; learn them again to resume.
            DataError: the rows cannot be learned from, or the others have not agreed on these labels; nothing is kept.
        """
        reader = Reader(data, client=self.name, task=self.task, wide=is_wide(self._half))
        rows = reader.rows()
        if reader.lazy:
            reader.rows()  # compares them: forgotten rows that a function changes at random would not be recognised
        attempt = attempt or (lambda step: step())
        attempt(lambda: self.check(rows, self.agreed()))
        added: Added = attempt(lambda: self.add(rows))
        attempt(lambda: self.agree(gathering or Gathering()))
        attempt(self.sync)
        return added

    def check(self, rows: Rows, codebook: Codebook | None = None) -> None:
        """Refuse rows that cannot be learned from, before anything is stored.

        Raises:
            DataError: rows do not fit the earlier ones, the half, the closed set of labels, or the codebook if given.
        """
        self.holdings.check(rows)
        check_rows(rows, client=self.name, config=self.config, half=self._half, columns=self._columns)
        if codebook is not None:
            codebook.check(self._unforgotten(rows, codebook))

    def add(self, rows: Rows) -> Added:
        """Add rows that `check` has accepted to the store. `sync` does the rest."""
        with self.timed(), self.store.database.lease("adding rows"):
            self._obey()
            self.holdings.check(rows)  # again, under the lease: another process may have added rows meanwhile
            return self.holdings.add(rows, self._key())

    def _unforgotten(self, rows: Rows, codebook: Codebook) -> set[Label]:
        """Return the labels of rows, except those that the codebook lacks and whose rows were all forgotten."""
        labels = set(rows.labels)
        if labels <= codebook.codes.keys():
            return labels
        gone, known = self.store.suppressed(), labels & codebook.codes.keys()
        for label, value in zip(rows.labels, row_macs(self.holdings.arranged(rows), self._key()), strict=True):
            if value not in gone:
                known.add(label)
        return known

    # --- agreeing on labels --------------------------------------------------------------------------------

    def agreement(self, version: int = 0) -> LabelAgreement:
        """Return this client's part in the agreement on a codebook of a version, or on the newest.

        Strangers could name any version as the newest. Where they can write on the relay, each negotiation leads to the
        next, from the first one on.
        """
        newest = version_of(self._link.topic()) if self._one_party else 0
        return LabelAgreement(self, self._link, strangers=not self._one_party, version=version or newest or 1)

    def agree(self, how: Gathering) -> None:
        """Agree on labels with the others. Does nothing if labels are not hidden, with a codebook, or without rows.

        Raises:
            AbsentClientError: the others did not join in time; calling it again resumes.
        """
        if self.config.masking.is_on and not self.group.has_codebook() and self.labels():
            self.agreement().complete(how)

    def agreed(self) -> Codebook | None:
        """Return the codebook, or what the others have agreed on; None if labels are not hidden, or nobody has."""
        if not self.config.masking.is_on:
            return None
        return self.group.codebook() if self.group.has_codebook() else self.agreement().codebook()

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
        with self.timed():
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
            with self.timed():
                labels = self._wholly(choice.macs)
                seconds += self.take_spent().seconds
                committed = self.store.forget(
                    ticket, choice.level, choice.macs, seconds=seconds, labels=labels, seen=choice.seen
                )
                if committed is not None:
                    return Request(ticket, self.name, choice.level, committed)
                choice = choice.again()

    def receipt(self, ticket: str) -> Receipt:
        """Return the receipt of a settled request, with what this client's noise has spent, if it uses noise."""
        return self.with_privacy(self._link.receipt(ticket))

    def with_privacy(self, receipt: Receipt) -> Receipt:
        """Return one of its receipts with what its noise has spent, if it uses noise."""
        if not self.config.noise.is_on:
            return receipt
        try:
            return replace(receipt, privacy=self.privacy().to_dict())
        except ConfigError as problem:  # the library that computes it is not installed
            return replace(receipt, privacy={"note": str(problem)})

    def pin(self, head: Head) -> None:
        """Remember a ledger head of the server: later ledgers must extend it."""
        self.store.remember(head=f"{head}")

    def pinned(self) -> Head | None:
        """Return the ledger head that this client remembers."""
        kept = self.store.database.meta("head")
        return Head.parse(kept) if kept else None

    def sent(self) -> Sending:
        """Return the contents of its shard, to judge attacks on it; the result is never sent."""
        half = self.store.half()
        if half is None or self.store.is_behind():
            raise NotFoundError(f"client {self.name!r} has no rows, or unfinished work: call learn or settle.")
        return Sending(self._half_inputs(), self._frozen(half[0]), list(self.holdings.slices().values()))

    # --- prediction ----------------------------------------------------------------------------------------

    def predict(self, inputs: Any, *, local: ServerHalf | None = None) -> list[str | int]:
        """Return the most likely label of the client's own task for each input. Arguments are those of `scores`."""
        return scoring.best(self.scores(inputs, local=local), self.task)

    def predict_both(
        self, inputs: Any, *, local: ServerHalf | None = None, labels: Sequence[Label] | None = None
    ) -> Predicted:
        """Return labels and probabilities from one answer.

        The columns of the probabilities are ``labels``, by default those that the model answers with.

        Raises:
            InputError: the server names only the most likely label; with ``local``, probabilities are computed here.
        """
        scores = self.scores(inputs, local=local)
        columns = scores.labels if labels is None else tuple(labels)
        chances = scoring.probabilities(scores, columns)
        return Predicted(scoring.best(scores, self.task), columns, chances)

    def scores(self, inputs: Any, *, local: ServerHalf | None = None) -> Scores:
        """Compute the whole network's outputs: this client's half here, the server's half on the server.

        If ``local``, the server half's architecture, is given, its weights are downloaded, and nothing is sent.
        """
        half = self.store.half()
        if half is None or self.store.unknown(self._link.tickets(self.name)):
            raise NotFoundError(
                f"client {self.name!r} has no trained half: it holds no rows, was forgotten while its folder was away, "
                "or its work was interrupted. Call learn or settle."
            )
        named = fitting(inputs, f"client {self.name!r}", self.holdings)
        state, half_inputs = self._frozen(half[0]), self._half_inputs()
        if local is not None:
            scores = local_scores(half_inputs, state, named, local, self._link.model(self.name))
        else:
            group = self._typical() if self.config.noise.reading == "mean" else 1
            if self.config.noise.is_on:
                record_prediction(self.store, half[0].key, group=group)
            ask = partial(self._link.predict, self.name)
            scores = remote_scores(half_inputs, state, named, self._columns, ask, group=group)
        if half_inputs.hiding is None:
            return scores
        return unmasked(scores, named, half_inputs.hiding, without=self._forgotten())

    def _frozen(self, half: FileRecord) -> dict[str, Tensor]:
        """Read the state of the frozen half."""
        remedy = f"`reupload({self.name!r})` computes it again"
        return load_state(self.store.root / "half" / half.file, half.digest, remedy=remedy)

    def probe(self, ask: Callable[[Mapping[str, Tensor]], Scores], *, most: int) -> int:
        """Predict up to ``most`` of the client's own surviving rows, to test the server half; return how many.

        Raises:
            NotFoundError: no rows are left, or there is no trained half.
        """
        half, slices = self.store.half(), self.holdings.slices()
        if half is None or not slices:
            raise NotFoundError(f"no rows of client {self.name!r} are left to predict.")
        part = secrets.choice(list(slices.values()))
        rows = sorted(secrets.SystemRandom().sample(range(part.rows), min(most, part.rows)))
        half_inputs = self._half_inputs()
        inputs = {name: np.asarray(part.columns[name])[rows] for name in half_inputs.names}
        remote_scores(half_inputs, self._frozen(half[0]), inputs, self._columns, ask)
        return len(rows)

    def _typical(self) -> int:
        """Return the average number of rows per label that the client holds."""
        counts = self.holdings.labels()
        return max(1, counts.total() // max(1, len(counts)))

    def privacy(self) -> Spending:
        """Return what its noise has spent so far, of each row and of each value."""
        return privacy_spent(self.store, self.config.noise, self._columns)

    def _forgotten(self) -> set[Label]:
        """Return labels of the codebook that the client has forgotten and holds no rows of."""
        labels, key, gone = set[Label](), self._key(), self.store.forgotten()
        for label in self.group.codebook().labels if gone else ():
            if label_mac(key, label) in gone:
                labels.add(label)
        # they may have been learned again: a label is forgotten with its last row, not for ever
        return labels.difference(self.holdings.labels()) if labels else labels
