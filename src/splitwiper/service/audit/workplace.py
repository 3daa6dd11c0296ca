"""The auditor's copy of the server: the model that it built itself, first weights, and shards in a store of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load

from splitwiper.config import Config, ServerConfig, config_digest, from_dict, read_toml
from splitwiper.errors import SplitWiperError
from splitwiper.federation.build import build_halves
from splitwiper.federation.folder import remembered
from splitwiper.seeding import state_digest
from splitwiper.server import Server
from splitwiper.service.audit.config import AuditConfig
from splitwiper.service.audit.source import AuditLink
from splitwiper.service.certificate.findings import Finding
from splitwiper.store import ModelRecord, ServerTree, files, manifest_digest
from splitwiper.store.replay import Replay
from splitwiper.store.tensors import load_state
from splitwiper.wire import Statement, open_shard

Progress = Callable[[str, int, int], None]


class Workplace:
    """Where an auditor recomputes.

    Args:
        config: the auditor's settings.
        link: the server.
        played: its ledger.
        place: the folder.
        progress: told of long work.
    """

    def __init__(
        self, config: AuditConfig, link: AuditLink, played: Replay, place: Path, progress: Progress | None
    ) -> None:
        self._config, self.link, self._made, self.place, self._progress = config, link, played.made, place, progress
        self.tree = ServerTree(place / "store")
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        """A server over the copy; there once it is prepared."""
        if self._server is None:
            raise AssertionError("prepare comes first")
        return self._server

    def prepare(self, shards: Sequence[Mapping[str, Any]], model: ModelRecord | None) -> Iterator[Finding]:
        """Download settings, first weights, shards and model, check each, and put them together."""
        seed, text = int(self._made["seed"]), str(self.link.settings()["config"])
        path = self.place / "config.toml"
        path.write_text(text, encoding="utf-8")
        server = from_dict(ServerConfig, read_toml(path))
        config = Config(seed=seed, model=self._config.model, server=server)
        halves = build_halves(config)
        own = remembered(halves, config, codec=str(self._made["codec"]))
        own["run"] = str(self._made["run"])
        if odd := [name for name, value in own.items() if self._made.get(name) != value]:
            detail = f"the server's model or settings are not those that the auditor knows: {', '.join(odd)}"
            yield Finding("settings", "mismatch", detail)
            return
        told = f"the server's are those in the ledger's first entry, digest {config_digest(server, seed=seed)[:16]}"
        yield Finding("settings", "holds", f"{told}; the model is the auditor's own")
        first = load_state(self.link.download("/v1/audit/initial", self.place / "initial.safetensors"))
        client = load(self.link.initial())
        if (state_digest(first), state_digest(client)) != (self._made["initial"], self._made["client-initial"]):
            yield Finding("first weights", "mismatch", "they are not those in the ledger's first entry")
            return
        head = f"{halves.server.head_name}."
        built = {name: t for name, t in halves.server.state_dict().items() if not name.startswith(head)}
        if state_digest(built) == state_digest(first):
            yield Finding("first weights", "holds", "those of the ledger's first entry; the model is built with them")
        else:
            yield Finding("first weights", "unchecked", "those of the ledger; building the model here gives others")
        meta = {name: str(value) for name, value in self._made.items() if name in own}
        self.tree.create(config=text, initial=first, client_initial=client, meta=meta)
        yield from self._take(shards)
        if model is not None and manifest_digest(self.tree.shards()) != model.manifest:
            yield Finding("manifest", "mismatch", "the model was trained from other shards than the server hands out")
        self._server = Server(self.tree, halves.server, self._progress)

    def _take(self, shards: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
        """Download shards one by one; each must have the digest that its site signed."""
        for number, told in enumerate(shards):
            client = str(told["client"])
            if self._progress:
                self._progress("downloading shards", number, len(shards))
            path = self.link.download(f"/v1/audit/shards/{client}", self.place / files.random_name("shard"))
            if files.file_digest(path) != told["digest"]:
                yield Finding(f"shard of {client}", "mismatch", "what the server hands out is not what its site signed")
                continue
            said = Statement(
                "", "", "", {}, salt=str(told["salt"]), codebook=str(told["codebook"]), outputs=int(told["outputs"])
            )
            try:
                with self.tree.staging(path) as staged:
                    self.tree.accept(client, staged, open_shard(staged), said)
            except SplitWiperError as problem:
                yield Finding(f"shard of {client}", "mismatch", f"it cannot be read: {problem}")
            path.unlink(missing_ok=True)
