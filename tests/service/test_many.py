"""Many clients at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from service.conftest import said, shard
from service.serving import certificates, service_over
from splitwiper.service.identity import client_context
from splitwiper.service.site.link import HttpsLink
from splitwiper.store import ServerStore


def test_forty_clients_join_at_once(run, tmp_path: Path) -> None:
    names = tuple(f"client-{number}" for number in range(40))
    certs, path = certificates(tmp_path / "own", names), shard(tmp_path / "s")

    def join(name: str) -> int:
        with closing(HttpsLink(url, client_context(certs / "clients" / name))) as link:
            link.federation()
            link.initial()
            return link.upload(name, path, said()).generation

    with service_over(run.path / "server", run.halves.server, certs) as url, ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(join, names)) == [1] * len(names)
    assert len(ServerStore(run.path / "server").shards()) == len(names)
