"""The input of every system in a comparison: the network, first weights, settings, and clients' rows in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from splitwiper.client.checking import check_rows
from splitwiper.client.content import MAC_COLUMN, row_macs, sort_order
from splitwiper.config import Config
from splitwiper.data.rows import Data, Rows, as_rows
from splitwiper.data.tables import ColumnNames
from splitwiper.errors import DataError, RequestError, nearest
from splitwiper.federation.build import build_halves
from splitwiper.federation.folder import columns_of
from splitwiper.seeding import seeded_key
from splitwiper.splitting import Halves
from splitwiper.training.cache import Cache
from splitwiper.wire import Column, Label, Shard
from splitwiper.wire.columns import Array
from splitwiper.wire.labels import in_order
from splitwiper.wire.messages import Level
from splitwiper_lab.workloads import Workload


@dataclass(frozen=True, eq=False)
class Holding:
    """One client's rows, in SplitWiper's canonical order: by HMAC, each row once."""

    name: str
    call: str
    """How the network is called with the inputs, see `splitwiper.data.rows.Rows`."""
    columns: tuple[Column, ...]
    features: ColumnNames
    """The names of the columns of tables among the inputs."""
    shard: Shard = field(repr=False)
    given: Array = field(repr=False)
    """The present index of each row of the original data; -1 for rows that are gone."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs, in the network's order."""
        return tuple(column.name for column in self.columns)

    @property
    def inputs(self) -> dict[str, Array]:
        """The rows' inputs, by name."""
        return {name: self.shard.columns[name] for name in self.names}

    @property
    def codes(self) -> Array:
        """The label of each row, as an index into `labels`."""
        return self.shard.codes

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels that occur among the rows."""
        return self.shard.labels

    def __len__(self) -> int:
        return self.shard.rows

    def cache(self, labels: Sequence[Label]) -> Cache:
        """Return the rows as a cache for training, with labels numbered in the given order."""
        return Cache([self.shard], labels, names=self.names)

    def kept(self, keep: Array) -> Holding:
        """Return the rows that a mask keeps, in the same order."""
        shard = self.shard
        # a label without rows is left out, as in a problem that never had those rows: codes are numbered again
        present, codes = np.unique(shard.codes[keep], return_inverse=True)
        labels = tuple(map(shard.labels.__getitem__, present))
        columns = {name: column[keep] for name, column in shard.columns.items()}
        kept = Shard(shard.path, int(keep.sum()), columns, codes.astype(np.int32), labels)
        moved = np.where(keep, np.cumsum(keep) - 1, -1)
        return replace(self, shard=kept, given=np.where(self.given < 0, -1, moved[self.given]))


def holding(name: str, rows: Rows, *, key: bytes) -> Holding:
    """Put rows in canonical order. Rows with the same inputs and label count as one, as they do for SplitWiper."""
    macs = np.frombuffer(b"".join(row_macs(rows, key)), np.uint8).reshape(-1, 32)
    order = sort_order(macs)
    # equal rows have equal HMACs, so they follow each other; the first of each stands for all
    fresh = np.ones(len(order), bool)
    fresh[1:] = (macs[order][1:] != macs[order][:-1]).any(axis=1)
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(fresh) - 1
    chosen = order[fresh]
    labels = in_order(rows.labels)
    number = dict(zip(labels, range(len(labels)), strict=True))
    codes = np.fromiter(map(number.__getitem__, rows.labels), np.int32)[chosen]
    columns = {column: np.ascontiguousarray(array[chosen]) for column, array in rows.inputs.items()}
    shard = Shard(Path(), len(chosen), {**columns, MAC_COLUMN: macs[chosen]}, codes, labels)
    return Holding(name, rows.call, rows.columns, rows.features, shard, place)


@dataclass(frozen=True, eq=False)
class Forgetting:
    """One client's request to forget rows."""

    client: str
    level: Level
    gone: Array = field(repr=False)
    """A mask over the client's rows."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.gone.sum())


@dataclass(frozen=True, eq=False)
class Problem:
    """Clients with rows, a split network, and settings: what a system is trained on."""

    halves: Halves
    config: Config
    clients: Mapping[str, Holding]

    @classmethod
    def of(
        cls, halves: Halves, config: Config, data: Mapping[str, Data], *, tasks: Mapping[str, str] | None = None
    ) -> Problem:
        """Convert each client's data, in the form that `Federation.learn` accepts, to what all systems train on.

        A client's key, which orders its rows, is derived from the seed.

        Raises:
            DataError: no client has data, or some data cannot be learned from.
        """
        if not data:
            raise DataError("there are no clients; give data by client name.")
        clients, columns = {}, columns_of(halves.boundary)
        for name in sorted(data):
            rows = as_rows(data[name], task=(tasks or {}).get(name, ""))
            check_rows(rows, client=name, config=config.client, half=halves.client_for(name), columns=columns)
            clients[name] = holding(name, rows, key=seeded_key(config.seed, name))
        return cls(halves, config, clients)

    @classmethod
    def of_workload(cls, work: Workload) -> Problem:
        """Return the problem of a workload's training rows."""
        return cls.of(build_halves(work.config), work.config, work.train, tasks=work.tasks)

    @property
    def labels(self) -> tuple[Label, ...]:
        """Every label that some client holds."""
        return in_order(chain.from_iterable(held.labels for held in self.clients.values()))

    def choose(
        self,
        client: str,
        *,
        classes: Sequence[str | int] = (),
        samples: Sequence[int] | Array | None = None,
        everything: bool = False,
    ) -> Forgetting:
        """Choose rows to forget: by class, by index into the client's original data, or all.

        Raises:
            RequestError: there is no such client, class or row, or not exactly one of the three is given.
        """
        if client not in self.clients:
            hint = nearest(client, self.clients) or f" Clients are {', '.join(self.clients)}."
            raise RequestError(f"there is no client {client!r}.{hint}")
        if (len(classes) > 0) + (samples is not None) + everything != 1:
            raise RequestError("say what to forget: classes=[…], samples=[…] or everything=True, one of them.")
        if isinstance(classes, str):
            raise RequestError(f"classes = {classes!r} must be a list of labels.")
        held = self.clients[client]
        if everything:
            return Forgetting(client, "client", np.ones(len(held), bool))
        if samples is not None:
            return Forgetting(client, "sample", _at(held, samples))
        known = [label.name for label in held.labels]
        gone = np.zeros(len(held), bool)
        for name in classes:
            if name not in known:
                hint = nearest(repr(name), map(repr, known)) or f" It has {', '.join(map(repr, known))}."
                raise RequestError(f"client {client!r} has no rows of class {name!r}.{hint}")
            gone |= held.codes == known.index(name)
        return Forgetting(client, "class", gone)

    def without(self, forgetting: Forgetting) -> Problem:
        """Return the problem without the rows to forget. A client without rows is removed.

        Raises:
            RequestError: the request is not about these rows, or nothing is left.
        """
        left = dict(self.clients)
        held = left.pop(forgetting.client, None)
        if held is None or len(held) != len(forgetting.gone):
            raise RequestError(
                f"the request is not about the rows that {forgetting.client!r} has here; make it from this problem: "
                "problem.choose(…)."
            )
        if not forgetting.gone.all():
            left[forgetting.client] = held.kept(~forgetting.gone)
        if not left:
            raise RequestError(f"{forgetting.client!r} is the only client: nothing would be left to train on.")
        return replace(self, clients=dict(sorted(left.items())))


def _at(held: Holding, chosen: Sequence[int] | Array) -> Array:
    """Convert indices into a client's data to a mask over its rows."""
    samples = np.asarray(chosen).reshape(-1)
    if not len(samples):
        raise RequestError("samples=[] names no row.")
    if samples.dtype.kind not in "iu":
        raise RequestError(f"samples = {chosen!r} must be a list of row numbers (integers).")
    wrong = samples[(samples < 0) | (samples >= len(held.given))]
    if len(wrong):
        raise RequestError(f"client {held.name!r} has no row {wrong[0]}: its data has {len(held.given)} rows, from 0.")
    places = held.given[samples]
    if (places < 0).any():
        raise RequestError(f"client {held.name!r} has forgotten row {samples[places < 0][0]} already.")
    gone = np.zeros(len(held), bool)
    gone[places] = True
    return gone
