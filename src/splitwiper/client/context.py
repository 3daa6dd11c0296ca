"""A client's folder, settings and key, and everything derived from them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import Tensor, nn

from splitwiper.client import pretrain
from splitwiper.client.group import Group
from splitwiper.client.hiding import Hiding
from splitwiper.client.row_store import RowStore
from splitwiper.config import ClientConfig, config_digest, from_dict, read_toml, to_toml
from splitwiper.config.settings import outside_paths
from splitwiper.data.labels import as_learned
from splitwiper.errors import AbsentClientError, CorruptError, SealError
from splitwiper.masking.modes import mode_for
from splitwiper.progress import Progress
from splitwiper.seeding import mac, seeded_key
from splitwiper.store import ClientStore
from splitwiper.wire import Column, Label, Link, Spent, Statement
from splitwiper.wire.labels import in_order


def create_client(
    folder: Path,
    config: ClientConfig,
    *,
    initial: Mapping[str, Tensor],
    seed: int,
    federation: str,
    network: str,
    task: str = "",
    group: bytes | None = None,
    **more: str,
) -> ClientStore:
    """Create a client's folder, named after the client, and return its store. An existing one is kept.

    ``network`` is the identity of the client half; ``more`` are further values for the client's database.
    """
    store = ClientStore(folder)
    store.create(
        config=to_toml(config),
        initial=initial,
        meta={
            "name": folder.name,
            "task": task,
            "seed": str(seed),
            "config": config_digest(config, seed=seed),
            "federation": federation,
            "model": network,
            **more,
        },
        key=seeded_key(seed, folder.name) if config.keys == "seeded" else None,
        group=group,
    )
    return store


class ClientContext:
    """A client's folder, its half and its link to the server. Work within `timed` is counted.

    Args:
        store: the client's store.
        half: the architecture of its half.
        columns: the columns that cross the cut.
        link: the link to the server.
        progress: called during long work.
        one_party: whether one party runs the server and all clients. It can then request forgetting in this client's
            name while the folder is away, and nobody else can write on the relay.
    """

    def __init__(
        self,
        store: ClientStore,
        half: nn.Module,
        columns: Sequence[Column],
        link: Link,
        progress: Progress | None = None,
        *,
        one_party: bool = False,
    ) -> None:
        if not (store.root / "client.db").exists():
            raise AbsentClientError(
                f"the folder of client {store.root.name!r} is not here ({store.root}). Its rows live there alone: "
                "bring the folder back. Only if it is lost: forget the whole client (everything=True), which needs "
                "only the server."
            )
        self.store = store
        self.name = store.root.name
        self.config = from_dict(ClientConfig, read_toml(store.root / "config.toml"))
        self._check_store()
        self.holdings = RowStore(store, self.config)
        self._half = half
        self._columns = tuple(columns)
        self._link = link
        self._one_party = one_party
        self._progress = self._wrapped(progress) if progress else None
        self._of_callback: BaseException | None = None
        self._seconds = 0.0
        self._since: float | None = None

    def _wrapped(self, progress: Progress) -> Progress:
        """Wrap the caller's function to record what it raises: such an error says nothing about the rows."""

        def tell(what: str, done: int, total: int, /, loss: float | None = None) -> None:
            try:
                progress(what, done, total, loss=loss)
            except BaseException as problem:
                self._of_callback = problem
                raise

        return tell

    def _check_store(self) -> None:
        """Refuse a folder that is a copy of another client's, or whose settings were changed by hand."""
        with suppress(SealError):  # a client can be inspected without its key
            self.store.database.check()
        owner = self.store.database.meta("name")
        if owner != self.name:
            raise CorruptError(
                f"{self.store.root} is a copy of the folder of client {owner!r}: what that client forgets would "
                "live on in it. Remove the copy, and learn under the new name."
            )
        if self.store.database.meta("config") != config_digest(self.config, seed=self.seed):
            outside = {path for path, _ in outside_paths(self.config).values()}
            code = f", or the code of {', '.join(sorted(outside))} is another version" if outside else ""
            file = self.store.root / "config.toml"
            raise CorruptError(f"{file} is not what the client joined with{code}: restore it.")

    @property
    def task(self) -> str:
        """The task its labels belong to."""
        return self.store.database.meta("task") or ""

    @property
    def seed(self) -> int:
        """The federation's root seed."""
        return self.store.database.number("seed")

    def _key(self) -> bytes:
        key = self.store.key()
        if key is None or mac(key, "key").hex() != self.store.database.meta("key"):
            raise CorruptError(
                f"the key of client {self.name!r} ({self.store.root / 'key'}) is gone or another one: restore it. "
                "Without it, forgotten rows could not be told from new ones."
            )
        return key

    def _half_inputs(self) -> pretrain.ClientHalfInputs:
        columns, masking, hiding = self.holdings.columns, self.config.masking, None
        if masking.is_on:
            codebook = self.group.codebook()
            hiding = Hiding(codebook, mode_for(masking, self.group.key(), codebook.version), masking)
        return pretrain.ClientHalfInputs(
            name=self.name,
            seed=self.seed,
            config=self.config,
            key=self._key(),
            half=self._half,
            initial=self.store.initial(),
            initial_digest=self.store.database.meta("initial") or "",
            call=self.holdings.call,
            names=tuple(c.name for c in columns),
            floats=tuple(c.name for c in columns if c.dtype.startswith("F")),
            hiding=hiding,
        )

    @property
    def group(self) -> Group:
        """The state it shares with the other clients to hide labels."""
        return Group(self.store)

    def labels(self) -> tuple[Label, ...]:
        """Return the labels it holds, those of the closed set in its settings, and those it was asked to propose."""
        named = {Label(self.task, as_learned(name)) for name in self.config.labels}
        return in_order(named.union(self.holdings.labels(), self.group.wished()))

    def statement(self, tickets: Sequence[str] = (), *, salt: str = "", coded: bool = True) -> Statement:
        """Return the statement that accompanies an upload: the server cannot read the client's settings from it.

        It names the codebook, if there is one, unless ``coded`` is False: withdrawing rows needs none.
        """
        key = self._key()
        half = self.store.half()
        codebook = self.group.codebook() if coded and self.group.has_codebook() else None
        return Statement(
            config=mac(key, "config", config_digest(self.config, seed=self.seed)).hex(),
            initial=mac(key, "initial", self.store.database.meta("initial") or "").hex(),
            key=mac(key, "key").hex(),
            fingerprint=half[1] if half else {},
            tickets=tuple(tickets),
            spent=self.take_spent() + Spent(seconds=self.store.asking_seconds(tickets)),
            codebook=codebook.id if codebook else "",
            outputs=codebook.outputs if codebook else 0,
            salt=salt,
        )

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time this takes; nested calls count once."""
        if self._since is not None:
            yield
            return
        self._since = time.perf_counter()
        try:
            yield
        finally:
            # not from the start: `take_spent` may have been called meanwhile, and moved `_since`
            self._seconds += time.perf_counter() - self._since
            self._since = None

    def take_spent(self) -> Spent:
        """Return the cost since the last call, including work in progress."""
        if self._since is not None:
            now = time.perf_counter()
            self._seconds += now - self._since
            self._since = now
        spent, self._seconds = Spent(seconds=self._seconds), 0.0
        return spent
