"""A client's site: a folder with its data, half, keys and codebook, and its server's address.

``site.toml`` names server, certificates and model; ``NAME/`` is the client's store, as in a run folder. Only shards,
requests and activations to predict on ever leave it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from splitwiper.client import Added, Client
from splitwiper.client.agreeing import Gathering
from splitwiper.client.scoring import Predicted, Probabilities
from splitwiper.data.sources import Source
from splitwiper.errors import (
    BusyError,
    ForbiddenError,
    NotFoundError,
    RestoredError,
    SplitWiperError,
    TrainingError,
    UnreachableError,
)
from splitwiper.numerics import isolated_call
from splitwiper.service.calls.patience import Patience
from splitwiper.service.certificate.restoring import Restored
from splitwiper.service.site.certifying import CertifiedSite
from splitwiper.splitting import ServerHalf
from splitwiper.wire import Receipt


class Site(CertifiedSite):
    """A client's site.

    Args:
        folder: the site's folder; made by `join`.
        progress: called with the progress of long work.
    """

    # --- learning and forgetting ---------------------------------------------------------------------------

    @isolated_call()
    def learn(
        self,
        data: Source,
        *,
        gathering: Gathering | None = None,
        patience: float = 0.0,
        on_retry: Callable[[str], None] | None = None,
    ) -> Added:
        """Add rows, pre-train, and send the shard; if labels are hidden, agree on them with the others first.

        Args:
            data: the rows, or a function that returns them; it is called twice.
            gathering: whom to agree with, and how long to wait for them; not needed once there is a codebook.
            patience: seconds for which to retry if the server cannot be reached.
            on_retry: called with the message of each error meanwhile.

        Raises:
            UnreachableError: the server could not be reached in that time. Learn the same rows again to resume.
            AbsentClientError: the others did not join. The rows are kept; learn them again to resume.
            DataError: the rows cannot be learned from, or the others have not agreed on these labels; nothing is kept.
            ForbiddenError: an operator has evicted this site.
            TrainingError: the server has set aside this site's shard. The rows are kept.
        """
        trying = Patience(patience, on_retry)
        trying(lambda: self.register(again=True))
        client = self.client
        added = client.learn(data, gathering=gathering, attempt=trying)
        trying(self.keys)
        self.witnessing.try_exchange()
        if trouble := client.trouble():
            raise (ForbiddenError if client.store.database.meta("evicted") else TrainingError)(trouble)
        return added

    def estimate(self) -> dict[str, Any] | None:
        """Return how long a request would take the server, before it is made; None if the answer is not quick."""
        try:
            estimate = self.link.estimate()
            return {name: estimate[name] for name in ("training_seconds", "waiting", "deadline_days")}
        except (SplitWiperError, httpx.HTTPError, KeyError, TypeError, ValueError):
            return None

    def forget(
        self,
        *,
        classes: Sequence[str | int] | None = None,
        samples: Sequence[int] | None = None,
        everything: bool = False,
    ) -> str:
        """Suppress rows here, at once and permanently, and make the request. Return its ticket; `settle` does the rest.

        The server need not be reachable: suppressed rows are never used again.
        """
        client = self.client
        return client.forget(client.choose(classes=classes, samples=samples, everything=everything)).ticket

    @isolated_call()
    def settle(self, *, patience: float = 600.0, on_retry: Callable[[str], None] | None = None) -> None:
        """Submit requests and send the shard without the forgotten rows, retrying until the server has it.

        Raises:
            UnreachableError: the server could not be reached in time. The rows stay suppressed; call it again.
        """

        def attempt() -> None:
            self.register()
            self.client.sync()

        Patience(patience, on_retry, (UnreachableError, BusyError))(attempt)

    def await_receipt(self, ticket: str, *, patience: float = 600.0) -> Receipt:
        """Wait until a request is settled, and return its receipt.

        Raises:
            BusyError: it was not settled in time.
        """
        end = time.monotonic() + patience
        while (stands := self.ticket(ticket)).state != "settled":
            if time.monotonic() > end:
                raise BusyError(f"ticket {ticket} is {stands.state} and not settled yet: ask again later.")
            time.sleep(0.2)
        return self.client.receipt(ticket)

    def restored(self) -> Restored:
        """Return the restored backup that the server asks sites to accept; see `accept_restore`.

        Raises:
            NotFoundError: there is nothing to accept.
            ForkError: the ledger is another one, and no restored backup explains that.
        """
        try:
            self.pin()
        except RestoredError:
            if (restored := self.guard.restored(self.link.ask)) is not None:
                return restored
            raise
        raise NotFoundError("there is nothing to accept: the server's ledger is the one that this site knows.")

    @isolated_call()
    def accept_restore(self, restored: Restored) -> Path:
        """Continue with a server that was restored from a backup: pin its ledger, and repeat requests that it has lost.

        If the process is killed at any point, it can be called again; `settle` then sends what is left.

        Args:
            restored: the restored backup that a person has reviewed and accepted.

        Returns:
            The folder with the heads of the previous ledger.
        """
        client = self.client
        # From here on, whatever happens, the shard is sent and the key registered again: the backup may be older.
        # Accepted models are forgotten, too, because the ledger counts from the backup on.
        client.store.remember(unsent="restored", registered="", answering="", answering_since="", removal="")
        kept = self.guard.accept(restored, self.link.ask)
        self.register()
        lost = {ticket.id for ticket in self.link.tickets(client.name) if ticket.state == "accepted"}
        answered = [row["ticket"] for row in client.store.requests("done") if row["ticket"] in lost]
        client.store.set_state(answered, "open")  # the server has the request, but no longer the shard that answered it
        client.sync(again=True)
        return kept

    # --- prediction ----------------------------------------------------------------------------------------

    @isolated_call()
    def predict(self, client: str, x: Any, *, local: bool = False) -> list[str | int]:
        """Return the most likely label of the client's own task for each input.

        With ``local``, the server half is fetched and nothing about the inputs is sent.
        """
        return self._checked(client).predict(x, local=self._half(local))

    def predict_proba(self, client: str, x: Any, *, local: bool = False) -> Probabilities:
        """Return the probabilities of all labels, one row per input; `labels` gives the order of the columns.

        Raises:
            InputError: the server names only the most likely label; with ``local``, probabilities are computed here.
        """
        return self.predict_both(client, x, local=local).probabilities

    @isolated_call()
    def predict_both(self, client: str, x: Any, *, local: bool = False) -> Predicted:
        """Return labels and probabilities from one answer; `predict` and `predict_proba` would ask twice.

        Raises:
            InputError: the server names only the most likely label; with ``local``, probabilities are computed here.
        """
        predicted = self._checked(client).predict_both(x, local=self._half(local))
        self.labels = predicted.labels
        return predicted

    def _half(self, local: bool) -> ServerHalf | None:
        return self.halves.server if local else None

    def _checked(self, client: str) -> Client:
        """Return the site's client, after comparing heads with other sites if that is due."""
        if client != self.config.name:
            raise NotFoundError(f"this is the site of {self.config.name!r}, not of {client!r}.")
        self.witnessing.try_exchange(daily=True)
        return self.client
