"""The auditor's copy of the server: the model as built here, first weights, and the shards in a store of its own."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from splitwiper.checks import Check, CheckFailed, run_check
from splitwiper.config import Config, ServerConfig, config_digest, from_dict, read_toml
from splitwiper.config.settings import outside_paths
from splitwiper.errors import (
    BusyError,
    ConfigError,
    CorruptError,
    DataError,
    DiskFullError,
    FormatError,
    InputError,
    NotFoundError,
)
from splitwiper.federation.build import build_halves
from splitwiper.federation.folder import remembered, without_output_layer
from splitwiper.formats import size
from splitwiper.progress import Progress
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.service.audit.config import AuditConfig
from splitwiper.service.audit.source import AuditLink, ManifestShape
from splitwiper.splitting import Halves
from splitwiper.store import ModelRecord, ServerStore, files, manifest_digest
from splitwiper.store.tensors import load_state
from splitwiper.wire import Statement, open_shard
from splitwiper.wire.codecs import prepare
from splitwiper.wire.shard_check import check_shard

_SETTINGS = "config.toml"
HEADER = 1 << 20
"""Bytes that a file of tensors may have besides the tensors."""


@dataclass
class Workplace:
    """The place where an auditor recomputes: a folder with a copy of what the manifest lists.

    ``made`` is the ledger's first entry: what the server committed to when its store was made.
    """

    config: AuditConfig
    link: AuditLink
    manifest: ManifestShape
    made: Mapping[str, Any]
    folder: Path
    progress: Progress | None
    server: Server = field(init=False)
    """The `Server` over the copy; set at the end of `prepare`."""

    def __post_init__(self) -> None:
        self.store = ServerStore(self.folder / "store")

    def prepare(self, model: ModelRecord | None, *, sampled: bool) -> Iterator[Check]:
        """Download settings, first weights and shards, check each, and build the copy.

        Raises:
            InputError: single epochs are to be recomputed (``sampled``), and the server keeps no transcript.
            BusyError: a shard was replaced during the audit.
            NotFoundError: the server does not hand out what it lists.
        """
        settings = run_check("settings", partial(self._build, sampled=sampled))
        yield settings
        if settings.outcome != "holds":
            return
        halves = self._halves
        # an unreadable file counts as empty weights, which have another digest
        first = self.state("/v1/audit/initial", _bytes(halves.server) + HEADER)
        client = self.state("/v1/initial", _bytes(halves.client) + HEADER)
        if (state_digest(first), state_digest(client)) != (self.made["initial"], self.made["client-initial"]):
            yield Check("first weights", "mismatch", "they are not those in the ledger's first entry")
            return
        yield _built(halves, first)
        meta = {name: str(self.made[name]) for name in self._own}
        config = (self.folder / _SETTINGS).read_text(encoding="utf-8")
        self.store.create(config=config, initial=first, client_initial=client, meta=meta)
        yield from self._take()
        if model is not None and manifest_digest(self.store.shards()) != model.manifest:
            yield Check("manifest", "mismatch", "the model was trained from other shards than the server hands out")
        self.server = Server(self.store, halves.server, self.progress)

    def _build(self, *, sampled: bool) -> str:
        """Download the server's settings, and build the auditor's own model with them; see `run_check`."""
        path = self.folder / _SETTINGS
        files.write_bytes(path, self.link.settings().encode())
        try:
            seed, server = int(self.made["seed"]), from_dict(ServerConfig, read_toml(path))
        except (ConfigError, ValueError) as problem:
            raise CheckFailed(f"the server's settings cannot be read: {problem}") from problem
        if sampled and not server.transcript:
            raise InputError(
                "this server keeps no transcript (transcript = false), so no single epochs can be recomputed: leave "
                "--epochs out, to recompute all."
            )
        # before anything is built: the server's settings must not make the auditor import code
        if foreign := self._foreign(server):
            raise CheckFailed(
                f"the server uses {foreign}, which is not in 'parts' of the auditor's file: nothing was imported"
            )
        try:
            prepare(str(self.made["codec"]))
        except ConfigError as problem:
            raise CheckFailed(problem) from problem
        config = Config(seed=seed, model=self.config.model, server=server)
        self._halves = build_halves(config)
        self._own = remembered(self._halves, config, codec=str(self.made["codec"]), run=str(self.made["run"]))
        if different := [name for name, value in self._own.items() if self.made.get(name) != value]:
            raise CheckFailed(
                f"the server's model or settings are not those that the auditor knows: {', '.join(different)}; check "
                "[model] in the auditor's file first"
            )
        digest = config_digest(server, seed=seed)[:16]
        return f"the server's are those in the ledger's first entry, digest {digest}; the model is the auditor's own"

    def _foreign(self, server: ServerConfig) -> str:
        """Return a part from outside that the auditor's settings do not name; what the server says is not imported."""
        codec, known = str(self.made["codec"]), self.config.parts
        for path, _ in outside_paths(server).values():
            if path not in known:
                return path
        path = codec.partition(" ")[0]
        return path if ":" in codec and path not in known else ""

    def _take(self) -> Iterator[Check]:
        """Download shards one by one; each must have the digest that its site signed."""
        need, room = sum(shard.size for shard in self.manifest.shards), shutil.disk_usage(self.folder).free
        if need > room:
            lacking = f"the shards take {size(need)}, and {self.folder} has room for {size(room)}"
            raise DiskFullError(errno.ENOSPC, f"{lacking}: give --out a folder with more room")
        for number, shard in enumerate(self.manifest.shards):
            if self.progress:
                self.progress("downloading shards", number, len(self.manifest.shards))
            what, path = f"shard of {shard.client}", self.folder / files.random_name("shard")
            self._download(f"/v1/audit/shards/{shard.client}", path, shard.size)
            # not yet a mismatch: the site may have replaced its shard during the audit
            if files.file_digest(path) != shard.digest:
                self.check_not_replaced()
                yield Check(what, "mismatch", "what the server hands out is not what its site signed")
                continue
            statement = Statement("", "", "", {}, salt=shard.salt, codebook=shard.codebook, outputs=shard.outputs)
            try:
                with self.store.staging(path) as staged:
                    opened = open_shard(staged)
                    check_shard(opened, self.store.columns(), str(self.made["codec"]))
                    self.store.accept(shard.client, staged, opened, statement)
            except (CorruptError, DataError, FormatError) as problem:
                yield Check(what, "mismatch", f"it cannot be trained on: {problem}".removesuffix("."))
            path.unlink(missing_ok=True)

    def state(self, place: str, most: int, digest: str | None = None) -> dict[str, Tensor]:
        """Download tensors, at most ``most`` bytes; return an empty dict if the file cannot be read.

        If they have another digest than the server listed, raise `BusyError` if the model was replaced meanwhile.
        """
        file = self._download(place, self.folder / files.random_name("state"), most)
        try:
            state = load_state(file)
        except CorruptError:
            state = {}
        finally:
            file.unlink()
        if digest is not None and state_digest(state) != digest:
            self.check_not_replaced()
        return state

    def _download(self, place: str, target: Path, most: int) -> Path:
        try:
            return self.link.download(place, target, most=most)
        except NotFoundError as problem:
            self.check_not_replaced()
            raise NotFoundError(f"the server lists what it does not hand out: {problem}") from problem

    def check_not_replaced(self) -> None:
        """Raise `BusyError` unless the server still has the state under audit."""
        if not self.link.manifest().is_same(self.manifest):
            raise BusyError("a shard or the model was replaced during the audit: nothing was signed. Run it again.")


def _built(halves: Halves, first: Mapping[str, Tensor]) -> Check:
    """Report whether building the model reproduces the ledger's first weights."""
    built = without_output_layer(halves.server, halves.server.state_dict())
    if state_digest(built) == state_digest(first):
        return Check("first weights", "holds", "those of the ledger's first entry; the model is built with them")
    return Check("first weights", "unchecked", "those of the ledger; building the model here gives others")


def _bytes(half: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in half.state_dict().values())
