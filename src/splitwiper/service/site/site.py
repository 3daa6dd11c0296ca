"""A client's site: a folder with its data, half, keys and codebook, and its server's address.

``site.toml`` names server, certificates and model; ``NAME/`` is the client's store, as in a run folder. Only shards,
requests and activations to predict on ever leave it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from splitwiper.client import Added, Client, scoring
from splitwiper.client.scoring import Predicted, Probabilities
from splitwiper.config import ClientConfig, Config, from_dict, read_toml
from splitwiper.data.rows import is_wide
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
from splitwiper.federation.sources import Reader, Source
from splitwiper.numerics import isolated_call
from splitwiper.progress import Progress
from splitwiper.seeding import digest
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.calls.patience import Patience
from splitwiper.service.certificate import Attestation, Checked, Keys, PublicKey, TreeHead, check, read_public
from splitwiper.service.certificate.issuing import to_bytes
from splitwiper.service.certificate.log import shows
from splitwiper.service.certificate.restoring import Restored
from splitwiper.service.site.agreeing import Gathering, Side
from splitwiper.service.site.config import check_name, connect, read_site
from splitwiper.service.site.own_key import OwnKey
from splitwiper.service.site.proof import held_finding, model_finding, own_findings, prediction_finding
from splitwiper.service.site.served import ModelWatch
from splitwiper.service.site.witnessing import Witnessing
from splitwiper.splitting import identity
from splitwiper.store import ClientStore, files
from splitwiper.store.tickets import now
from splitwiper.wire import Column, Label, Receipt, Scores, Ticket
from splitwiper.wire.codecs import prepare

REJECTED = ".rejected"
"""Suffix of the file of a certificate that failed its checks."""


@dataclass(frozen=True)
class Certified:
    """A certificate, and the result of checking it."""

    envelope: dict[str, Any]
    checked: Checked

    def __bool__(self) -> bool:
        """Return whether the certificate holds."""
        return self.checked.holds


class _Accepted:
    """The model that a site accepted last, in its database; implements `Memory`."""

    def __init__(self, store: ClientStore) -> None:
        self._store = store

    def accepted(self) -> str:
        return self._store.database.meta("answering") or ""

    def place(self) -> int:
        return int(self._store.database.meta("answering_since") or 0)

    def accept(self, commitment: str, place: int) -> None:
        self._store.remember(answering=commitment, answering_since=str(place))

    def handed_out(self) -> str:
        return self._store.database.meta("handed_out") or ""

    def download(self, commitment: str) -> None:
        self._store.remember(handed_out=commitment)


class Site:
    """A client's site.

    Args:
        folder: the site's folder; made by `join`.
        progress: called with the progress of long work.
    """

    def __init__(self, folder: Path, progress: Progress | None = None) -> None:
        self.folder = folder
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
        self.watch = self._watching()
        self.link.watch = self.watch
        self.witnessing = Witnessing(own, self.config.name, self.guard, self.link, self.own_key)
        self._progress = progress
        self.labels: tuple[Label, ...] = ()

    @property
    def path(self) -> Path:
        """The site's folder."""
        return self.folder

    @property
    def client(self) -> Client:
        """The site's client."""
        return Client(self._store(), self.halves.client, self.columns(), self.link, self._progress)

    def _store(self) -> ClientStore:
        return ClientStore(self.folder / self.config.name)

    def columns(self) -> list[Column]:
        """Return the columns that cross the cut."""
        kept = json.loads(self._store().database.meta("columns") or "[]")
        return [Column(name, dtype, tuple(shape)) for name, dtype, shape in kept]

    def _watching(self) -> ModelWatch:
        """Return the check of which model the server answers with."""
        codec = prepare(from_dict(ClientConfig, read_toml(self._store().root / "config.toml")).encoding)
        half, share = self.halves.server, self.config.spot_check
        return ModelWatch(
            self.link, _Accepted(self._store()), self._compare, half, self.columns(), codec=codec, share=share
        )

    def register(self, *, again: bool = False) -> None:
        """Register the key that this site signs with.

        Args:
            again: register it even if it is known to be registered, because an operator may have dropped it since.

        Raises:
            ConfigError: the certificate is another client's.
            ForbiddenError: another key is registered in its name.
        """
        check_name(self.folder, self.config)  # the certificate may have been replaced since the site joined
        store, key = self._store(), self.own_key.public.id
        if again or store.database.meta("registered") != key:
            self.pin()  # send nothing to a server whose ledger has changed
            self.link.register(self.config.name)
            store.remember(registered=key)

    # --- learning and forgetting ---------------------------------------------------------------------------

    @isolated_call()
    def learn(
        self,
        data: Source,
        *,
        gathering: Gathering | None = None,
        patience: float = 0.0,
        told: Callable[[str], None] | None = None,
    ) -> Added:
        """Add rows, pre-train, and send the shard; if labels are hidden, agree on them with the others first.

        Args:
            data: the rows, or a function that returns them; it is called twice.
            gathering: whom to agree with, and how long to wait for them; not needed once there is a codebook.
            patience: seconds for which to retry if the server cannot be reached.
            told: called with the message of each error meanwhile.

        Raises:
            UnreachableError: the server could not be reached in that time. Learn the same rows again to resume.
            AbsentClientError: the others did not join. The rows are kept; learn them again to resume.
            DataError: the others have not agreed on these labels; nothing is kept.
            ForbiddenError: an operator has evicted this site.
            TrainingError: the server has set aside this site's shard. The rows are kept.
        """
        trying = Patience(patience, told)
        trying(lambda: self.register(again=True))
        client, wide = self.client, is_wide(self.halves.client)
        reader = Reader(data, client=self.config.name, task=self.config.task, wide=wide)
        rows = reader.rows()
        if reader.lazy:
            reader.rows()  # compares them: forgotten rows that a function changes at random would not be recognised
        side = Side(client, self.link) if client.config.masking.is_on else None
        if side is not None:
            trying(partial(side.check, rows))
        added = trying(lambda: client.add(rows))
        if side is not None:
            trying(partial(side.agree, gathering or Gathering()))
        trying(client.sync)
        trying(self.keys)
        self.witnessing.try_exchange()
        if trouble := client.trouble():
            raise (ForbiddenError if client.store.database.meta("evicted") else TrainingError)(trouble)
        return added

    def estimate(self) -> dict[str, Any] | None:
        """Return how long a request would take the server, before it is made; None if the answer is not quick."""
        try:
            found = self.link.estimate()
            return {name: found[name] for name in ("training_seconds", "waiting", "deadline_days")}
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
        choice = client.choose(classes=classes, samples=samples, everything=everything)
        return client.forget(choice).ticket

    @isolated_call()
    def settle(self, *, patience: float = 600.0, told: Callable[[str], None] | None = None) -> None:
        """Submit requests and send the shard without the forgotten rows, retrying until the server has it.

        Raises:
            UnreachableError: the server could not be reached in time. The rows stay suppressed; call it again.
        """

        def attempt() -> None:
            self.register()
            self.client.sync()

        Patience(patience, told, (UnreachableError, BusyError))(attempt)

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
        return self.link.receipt(ticket)

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
        self.client.heed()  # the shard that answered the request may have been set aside since
        envelope, receipt = self.link.certificate(ticket), self.link.receipt(ticket)
        opening = self.link.opening(ticket)
        found = check(
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
        if found.certificate:
            said = found.certificate
            own = list(own_findings(said, self._store(), ticket))
            if own[0].outcome == "holds":
                own.append(held_finding(said, self._store(), ticket, opening))
            found = Checked((*found.checks, *own), said, found.standing)
            if found.holds and said["after"]["model"] is not None:
                self.watch.certified(said["after"]["model"], said["ledger"]["entry"]["seq"])
            more = [
                model_finding(said, opening, self.watch.fetched),
                prediction_finding(said, self.client, self.watch, self.link.scores),
            ]
            found = Checked((*found.checks, *more), said, found.standing)
        path = self.kept_certificate(ticket)
        files.make_folder(path.parent)
        if found.outcome == "mismatch":  # stored as evidence, and fetched again the next time
            path = path.with_suffix(REJECTED)
        files.write_bytes(path, to_bytes(envelope))
        return Certified(envelope, found)

    def kept_certificate(self, ticket: str) -> Path:
        """Return where this site stores the certificate of a request."""
        name = ticket if ticket.isalnum() else digest("certificate", ticket)  # a ticket could look like a path
        return self.folder / self.config.name / "certificates" / f"{name}.json"

    def requests(self) -> tuple[Ticket, ...]:
        """Return every request of this site that the server knows, oldest first."""
        return self.link.tickets(self.config.name)

    def certificates(self, *, missing: bool = False) -> dict[str, Certified]:
        """Fetch and check the certificates of all settled requests, or only those that are not stored yet."""
        own = {row["ticket"] for row in self._store().requests("open", "sent", "done")}  # the server may list others
        settled = [one.id for one in self.requests() if one.state == "settled" and one.id in own]
        wanted = [ticket for ticket in settled if not (missing and self.kept_certificate(ticket).exists())]
        return {ticket: self.certificate(ticket) for ticket in wanted}

    def attest(self, outcome: str, fingerprint: Mapping[str, str]) -> dict[str, Any]:
        """Sign the result of recomputing this site's half and shard, and submit it to the server.

        Args:
            outcome: ``"exact"``, ``"mismatch"`` or ``"not_comparable"``.
            fingerprint: the numerics it was recomputed with.
        """
        told, store, key = self.link.model_entry(), self._store(), self.own_key.key()
        if not shows(told):
            raise MismatchError("the server cannot show its newest model in its ledger.")
        self._compare(TreeHead(int(told["size"]), str(told["root"])))
        made = Attestation(
            federation=store.database.meta("federation") or "",
            model=told["entry"].get("model") or "",
            shard=store.shard_commitment() or "",
            size=int(told["size"]),
            root=str(told["root"]),
            role="site",
            name=self.config.name,
            epochs=(),
            of=0,
            outcome=outcome,
            fingerprint=dict(fingerprint),
            made=now(),
            key=key.public.raw.hex(),
        ).sign(key)
        self.link.attest(made)
        return made

    def attesters(self) -> tuple[PublicKey, ...]:
        """Return the keys whose attestations count here: this site's own, and those that its settings name."""
        folder = self.config.attesters
        return (self.own_key.public, *(read_public(self.folder / folder) if folder else ()))

    def pin(self) -> None:
        """Fetch the ledger's head and pin it; it must continue those pinned before.

        Every other call to the server does the same.

        Raises:
            ForkError: it does not.
        """
        self.link.head()

    def _compare(self, head: TreeHead) -> None:
        """Check that a head inside an answer belongs to the ledger that this site knows."""
        self.guard.pins.compare(head, self.link.consistency)

    def keys(self) -> Keys:
        """Return the server's signing keys: those it had on the first contact, and keys that follow from them."""
        return self.guard.refresh(self.link.ask)

    def restored(self) -> Restored:
        """Return the restored backup that the server asks sites to accept; see `accept_restore`.

        Raises:
            NotFoundError: there is nothing to accept.
            ForkError: the ledger is another one, and no restored backup explains that.
        """
        try:
            self.pin()
        except RestoredError:
            if (found := self.guard.restored(self.link.ask)) is not None:
                return found
            raise
        raise NotFoundError("there is nothing to accept: the server's ledger is the one that this site knows.")

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
        lost = {one.id for one in self.link.tickets(client.name) if one.state == "accepted"}
        answered = [row["ticket"] for row in client.store.requests("done") if row["ticket"] in lost]
        client.store.mark(answered, "open")  # the server has the request, but no longer the shard that answered it
        client.reupload()
        return kept

    def ticket(self, ticket: str) -> Ticket:
        """Return a request's current state.

        Raises:
            NotFoundError: the server does not know it.
        """
        for one in self.link.tickets(self.config.name):
            if one.id == ticket:
                return one
        raise NotFoundError(
            f"the server knows no ticket {ticket!r}, though this site has asked. The rows stay suppressed here; settle "
            "('splitwiper forget SITE') asks again. Ask the operator if that does not help."
        )

    def predict(self, client: str, x: Any, *, local: bool = False) -> list[str | int]:
        """Return the most likely label of the client's own task for each input.

        Args:
            client: the name of the site's client.
            x: the inputs.
            local: fetch the server half and compute here, so that nothing about the inputs is sent.
        """
        return [label.name for label in scoring.best(self._scores(client, x, local), self.config.task)]

    def predict_proba(self, client: str, x: Any, *, local: bool = False) -> Probabilities:
        """Return the probabilities of all labels, one row per input; `labels` gives the order of the columns.

        Raises:
            InputError: the server names only the most likely label; with ``local``, probabilities are computed here.
        """
        return self.predict_both(client, x, local=local).probabilities

    def predict_both(self, client: str, x: Any, *, local: bool = False) -> Predicted:
        """Return labels and probabilities from one answer; `predict` and `predict_proba` would ask twice.

        Raises:
            InputError: the server names only the most likely label; with ``local``, probabilities are computed here.
        """
        scores = self._scores(client, x, local)
        self.labels = scores.labels
        return scoring.predicted(scores, self.config.task, scores.labels)

    @isolated_call()
    def _scores(self, client: str, x: Any, local: bool) -> Scores:
        if client != self.config.name:
            raise NotFoundError(f"this is the site of {self.config.name!r}, not of {client!r}.")
        self.witnessing.try_exchange(daily=True)
        return self.client.scores(x, local=self.halves.server if local else None)

    def close(self) -> None:
        """Close the connection."""
        self.link.close()
