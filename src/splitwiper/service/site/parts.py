"""What a site consists of: its folder, its halves, its client, its key, and the checked link to its server."""

from __future__ import annotations

from pathlib import Path

from splitwiper.client import Client
from splitwiper.config import ClientConfig, Config, from_dict, read_toml
from splitwiper.errors import InputError, NotFoundError
from splitwiper.federation.build import build_halves
from splitwiper.progress import Progress
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.certificate import Keys, TreeHead
from splitwiper.service.site.config import check_name, connect, read_site
from splitwiper.service.site.own_key import OwnKey
from splitwiper.service.site.served import ModelWatch
from splitwiper.service.site.witnessing import Witnessing
from splitwiper.splitting import identity
from splitwiper.store import ClientStore
from splitwiper.store.records import columns_in, parsed
from splitwiper.wire import Column, Label, Ticket
from splitwiper.wire.codecs import prepare


class SiteParts:
    """A client's site, as far as it is needed to speak to its server."""

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
