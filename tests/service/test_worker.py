"""The worker ends with the service that started it, whatever it is doing."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from service.processes import Running, data
from splitwiper.store import ServerStore


def test_a_worker_in_the_middle_of_a_training_does_not_outlive_its_service(tmp_path: Path) -> None:
    server = Running(tmp_path, epochs=100_000)
    with closing(server.site("north")) as north:
        north.learn(data()["north"])
    store, end = ServerStore(tmp_path / "store"), time.monotonic() + 60
    while not (store.database.holder() or "").startswith("server training, by"):
        assert time.monotonic() < end, "no training began"
        time.sleep(0.05)
    worker = server.worker()
    server.kill()
    end = time.monotonic() + 20
    while Path(f"/proc/{worker}/cmdline").exists() and Path(f"/proc/{worker}/cmdline").read_bytes():
        assert time.monotonic() < end, "the worker goes on"
        time.sleep(0.1)
