"""The clients of a federation: their folders, how they join, and their marks."""

from __future__ import annotations

import reprlib
import threading
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from torch import Tensor, nn

from splitwiper.client import Client, check_rows
from splitwiper.client.context import create_client
from splitwiper.client.group import Group
from splitwiper.config import Config, config_digest
from splitwiper.config.settings import outside_paths
from splitwiper.data.labels import alike, told_apart
from splitwiper.data.rows import Rows, is_wide
from splitwiper.data.sources import NAME
from splitwiper.errors import (
    ConfigError,
    CorruptError,
    DataError,
    InputError,
    NotFoundError,
    SealError,
    StoreError,
    nearest,
)
from splitwiper.federation.folder import drawn
from splitwiper.federation.status import differs
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.negotiation import Negotiation
from splitwiper.masking.sealing import GroupKey, check_sealing, invitation
from splitwiper.progress import Progress
from splitwiper.reading import read_bytes
from splitwiper.seeding import Stream, seeded_key
from splitwiper.server import Server
from splitwiper.splitting import Halves, identity, libraries
from splitwiper.store import ClientStore, files, ledger
from splitwiper.store.ledger import Head
from splitwiper.store.relay import version_of
from splitwiper.store.tensors import load_state
from splitwiper.wire import Label
from splitwiper.wire.metering import MeteredLink

TWIN_CODEBOOK = "codebook"
"""File in which a twin finds the codebook that its client joins with."""
TWIN_COLUMN_ORDER = "features"
"""File in which a twin finds the column order of its client's tables, as JSON."""
_OPEN = 5
"""Clients that stay open from one step of a call to the next, so that open files do not grow with their number."""


