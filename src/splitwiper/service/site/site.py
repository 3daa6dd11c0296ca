"""A client's site: a folder with its data, half, keys and codebook, and its server's address.

``site.toml`` names server, certificates and model; ``NAME/`` is the client's store, as in a run folder. Only shards,
requests and activations to predict on ever leave it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from splitwiper.client import Added, Client
from splitwiper.client.agreeing import Gathering
from splitwiper.client.scoring import Predicted, Probabilities
from splitwiper.config import ClientConfig, Config, from_dict, read_toml
from splitwiper.data.sources import Source
from splitwiper.errors import (
    BusyError,
    ForbiddenError,
    InputError,
    MismatchError,
    NotFoundError,
    RestoredError,
    SplitWiperError,
    TrainingError,
    UnreachableError,
)
from splitwiper.federation.build import build_halves
from splitwiper.numerics import isolated_call
from splitwiper.progress import Progress
from splitwiper.seeding import digest
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.calls.patience import Patience
from splitwiper.service.certificate import Attestation, Keys, PublicKey, TreeHead, check, read_public
from splitwiper.service.certificate.issuing import to_bytes
from splitwiper.service.certificate.log import shows
from splitwiper.service.certificate.restoring import Restored
from splitwiper.service.site.config import check_name, connect, read_site
from splitwiper.service.site.own_key import OwnKey
from splitwiper.service.site.proof import Certified, check_held, check_own, check_predictions, check_served
from splitwiper.service.site.served import ModelWatch
from splitwiper.service.site.witnessing import Witnessing
from splitwiper.splitting import ServerHalf, identity
from splitwiper.store import ClientStore, files
from splitwiper.store.records import columns_in, parsed
from splitwiper.store.tickets import now
from splitwiper.wire import Column, Label, Receipt, Ticket
from splitwiper.wire.codecs import prepare

REJECTED = ".rejected"
"""Suffix of the file of a certificate that failed its checks."""


class Site:
    """A client's site.

    Args:
        folder: the site's folder; made by `join`.
        progress: called with the progress of long work.
    """

    def __init__(self, folder: Path, progress: Progress | None = None) -> None:
        self.path = folder
        self.config = read_site(folder)
        client = from_dict(ClientConfig, read_toml(folder / self.config.name / "config.toml"))
        self.halves = build_halves(Config(seed=self.config.seed, model=self.config.model, client=client))
        if identity(self.halves.client) != self._store().database.meta("model"):
            raise InputError(
                f"the client half is not the one that {folder} joined with: the model's code or constants differ, or "
                "a library it comes from. Bring the model back as it was."
            )
        own, federation = folder / self.config.name, self._store().database.meta("federation") or ""
        self.own_key = OwnKey(own, federation, lambda *kept: self._store().keep_signed(*kept))
        self.guard = LedgerGuard(own, federation, folder)
        self.link = connect(folder, self.config, self.own_key, self.guard, transfer=client.transfer)
        # the link asks the watch about every answer, and the watch fetches models over the link
        self.watch = self.link.watch = ModelWatch(
            self.link,
            self._store(),
            self._compare,
            self.halves.server,
            self.columns(),
            codec=prepare(client.encoding),
            share=self.config.spot_check,
        )
        self.witnessing = Witnessing(own, self.config.name, self.guard, self.link, self.own_key)
        self._progress = progress
        self.labels: tuple[Label, ...] = ()

    @property
    def client(self) -> Client:
        """The site's client, opened anew: one that stays open would keep erased files on the disk."""
        return Client(self._store(), self.halves.client, self.columns(), self.link, self._progress)

    def _store(self) -> ClientStore:
        return ClientStore(self.path / self.config.name)

    def columns(self) -> tuple[Column, ...]:
        """Return the columns that cross the cut."""
        return columns_in(parsed(self._store().database.meta("columns") or "[]"))

    # --- the server and its ledger -------------------------------------------------------------------------

    def register(self, *, again: bool = False) -> None:
        """Register the key that this site signs with.

        With ``again``, even if it is known to be registered, because an operator may have dropped it since.

        Raises:
            ConfigError: the certificate is another client's.
            ForbiddenError: another key is registered in its name.
        """
        check_name(self.path, self.config)  # the certificate may have been replaced since the site joined
        store, key = self._store(), self.own_key.public.id
        if again or store.database.meta("registered") != key:
            self.pin()  # send nothing to a server whose ledger has changed
            self.link.register(self.config.name)
            store.remember(registered=key)

    def requests(self) -> tuple[Ticket, ...]:
        """Return every request of this site that the server knows, oldest first."""
        return self.link.tickets(self.config.name)

    def ticket(self, ticket: str) -> Ticket:
        """Return a request's current state."""
        for request in self.requests():
            if request.id == ticket:
                return request
        raise NotFoundError(
            f"the server knows no ticket {ticket!r}, though this site has asked. The rows stay suppressed here; settle "
            "('splitwiper forget SITE') asks again. Ask the operator if that does not help."
        )

    def pin(self) -> None:
        """Fetch the ledger's head and pin it; it must continue those pinned before.

        Every other call to the server does the same.
        """
        self.link.head()

    def _compare(self, head: TreeHead) -> None:
        """Check that a head inside an answer belongs to the ledger that this site knows."""
        self.guard.pins.compare(head, self.link.consistency)

    def keys(self) -> Keys:
        """Return the server's signing keys: those it had on the first contact, and keys that follow from them."""
        return self.guard.refresh(self.link.ask)

    def close(self) -> None:
        """Close the connection."""
        self.link.close()

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

    # --- certificates --------------------------------------------------------------------------------------

    @isolated_call()
    def certificate(self, ticket: str) -> Certified:
        """Fetch the certificate of a settled request, check it in every way this site can, and store it.

        Signature, proofs and ledger are checked as anybody can; then the certificate is compared with the request that
        this site signed, the shards that it sent, and the model that answers. The server's keys are remembered from the
        first contact on, and other keys are refused.

        Raises:
            ForkError: the server shows another ledger than before.
            InputError: it signs with a key that this client does not know.
        """
        client = self.client
        client.heed()  # the shard that answered the request may have been set aside since
        envelope, receipt = self.link.certificate(ticket), self.link.receipt(ticket)
        opening = self.link.opening(ticket)
        checked = check(
            envelope,
            self.keys(),
            pins=self.guard.pins,
            consistency=self.link.consistency,
            opening=opening,
            receipt=receipt,
            client_key=self.own_key.public,
            attesters=self.attesters(),
        )
        self.witnessing.try_exchange()
        if contents := checked.certificate:
            own = list(check_own(contents, self._store(), ticket))
            if own[0].outcome == "holds":
                own.append(check_held(contents, self._store(), ticket, opening))
            checked = replace(checked, checks=(*checked.checks, *own))
            # first, because the model that answers is compared with the one that was accepted last
            if checked.holds and contents["after"]["model"] is not None:
                self.watch.certified(contents["after"]["model"], contents["ledger"]["entry"]["seq"])
            about_model = (
                check_served(contents, opening, self.watch.fetched),
                check_predictions(contents, client, self.watch, self.link.scores),
            )
            checked = replace(checked, checks=(*checked.checks, *about_model))
        path = self.kept_certificate(ticket)
        files.make_folder(path.parent)
        if checked.outcome == "mismatch":  # stored as evidence, and fetched again the next time
            path = path.with_suffix(REJECTED)
        files.write_bytes(path, to_bytes(envelope))
        return Certified(envelope, checked)

    def kept_certificate(self, ticket: str) -> Path:
        """Return where this site stores the certificate of a request."""
        name = ticket if ticket.isalnum() else digest("certificate", ticket)  # a ticket could look like a path
        return self.path / self.config.name / "certificates" / f"{name}.json"

    def certificates(self, *, missing: bool = False) -> dict[str, Certified]:
        """Fetch and check the certificates of all settled requests, or only those that are not stored yet."""
        own = {row["ticket"] for row in self._store().requests("open", "sent", "done")}
        certificates = {}
        for request in self.requests():
            # the server may list others, with ids that are no tickets: first of all, it must be the site's own
            if request.id not in own or request.state != "settled":
                continue
            if not (missing and self.kept_certificate(request.id).exists()):
                certificates[request.id] = self.certificate(request.id)
        return certificates

    def attest(self, outcome: str, fingerprint: Mapping[str, str]) -> dict[str, Any]:
        """Sign the result of recomputing this site's half and shard, and submit it to the server.

        ``outcome`` is ``"exact"``, ``"mismatch"`` or ``"not_comparable"``; ``fingerprint`` is that of the
        recomputation.
        """
        shown, store, key = self.link.model_entry(), self._store(), self.own_key.key()
        if not shows(shown):
            raise MismatchError("the server cannot show its newest model in its ledger.")
        self._compare(TreeHead(int(shown["size"]), str(shown["root"])))
        attestation = Attestation(
            federation=store.database.meta("federation") or "",
            model=shown["entry"].get("model") or "",
            shard=store.shard_commitment() or "",
            size=int(shown["size"]),
            root=str(shown["root"]),
            role="site",
            name=self.config.name,
            epochs=(),
            of=0,
            outcome=outcome,
            fingerprint=dict(fingerprint),
            made=now(),
            key=key.public.raw.hex(),
        ).sign(key)
        self.link.attest(attestation)
        return attestation

    def attesters(self) -> tuple[PublicKey, ...]:
        """Return the keys whose attestations count here: this site's own, and those that its settings name."""
        folder = self.config.attesters
        # not the server's word for who an auditor is: this site names the keys that it trusts
        return (self.own_key.public, *(read_public(self.path / folder) if folder else ()))

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
