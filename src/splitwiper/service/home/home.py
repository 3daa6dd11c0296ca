"""A client's home: a folder with its data, half, keys and codebook, and where its server is.

``home.toml`` names server, certificates and model; ``NAME/`` is the client's tree, as in a run folder. Nothing of it
but shards, requests and activations to predict on ever leaves.
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
from splitwiper.data.rows import as_rows, is_wide
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
from splitwiper.federation.sources import Source
from splitwiper.seeding import digest
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.calls.patience import Patience
from splitwiper.service.certificate import Attestation, Checked, Head, Keys, PublicKey, check, read_public
from splitwiper.service.certificate.issuing import to_bytes
from splitwiper.service.certificate.log import shows
from splitwiper.service.certificate.restoring import Restored
from splitwiper.service.home.agreeing import Gathering, Side
from splitwiper.service.home.config import check_name, connect, read_site
from splitwiper.service.home.own_key import OwnKey
from splitwiper.service.home.proof import held_finding, model_finding, own_findings, prediction_finding
from splitwiper.service.home.served import ModelWatch
from splitwiper.service.home.witnessing import Witnessing
from splitwiper.splitting import identity
from splitwiper.store import ClientTree, files
from splitwiper.store.tickets import now
from splitwiper.wire import Column, Label, Receipt, Scores, Ticket

Progress = Callable[[str, int, int], None]
REJECTED = ".rejected"
"""How the name of a certificate's file ends that was false."""


@dataclass(frozen=True)
class Certified:
    """A certificate, and what checking it found."""

    envelope: dict[str, Any]
    checked: Checked

    def __bool__(self) -> bool:
        """Whether the certificate holds."""
        return self.checked.holds


class _Accepted:
    """The model that a site accepted last, in its book."""

    def __init__(self, tree: ClientTree) -> None:
        self._tree = tree

    def accepted(self) -> str:
        return self._tree.book.meta("answering") or ""

    def place(self) -> int:
        return int(self._tree.book.meta("answering_since") or 0)

    def accept(self, commitment: str, place: int) -> None:
        self._tree.remember(answering=commitment, answering_since=str(place))

    def handed_out(self) -> str:
        return self._tree.book.meta("handed_out") or ""

    def download(self, commitment: str) -> None:
        self._tree.remember(handed_out=commitment)


