"""A site's other processes while a shard travels slowly: forgetting is at once, and a late shard is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reliability.test_fencing import run_out
from service.scene import Scene, found
from splitwiper.errors import FencedError
from splitwiper.service.site import Site


@contextmanager
def uploading(scene: Scene, rows: object) -> Iterator[tuple[threading.Event, list[BaseException]]]:
    """North learns more rows, and its upload is held up; what the thread raised is in the list in the end."""
    gate, raised = threading.Event(), list[BaseException]()

    def learn() -> None:
        try:
            with closing(Site(scene.folder / "north")) as site:
                site.learn(rows)
        except Exception as problem:
            raised.append(problem)

    scene.gates["PATCH"] = gate
    thread = threading.Thread(target=learn)
    thread.start()
    deadline = time.monotonic() + 60
    while "PATCH" in scene.gates and time.monotonic() < deadline and thread.is_alive():
        time.sleep(0.01)
    try:
        assert thread.is_alive(), raised
        yield gate, raised
    finally:
        gate.set()
        thread.join(60)


def test_forgetting_does_not_wait_for_a_slow_upload(tmp_path: Path, certs: Path) -> None:
    scene = Scene(tmp_path, certs)
    x, y = scene.rows["north"]
    with closing(Site(tmp_path / "north")) as other, uploading(scene, (x + 1, y)) as (gate, raised):
        ticket = other.forget(classes=["bird"])
        assert not gate.is_set()  # the shard with these rows is still on its way
        assert len(other.client.store.suppressed()) == 2 * int((y == "bird").sum())
    assert raised == []
    scene.north.settle(patience=30)
    scene.train()
    proof = scene.certificate(ticket)
    assert proof, proof.checked.reason
    assert found(proof)["shard before"] == found(proof)["shard after"] == "holds"
    assert "bird" not in {str(label.name) for label in scene.server_store.model().labels}
    scene.close()


def test_a_shard_that_comes_late_is_not_taken(tmp_path: Path, certs: Path) -> None:
    """One process sleeps through its lease while its shard travels; another takes over and forgets rows in it."""
    scene = Scene(tmp_path, certs)
    x, y = scene.rows["north"]
    with closing(Site(tmp_path / "north")) as other, uploading(scene, (x + 1, y)) as (gate, raised):
        run_out(tmp_path / "north" / "north" / "client.db")
        other.forget(classes=["bird"])
        other.settle(patience=30)
        newest = scene.server_store.shard("north")
        gate.set()
    assert [type(problem) for problem in raised] == [FencedError]
    assert scene.server_store.shard("north") == newest and newest.rows == 2 * int((y != "bird").sum())
    scene.train()
    assert "bird" not in {str(label.name) for label in scene.server_store.model().labels}
    scene.close()


def test_withdrawing_is_fenced_too(tmp_path: Path, certs: Path) -> None:
    scene = Scene(tmp_path, certs)
    client, other = scene.north.client, scene.north.client
    with client.store.database.lease("working"):
        run_out(tmp_path / "north" / "north" / "client.db")
        with other.store.database.lease("working too"), pytest.raises(FencedError):
            client._withdraw(())
    assert scene.server_store.shard("north") is not None
    scene.close()
