"""The contract of blob stores, over all implementations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from federation.runs import activations, assert_same, halves, recomputed, three, without
from splitwiper import ClientConfig, Config, Federation, ServerConfig
from splitwiper.config import StoreConfig
from splitwiper.errors import ConfigError, CorruptError
from splitwiper.store.blobs import FOLDERS, BlobStore, blob_store, is_recorded, new_record

Make = Callable[[str], BlobStore]
"""Makes the blob store of a server with this name."""


def place(name: str, folder: Path) -> StoreConfig:
    if name == "local":
        return StoreConfig()
    return StoreConfig(blobs="one-file", blobs_args={"file": str(folder / "elsewhere.db")})


@pytest.fixture(params=["local", "outside"])
def name(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def make(name: str, tmp_path: Path) -> Make:
    return lambda server: blob_store(tmp_path / server, new_record(*place(name, tmp_path).place))


def written(folder: Path, content: bytes) -> Path:
    file = folder / "staged"
    file.write_bytes(content)
    return file


def test_what_was_put_there_is_read_listed_and_erased(make: Make, tmp_path: Path) -> None:
    blobs = make("one")
    for folder in FOLDERS:
        assert blobs.sizes(folder) == {}
        blobs.put(folder, "a", written(tmp_path, b"first"))
        blobs.put(folder, "b", written(tmp_path, b"second one"))
        assert blobs.path(folder, "a").read_bytes() == b"first" and blobs.sizes(folder) == {"a": 5, "b": 10}
        blobs.erase(folder, "a")
        blobs.erase(folder, "a")
        assert blobs.sizes(folder) == {"b": 10} and blobs.path(folder, "b").read_bytes() == b"second one"
        with pytest.raises(FileNotFoundError):
            blobs.path(folder, "a").read_bytes()


def test_servers_do_not_see_each_others_files(make: Make, tmp_path: Path) -> None:
    one, other = make("one"), make("other")
    one.put("shards", "a", written(tmp_path, b"mine"))
    assert other.sizes("shards") == {}
    other.erase("shards", "a")
    assert one.path("shards", "a").read_bytes() == b"mine"


def test_a_run_forgets_to_the_same_bits_and_nothing_is_left(name: str, tmp_path: Path) -> None:
    server = ServerConfig(epochs=2, batch=16, transcript=True)
    client = ClientConfig(epochs=2, batch=8, slices=2, head_width=4)
    config = Config(seed=5, server=server, client=client, store=place(name, tmp_path))
    data = three()
    fed = Federation(tmp_path / "run", halves(), config)
    fed.learn(data)
    birds = data["north"][1] == "bird"
    canaries = [row.tobytes() for row in activations(fed, "north")]
    assert holders(tmp_path, canaries)
    reopened = Federation(tmp_path / "run", halves())  # the database remembers the place
    receipt = reopened.unlearn("north", classes=["bird"])
    assert reopened.verify(receipt).exact and reopened.verify().exact and not reopened.status().todo
    assert all(check.exact for check in recomputed(reopened._server, 1))
    assert {part.what for part in reopened.status().remains} >= {"server/shards", "server/models", "server/epochs"}
    assert not holders(tmp_path, canaries)

    never = reopened.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], ~birds)})
    assert_same(reopened, never)
    never.unlearn("south", everything=True)  # a twin in the same place erases none of the other's files
    assert reopened.verify().exact


def holders(folder: Path, canaries: list[bytes]) -> set[str]:
    """Return the files below a folder that hold one of some byte strings."""
    contents = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {path for path, content in contents.items() if any(canary in content for canary in canaries)}


def test_what_an_interrupted_call_left_is_erased(name: str, tmp_path: Path) -> None:
    config = Config(server=ServerConfig(epochs=1), client=ClientConfig(epochs=1), store=place(name, tmp_path))
    fed = Federation(tmp_path / "run", halves(), config)
    blobs = fed._server.store.blobs
    blobs.put("shards", "stray", written(tmp_path, b"of a killed process"))
    assert fed.status().todo == ("erase what was superseded on the server",)
    fed.learn({"south": three()["south"]})
    assert "stray" not in blobs.sizes("shards") and not fed.status().todo


def test_a_missing_or_changed_file_is_reported(name: str, tmp_path: Path) -> None:
    config = Config(server=ServerConfig(epochs=1), client=ClientConfig(epochs=1), store=place(name, tmp_path))
    fed = Federation(tmp_path / "run", halves(), config)
    fed.learn({"south": three()["south"]})
    store = fed._server.store
    (shard,) = store.shards()
    model = store.model()
    assert model is not None
    store.blobs.erase("shards", shard.file)
    with pytest.raises(CorruptError, match=r"the shard of 'south' .* is missing or damaged"):
        store.open(shard)
    store.blobs.put("shards", shard.file, written(tmp_path, b"something else"))
    with pytest.raises(CorruptError, match="damaged"):
        store.open(shard)
    store.blobs.erase("models", model.file)
    with pytest.raises(CorruptError, match=model.file):
        store.weights(model)
    assert fed.verify().outcome == "mismatch"


def test_a_place_that_cannot_be_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"blobs = 'onefile' is not one of local, one-file. Did you mean 'one-file'?"):
        StoreConfig(blobs="onefile")
    with pytest.raises(ConfigError, match="cannot be imported"):
        Federation(tmp_path / "run", halves(), Config(store=StoreConfig(blobs="nowhere:Blobs")))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="does not take the settings"):
        Federation(tmp_path / "run", halves(), Config(store=StoreConfig(blobs="one-file", blobs_args={"folder": "x"})))
    assert not (tmp_path / "run").exists()


def test_a_record_knows_its_place_and_each_server_has_its_own() -> None:
    record = new_record("ward_parts.blobs:OneFile", {"file": "a"})
    assert is_recorded(record, "ward_parts.blobs:OneFile", {"file": "a"}) and is_recorded("", "", {})
    assert not is_recorded(record, "ward_parts.blobs:OneFile", {"file": "b"}) and not is_recorded(record, "", {})
    assert record != new_record("ward_parts.blobs:OneFile", {"file": "a"})