class _OpenClients(threading.local):
    """The clients that a call has opened: each thread has its own, since threads must not share a transaction."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        """Clients in the order of their last use."""


class ClientRegistry:
    """Clients by name. Clients on this machine have a folder; the server may know others."""

    def __init__(
        self,
        path: Path,
        halves: Halves,
        config: Config,
        server: Server,
        link: MeteredLink,
        progress: Progress | None,
        invitation: str | None = None,
    ) -> None:
        self._invitation = invitation
        self._identities: dict[nn.Module, str] = {}
        self._opened = _OpenClients()
        self.config, self.server, self.link, self.progress = config, server, link, progress
        self._path, self._halves = path, halves
        self._folder, self._pending = path / "clients", path / "pending"

    @contextmanager
    def call(self) -> Iterator[None]:
        """Begin a call, for which each client is opened anew, and closed at its end.

        What stayed open would keep erased files on the disk. A call from a callback has its own clients.
        """
        self.look_again()
        outer, self._opened.clients = self._opened.clients, {}
        try:
            yield
        finally:
            self._opened.clients = outer

    def look_again(self) -> None:
        """Check that the run still exists, and that no half was changed since it was opened.

        A hook, a dropout rate or a dtype is easily changed, and the results would then be another network's.
        Halves that single clients brought are compared when `client` returns one of these.
        """
        if not self.server.store.database.path.exists():
            raise NotFoundError(
                f"the run in {self._path} was moved or deleted while it was open: put it back, or open it where it is "
                "now. Nothing of it was changed."
            )
        self._identities.clear()
        for half, kept, side in (
            (self._halves.client, "architecture", "client"),
            (self._halves.server, "model", "server"),
        ):
            if self._identity(half) != self.server.store.database.meta(kept):
                raise InputError(
                    f"the {side} half was changed after {self._path} was opened: a setting of a layer, a hook, a "
                    "dtype, what is trained, or a global that its code reads. Change it back, or open the run again "
                    "with the model it was made with. Nothing was computed with it."
                )

        if (names := self.outside_parts()) and self.altered_settings():  # digests of settings cover the parts' code
            raise InputError(
                f"one of the parts from outside that {self._path} was made with computes something else than when it "
                f"was opened: {', '.join(names)}. A part must not change its own code, attributes or globals. Nothing "
                "was computed with it."
            )

    def outside_parts(self) -> list[str]:
        """Return the import paths of parts from other packages."""
        return sorted({path for path, _ in outside_paths(self.config).values()})

    def altered_settings(self) -> str:
        """Return whose settings, or parts, are not those that the databases record; empty if all are."""
        config, database = self.config, self.server.store.database
        recorded = database.meta("config"), database.meta("seed")
        if recorded != (config_digest(config.server, seed=config.seed), str(config.seed)):
            return "the server's"
        for name in self.here()[:1]:  # clients' own settings are checked when each is opened
            if self._meta(name, "config") != config_digest(config.client, seed=config.seed):
                return "the clients'"
        return ""

    # --- who there is --------------------------------------------------------------------------------------

    def here(self) -> list[str]:
        """Return clients whose folders are here, sorted."""
        return [p.name for p in files.listed(self._folder) if self.has_joined(p.name)]

    def has_joined(self, name: str) -> bool:
        """Return whether a client's folder is here."""
        return (self._folder / name / "client.db").exists()

    def everybody(self) -> tuple[str, ...]:
        """Return every client the federation knows, including those that left."""
        return tuple(sorted({*self.server.store.clients(), *self.here()}))

    def client(self, name: str) -> Client:
        """Return an existing client, opened once in a call unless there are many. Raises what `open` raises."""
        opened = self._opened.clients
        client = opened.pop(name, None) if isinstance(name, str) and self.has_joined(name) else None
        client = opened[name] = client or self.open(name)
        if len(opened) > _OPEN:
            opened.pop(next(iter(opened)))
        return client

    def open(self, name: str) -> Client:
        """Open an existing client.

        Raises:
            NotFoundError: no client has this name.
            InputError: it joined with another client half.
        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise NotFoundError(
                f"there is no client {reprlib.repr(name)}: names have letters, digits, '.', '_' and '-' only."
            )
        if not self.has_joined(name) and not self.server.store.knows(name):
            raise NotFoundError(f"there is no client {name!r}.{nearest(name, self.everybody())}")
        half = self._halves.client_for(name)
        store = ClientStore(self._folder / name)
        client = Client(store, half, self.server.columns, self.link, self.progress, one_party=True)
        if client.store.database.meta("model") != self._identity(half):
            raise InputError(
                f"client {name!r} joined with another client half: the model's code or constants differ, or the "
                f"version of a library it comes from{libraries(half)}. Open the run with the halves it had."
            )
        return client

    def _identity(self, half: nn.Module) -> str:
        if half not in self._identities:
            self._identities[half] = identity(half)
        return self._identities[half]

    def is_wide(self, name: str) -> bool:
        """Return whether a client's half computes in float64."""
        return is_wide(self._halves.client_for(name))

    def _meta(self, name: str, key: str) -> str | None:
        """Return a value from a client's database."""
        with closing(ClientStore(self._folder / name).database) as database:
            return database.meta(key)

    def is_behind(self, name: str) -> bool:
        """Return whether a client's own database, or the server's, shows work that the client has not done."""
        store = ClientStore(self._folder / name)
        try:
            store.database.check()
            return differs(store, self.server.store)
        except (CorruptError, SealError):  # reported when the client is worked on
            return True
        finally:
            store.database.close()

    def went_back(self) -> set[str]:
        """Return clients that remember a head missing from the server's ledger, whose folder is then an older copy."""
        ahead = set()
        for name in self.here():
            with suppress(StoreError):  # reported when the client is worked on
                kept = self._meta(name, "head")
                if kept and not ledger.has(self.server.store.database, Head.parse(kept)):
                    ahead.add(name)
        return ahead

    def is_untrainable(self, name: str) -> bool:
        """Return whether a client's rows cannot be trained on, so that the server rightly holds none of them."""
        return bool(self._meta(name, "untrainable"))

    # --- joining -------------------------------------------------------------------------------------------

    def check(self, name: str, rows: Rows, task: str, codebook: Codebook | None = None) -> None:
        """Refuse a client's rows before any client's rows are kept."""
        if self.has_joined(name):
            client = self.client(name)
            if client.task != task:
                raise DataError(f"client {name!r} joined for task {client.task!r}, not {task!r}; give it another name.")
            client.check(rows, codebook)
            return
        half, columns = self._halves.client_for(name), self.server.columns
        check_rows(rows, client=name, config=self.config.client, half=half, columns=columns)
        self._check_invitation(name)
        if codebook is not None:
            codebook.check(rows.labels)

    def join(self, name: str, task: str) -> Client:
        """Return an existing client, or create one that starts from the federation's initial weights."""
        if not self.has_joined(name):
            if self.server.store.shard(name) is not None:
                self.client(name)  # raises: the server holds its shard, but its folder is missing
            features = self._folder / name / TWIN_COLUMN_ORDER
            create_client(
                self._folder / name,
                self.config.client,
                initial=self._first_weights(name),
                seed=self.config.seed,
                federation=self.federation,
                network=self._identity(self._halves.client_for(name)),
                task=task,
                group=self._group(name) if self.config.client.masking.is_on else None,
                **({TWIN_COLUMN_ORDER: read_bytes(features).decode()} if features.exists() else {}),
            )
            files.erase(features)
            handed = self._folder / name / TWIN_CODEBOOK
            if handed.exists():
                client = self.client(name)
                client.group.take(Codebook.opened(read_bytes(handed), client.group.key()), ())
                files.erase(handed)
        return self.client(name)

    @property
    def federation(self) -> str:
        """The federation's id. A twin has the same."""
        return self.server.store.database.meta("run") or ""

    def _group(self, name: str) -> bytes:
        """Return the group key of a joining client: handed to a twin, from the invitation, or from other clients."""
        if (handed := ClientStore(self._folder / name).group()) is not None:
            return handed
        if self._invitation is not None:
            return GroupKey.of(self._invitation, federation=self.federation).raw
        if self.config.client.keys == "seeded":
            return seeded_key(self.config.seed, "@group")
        for other in self.here():
            if (key := ClientStore(self._folder / other).group()) is not None:
                return key
        return GroupKey.of(invitation(), federation=self.federation).raw

    def _check_invitation(self, name: str) -> None:
        """Refuse an invitation that does not open the others' messages."""
        topic = self.link.topic()
        if self.config.client.masking.is_on and topic:
            Negotiation(self.link, GroupKey(self.federation, self._group(name)), version_of(topic)).listen()

    def codebook(self) -> Codebook | None:
        """Return the newest codebook of the clients here; None if there is none, or labels are not hidden."""
        newest: Codebook | None = None
        for name in self.here() if self.config.client.masking.is_on else ():
            with suppress(CorruptError):  # one client's damage does not concern the others
                group = Group(ClientStore(self._folder / name))
                if group.has_codebook(newest.version + 1 if newest else 1):
                    newest = group.codebook()
        return newest

    def check_labels(self, given: Mapping[str, AbstractSet[Label]]) -> None:
        """Refuse labels that there are too few codes for, or that read like others, before anything is stored."""
        whose = dict[Label, str]()  # with hidden labels the server holds only codes, and clients agree among themselves
        for shard in () if self.config.client.masking.is_on else self.server.store.shards():
            whose |= dict.fromkeys(shard.labels, f"client {shard.client!r}")
        for name, labels in given.items():
            whose |= dict.fromkeys(labels, f"client {name!r}")
        for name, labels in given.items():
            for label, other in alike(labels, whose.keys()):
                raise DataError(
                    f"client {name!r} has the label {label.name!r}, and {whose[other]} has {other.name!r}: "
                    f"{told_apart(label, other)} Give {other.name!r} in both, or name another task for one of them."
                )
        masking, count = self.config.client.masking, len(set[Label]().union(*given.values()))
        if masking.is_on:
            check_sealing()
        if masking.mode == "keyed" and 0 < masking.codes < count:
            raise ConfigError(
                f"masking.codes = {masking.codes} is fewer than the {count} labels: give at least as many, in a new "
                "run."
            )

    def _first_weights(self, name: str) -> Mapping[str, Tensor]:
        """Return a new client's initial weights: handed to a twin, its own half's, drawn for it, or the shared ones."""
        handed = self._folder / name / "initial.safetensors"
        if handed.exists():
            return load_state(handed)
        half = self._halves.client_for(name)
        if self.config.client.init == "independent":
            return drawn(half, Stream(self.config.seed, "client-init", name))
        return half.state_dict() if name in self._halves.clients else self.server.store.client_initial()

    # --- marks ---------------------------------------------------------------------------------------------

    def mark_pending(self, name: str) -> None:
        """Record that a client is being worked on, before anything of it changes."""
        files.write_bytes(self._pending / name, b"")

    def unmark_pending(self, name: str) -> None:
        """Record that nothing is left to do for a client."""
        files.erase(self._pending / name)

    def marked(self) -> set[str]:
        """Return clients that were being worked on and may be unfinished."""
        for folder in (self._pending.parent, self._pending):
            files.sweep_abandoned(folder, stem=files.TEMPORARY)
        return {p.name for p in files.listed(self._pending)}