class Home:
    """A client at home.

    Args:
        folder: the home; made by `join`.
        progress: told of long work.
    """

    def __init__(self, folder: Path, progress: Progress | None = None) -> None:
        self.folder = folder
        self.config = read_site(folder)
        client = from_dict(ClientConfig, read_toml(folder / self.config.name / "config.toml"))
        self.halves = build_halves(Config(seed=self.config.seed, model=self.config.model, client=client))
        if identity(self.halves.client) != self._tree().book.meta("model"):
            raise InputError(
                f"the client half is not the one that {folder} joined with: the model's code or constants differ, or "
                "a library it comes from. Bring the model back as it was."
            )
        own, federation = folder / self.config.name, self._tree().book.meta("federation") or ""
        self.own_key = OwnKey(own, federation, lambda *kept: self._tree().keep_signed(*kept))
        self.guard = LedgerGuard(own, federation, folder)
        self.link = connect(folder, self.config, self.own_key, self.guard, transfer=client.transfer)
        self.watch = self._watching()
        self.link.watch = self.watch
        self.witnessing = Witnessing(own, self.config.name, self.guard, self.link, self.own_key)
        self._progress = progress
        self.labels: tuple[Label, ...] = ()

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder

    @property
    def client(self) -> Client:
        """The client itself."""
        return Client(self._tree(), self.halves.client, self.columns(), self.link, self._progress)

    def _tree(self) -> ClientTree:
        return ClientTree(self.folder / self.config.name)

    def columns(self) -> list[Column]:
        """What crosses the cut."""
        kept = json.loads(self._tree().book.meta("columns") or "[]")
        return [Column(name, dtype, tuple(shape)) for name, dtype, shape in kept]

    def _watching(self) -> ModelWatch:
        """What checks with which model the server answers."""
        codec = from_dict(ClientConfig, read_toml(self._tree().root / "config.toml")).codec
        half, share = self.halves.server, self.config.spot_check
        return ModelWatch(
            self.link, _Accepted(self._tree()), self._compare, half, self.columns(), codec=codec, share=share
        )

    def register(self, *, again: bool = False) -> None:
        """Register the key that this site signs with.

        Args:
            again: also if it is known to be registered: an operator may have dropped it since.

        Raises:
            ConfigError: the certificate is another client's.
            ForbiddenError: another key is registered in its name.
        """
        check_name(self.folder, self.config)  # the certificate may have been replaced since the site joined
        tree, key = self._tree(), self.own_key.public.id
        if again or tree.book.meta("registered") != key:
            self.pin()  # nothing is sent to a server whose ledger is another one by now
            self.link.register(self.config.name)
            tree.remember(registered=key)

    # --- learning and forgetting ---------------------------------------------------------------------------

    def learn(
        self,
        data: Source,
        *,
        gathering: Gathering | None = None,
        patience: float = 0.0,
        told: Callable[[str], None] | None = None,
    ) -> Added:
        """Take rows in, pre-train, and send the shard; where labels are hidden, agree on them with the others first.

        Args:
            data: the rows.
            gathering: with whom, and how long to wait for them; who has the codebook needs nobody.
            patience: seconds to try again while the server cannot be reached.
            told: hears what is wrong meanwhile.

        Raises:
            UnreachableError: the server could not be reached for so long. Learn the same rows again, and it goes on.
            AbsentClientError: the others did not come. Rows are kept; learn them again, and it goes on.
            DataError: labels that the others have not agreed on; nothing is kept.
            ForbiddenError: an operator has evicted this site.
            TrainingError: the server has set aside what this site sent. Rows are kept.
        """
        trying = Patience(patience, told)
        trying(lambda: self.register(again=True))
        client, rows = (
            self.client,
            as_rows(data() if callable(data) else data, task=self.config.task, wide=is_wide(self.halves.client)),
        )
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
            raise (ForbiddenError if client.tree.book.meta("evicted") else TrainingError)(trouble)
        return added

    def estimate(self) -> dict[str, Any] | None:
        """What a request would take the server, before it is made; None where it does not say at once."""
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
        """Suppress rows here, at once and for ever, and make the request. Returns its ticket; `settle` does the rest.

        The server need not be reachable: what is suppressed is never used again.
        """
        client = self.client
        choice = client.choose(classes=classes, samples=samples, everything=everything)
        return client.forget(choice).ticket

    def settle(self, *, patience: float = 600.0, told: Callable[[str], None] | None = None) -> None:
        """Hand requests over and send the shard without what was forgotten, trying until the server has it.

        Raises:
            UnreachableError: the server could not be reached for so long. Rows stay suppressed; call it again.
        """

        def attempt() -> None:
            self.register()
            self.client.sync()

        Patience(patience, told, (UnreachableError, BusyError))(attempt)

    def await_receipt(self, ticket: str, *, patience: float = 600.0) -> Receipt:
        """Wait until a request is settled.

        Raises:
            BusyError: it was not, for so long.
        """
        end = time.monotonic() + patience
        while (stands := self.ticket(ticket)).state != "settled":
            if time.monotonic() > end:
                raise BusyError(f"ticket {ticket} is {stands.state} and not settled yet: ask again later.")
            time.sleep(0.2)
        return self.link.receipt(ticket)

    def certificate(self, ticket: str) -> Certified:
        """Fetch the certificate of a settled request, check it in every way this site can, and keep it.

        Signature, proofs and the ledger are checked as anybody can; then the certificate is compared with the request
        that this site signed, the shards that it sent, and the model that answers. The server's keys are remembered
        from the first time on; another one is refused.

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
            own = list(own_findings(said, self._tree(), ticket))
            if own[0].outcome == "holds":
                own.append(held_finding(said, self._tree(), ticket, opening))
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
        if found.outcome == "mismatch":  # it is kept as evidence, and fetched again the next time
            path = path.with_suffix(REJECTED)
        files.write_bytes(path, to_bytes(envelope))
        return Certified(envelope, found)

    def kept_certificate(self, ticket: str) -> Path:
        """Where this site keeps the certificate of a request, once it has it."""
        name = ticket if ticket.isalnum() else digest("certificate", ticket)  # the server may name one that is a path
        return self.folder / self.config.name / "certificates" / f"{name}.json"

    def requests(self) -> tuple[Ticket, ...]:
        """Every request of this site as the server has it, oldest first."""
        return self.link.tickets(self.config.name)

    def certificates(self, *, missing: bool = False) -> dict[str, Certified]:
        """Fetch and check the certificates of all settled requests, or of those that this site has none of yet."""
        own = {row["ticket"] for row in self._tree().requests("open", "sent", "done")}  # whatever the server lists
        settled = [one.id for one in self.requests() if one.state == "settled" and one.id in own]
        wanted = [ticket for ticket in settled if not (missing and self.kept_certificate(ticket).exists())]
        return {ticket: self.certificate(ticket) for ticket in wanted}

    def attest(self, outcome: str, fingerprint: Mapping[str, str]) -> dict[str, Any]:
        """Sign what came out of recomputing this site's half and shard, and hand that over to the server.

        Args:
            outcome: ``"exact"``, ``"mismatch"`` or ``"not_comparable"``.
            fingerprint: the numerics it was recomputed with.
        """
        told, tree, key = self.link.model_entry(), self._tree(), self.own_key.key()
        if not shows(told):
            raise MismatchError("the server cannot show its newest model in its ledger.")
        self._compare(Head(int(told["size"]), str(told["root"])))
        made = Attestation(
            federation=tree.book.meta("federation") or "",
            model=told["entry"].get("model") or "",
            shard=tree.shard_commitment() or "",
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
        """Keys whose attestations count here: this site's own, and those that its settings name."""
        folder = self.config.attesters
        return (self.own_key.public, *(read_public(self.folder / folder) if folder else ()))

    def pin(self) -> None:
        """Look at the ledger's head, and remember it; it must have grown out of those that were remembered before.

        Every other call to the server does the same.

        Raises:
            ForkError: it did not.
        """
        self.link.head()

    def _compare(self, head: Head) -> None:
        """Check that a head which came inside an answer is of the ledger that this site knows."""
        self.guard.pins.compare(head, self.link.consistency)

    def keys(self) -> Keys:
        """The server's signing keys: those it had when this client first saw it, and keys that those have signed."""
        return self.guard.refresh(self.link.ask)

    def restored(self) -> Restored:
        """The restored backup that the server asks to be accepted; see `accept_restore`.

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
        """Go on with a server that was restored from a backup: pin its ledger, ask again for what it no longer knows.

        Killed at any instant, it can be called again; what is left to send is then sent by `settle`.

        Args:
            restored: what a person has read and accepted.

        Returns:
            The folder where the heads of the ledger before are kept.
        """
        client = self.client
        # Whatever happens from here on, the shard is sent again, and the key registered: the backup may be older.
        # Its ledger counts from the backup on, too, and so do the models in it.
        client.tree.remember(unsent="restored", registered="", answering="", answering_since="", removal="")
        kept = self.guard.accept(restored, self.link.ask)
        self.register()
        lost = {one.id for one in self.link.tickets(client.name) if one.state == "accepted"}
        answered = [row["ticket"] for row in client.tree.requests("done") if row["ticket"] in lost]
        client.tree.mark(answered, "open")  # the server has the request, and no longer the shard that answered it
        client.reupload()
        return kept

    def ticket(self, ticket: str) -> Ticket:
        """Where a request stands.

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

    def predict(self, client: str, x: Any, *, at_home: bool = False) -> list[str | int]:
        """The most likely label of the client's own task for each input.

        Args:
            client: who lives here.
            x: the inputs.
            at_home: fetch the server half and compute here, so that nothing about the inputs is sent.
        """
        return [label.name for label in scoring.best(self._scores(client, x, at_home), self.config.task)]

    def predict_proba(self, client: str, x: Any, *, at_home: bool = False) -> Probabilities:
        """Probabilities of all labels, one row per input; `labels` gives the order of the columns.

        Raises:
            InputError: the server names the most likely label alone; with `at_home`, they are computed here.
        """
        return self.predict_both(client, x, at_home=at_home).probabilities

    def predict_both(self, client: str, x: Any, *, at_home: bool = False) -> Predicted:
        """Labels and probabilities from one answer, where `predict` and `predict_proba` would ask twice.

        Raises:
            InputError: the server names the most likely label alone; with `at_home`, they are computed here.
        """
        scores = self._scores(client, x, at_home)
        self.labels = scores.labels
        return scoring.predicted(scores, self.config.task, scores.labels)

    def _scores(self, client: str, x: Any, at_home: bool) -> Scores:
        if client != self.config.name:
            raise NotFoundError(f"this is the home of {self.config.name!r}, not of {client!r}.")
        self.witnessing.try_exchange(daily=True)
        return self.client.scores(x, at_home=self.halves.server if at_home else None)

    def close(self) -> None:
        """Close the connection."""
        self.link.close()
