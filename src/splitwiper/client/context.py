"""A client's folder, settings and key, and what follows from them; the time that everything takes is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from torch import nn

from splitwiper.client import pretrain as training
from splitwiper.client.group import Group
from splitwiper.client.hiding import Hiding
from splitwiper.client.holdings import Holdings
from splitwiper.config import ClientConfig, config_digest, from_dict, read_toml
from splitwiper.data.labels import as_learned
from splitwiper.errors import (
    AbsentClientError,
    CorruptError,
    SealError,
)
from splitwiper.masking.modes import mode_for
from splitwiper.seeding import mac
from splitwiper.splitting import identity
from splitwiper.store import ClientTree
from splitwiper.wire import Column, Label, Link, Spent, Statement
from splitwiper.wire.labels import in_order

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""


class ClientContext:
    """A client's folder, its half and its link to the server. What it does within `_timed` is counted."""

    def __init__(
        self,
        tree: ClientTree,
        half: nn.Module,
        columns: Sequence[Column],
        link: Link,
        progress: Progress | None = None,
    ) -> None:
        if not (tree.root / "client.db").exists():
            raise AbsentClientError(
                f"the folder of client {tree.root.name!r} is not here ({tree.root}). Its rows live there alone: "
                "bring the folder back. Only if it is lost: forget the whole client (everything=True), which needs "
                "only the server."
            )
        self.tree = tree
        self.name = tree.root.name
        self.config = from_dict(ClientConfig, read_toml(tree.root / "config.toml"))
        self._check_tree()
        self.holdings = Holdings(tree, self.config)
        self._half = half
        self._columns = tuple(columns)
        self._link = link
        self._progress = self._wrapped(progress) if progress else None
        self._of_callback: BaseException | None = None
        self._seconds = 0.0
        self._since: float | None = None

    def _wrapped(self, progress: Progress) -> Progress:
        """The caller's function, and a note of what it raises: that says nothing of the rows."""

        def tell(what: str, done: int, total: int) -> None:
            try:
                progress(what, done, total)
            except BaseException as problem:
                self._of_callback = problem
                raise

        return tell

    @property
    def network(self) -> str:
        """The identity of the client half at hand: its code and constants, whatever its weights."""
        return identity(self._half)

    def _check_tree(self) -> None:
        """Refuse a folder that is a copy of another client's, or whose settings were changed by hand.

        Raises:
            CorruptError: it is, or they were.
        """
        with suppress(SealError):  # without its key a client can still be looked at
            self.tree.book.check()
        owner = self.tree.book.meta("name")
        if owner != self.name:
            raise CorruptError(
                f"{self.tree.root} is a copy of the folder of client {owner!r}: what that client forgets would live on "
                "in it. Remove the copy, and learn under the new name."
            )
        if self.tree.book.meta("config") != config_digest(self.config, seed=self.seed):
            raise CorruptError(f"{self.tree.root / 'config.toml'} is not what the client joined with: restore it.")

    @property
    def task(self) -> str:
        """The task its labels belong to."""
        return self.tree.book.meta("task") or ""

    @property
    def seed(self) -> int:
        """The federation's root seed."""
        return self.tree.book.number("seed")

    def _key(self) -> bytes:
        key = self.tree.key()
        if key is None or mac(key, "key").hex() != self.tree.book.meta("key"):
            raise CorruptError(
                f"the key of client {self.name!r} ({self.tree.root / 'key'}) is gone or another one: restore it. "
                "Without it, forgotten rows could not be told from new ones."
            )
        return key

    def _recipe(self) -> training.Recipe:
        columns = self.holdings.columns
        return training.Recipe(
            name=self.name,
            seed=self.seed,
            config=self.config,
            key=self._key(),
            half=self._half,
            initial=self.tree.initial(),
            initial_digest=self.tree.book.meta("initial") or "",
            call=self.holdings.call,
            names=tuple(c.name for c in columns),
            floats=tuple(c.name for c in columns if c.dtype.startswith("F")),
            hiding=self._hiding(),
        )

    def _hiding(self) -> Hiding | None:
        masking = self.config.masking
        group = self.group
        if not masking.is_on:
            return None
        book = group.codebook()
        return Hiding(book, mode_for(masking, group.key(), book.version), masking)

    @property
    def group(self) -> Group:
        """What it shares with the other clients to hide labels."""
        return Group(self.tree)

    def labels(self) -> tuple[Label, ...]:
        """The labels it holds, those of the closed set that its settings name, and those it was asked to bring up."""
        named = {Label(self.task, as_learned(name)) for name in self.config.labels}
        return in_order({label for _, label in self.holdings.surviving()} | named | self.group.wished())

    def statement(self, tickets: Sequence[str] = (), *, salt: str = "", coded: bool = True) -> Statement:
        """What the server is told with an upload: nothing it could read the client's settings from.

        Args:
            tickets: those that are answered.
            salt: of the commitment to the shard.
            coded: name the codebook, where there is one; to withdraw rows none is needed.
        """
        key = self._key()
        half = self.tree.half()
        book = self.group.codebook() if coded and self.group.has_codebook() else None
        return Statement(
            config=mac(key, "config", config_digest(self.config, seed=self.seed)).hex(),
            initial=mac(key, "initial", self.tree.book.meta("initial") or "").hex(),
            key=mac(key, "key").hex(),
            fingerprint=half[1] if half else {},
            tickets=tuple(tickets),
            spent=self.take_spent() + Spent(seconds=self.tree.asking_seconds(tickets)),
            codebook=book.id if book else "",
            outputs=book.outputs if book else 0,
            salt=salt,
        )

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the time this takes; what is nested counts once."""
        if self._since is not None:
            yield
            return
        self._since = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - self._since
            self._since = None

    def take_spent(self) -> Spent:
        """What was spent since this was last asked, work under way included."""
        if self._since is not None:
            now = time.perf_counter()
            self._seconds += now - self._since
            self._since = now
        spent, self._seconds = Spent(seconds=self._seconds), 0.0
        return spent
