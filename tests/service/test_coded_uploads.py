"""Uploads that are compressed on their way: the file arrives byte for byte, also in parts, and no bomb goes off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest
import zstandard

from service.conftest import announced, finished, said, shard
from service.processes import Running, data, settled
from service.serving import link_of
from splitwiper.errors import DataError
from splitwiper.store import ServerStore
from splitwiper.wire.transfer import Decoder, compressed

ZSTD = {"Content-Encoding": "zstd"}


def packed(part: bytes) -> bytes:
    return b"".join(compressed([part]))


def test_a_shard_arrives_byte_for_byte_in_fewer_bytes(url: str, certs: Path, run, tmp_path: Path) -> None:
    path = shard(tmp_path / "s", 3000)
    link = link_of(url, certs, "north", transfer="zstd")
    accepted = link.upload("north", path, said())
    store = ServerStore(run.path / "server")
    record = store.shard("north")
    assert accepted.digest == record.digest and record.rows == 3000
    assert (store.root / "shards" / record.file).read_bytes() == path.read_bytes()
    assert 0 < link.travelled < path.stat().st_size / 10
    plain = link_of(url, certs, "south")
    assert plain.upload("south", path, said()).digest == accepted.digest and plain.travelled == path.stat().st_size


def test_it_is_charged_with_what_travelled(url: str, certs: Path, run, tmp_path: Path, monkeypatch) -> None:
    charged, accept = list[int](), ServerStore.accept

    def accepting(store: ServerStore, *given: object, **named: object) -> object:
        charged.append(named["travelled"])
        return accept(store, *given, **named)

    monkeypatch.setattr(ServerStore, "accept", accepting)
    link = link_of(url, certs, "north", transfer="zstd")
    link.upload("north", shard(tmp_path / "s", 3000), said())
    assert charged == [link.travelled]


def test_it_goes_on_at_any_offset_coded_or_not(url: str, http, tmp_path: Path) -> None:
    path, north = shard(tmp_path / "s", 3000), http(url)
    whole, begun = path.read_bytes(), north.post("/v1/uploads", json=announced(path)).json()
    assert begun["codings"] == ["zstd"]
    place, here = f"/v1/uploads/{begun['id']}", 0
    for size, coding in ((1234, ZSTD), (5000, {}), (len(whole) - 6234, ZSTD)):
        part = whole[here : here + size]
        sent = packed(part) if coding else part
        here = north.patch(place, content=sent, headers={"Upload-Offset": str(here), **coding}).json()["offset"]
    assert here == len(whole) and north.post(f"{place}/finish", json=finished(path)).status_code == 200


def test_a_line_that_breaks_in_a_stream(url: str, certs: Path, run, tmp_path: Path) -> None:
    """What was decompressed stays, and the link goes on from there."""
    path, link = shard(tmp_path / "s", 20_000), link_of(url, certs, "north", transfer="zstd")
    once, broken = link._once, list[str]()

    def breaks(method: str, place: str, **how: object) -> object:
        if method == "PATCH" and not broken:
            broken.append(place)
            content = how["content"]

            def half() -> Iterator[bytes]:
                sent = b"".join(content)
                yield sent[: len(sent) // 2]
                raise httpx.WriteError("the line broke")

            how["content"] = half()
        return once(method, place, **how)

    link._once = breaks
    assert link.upload("north", path, said()).generation == 1 and broken
    assert ServerStore(run.path / "server").shard("north").rows == 20_000


def test_a_bomb_fills_no_more_than_was_announced(url: str, http, run, tmp_path: Path) -> None:
    path, north = shard(tmp_path / "s", 10), http(url)
    bomb = b"".join(compressed(bytes(1 << 20) for _ in range(256)))  # 256 MiB in some 8 KB
    assert len(bomb) < 1 << 16
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    answer = north.patch(place, content=bomb, headers={"Upload-Offset": "0", **ZSTD})
    assert answer.status_code == 422 and "that were announced" in answer.json()["message"]
    (part,) = (run.path / "server" / "uploads").iterdir()
    assert part.stat().st_size <= path.stat().st_size


def test_a_decoder_hands_out_little_at_a_time() -> None:
    sizes = list[int]()
    Decoder(lambda piece: sizes.append(len(piece))).feed(packed(bytes(1 << 24)))
    assert sum(sizes) == 1 << 24 and max(sizes) <= 1 << 17


@pytest.mark.parametrize(
    ("sent", "coding", "words"),
    [
        (b"not at all compressed", "zstd", "not a zstd stream"),
        (packed(bytes(64)) + b"more", "zstd", "not a zstd stream"),
        (b"x", "gzip", "'Content-Encoding: gzip' is not read here"),
        (b"x", "zstd, gzip", "is not read here"),
    ],
)
def test_what_cannot_be_read_is_told(url: str, http, tmp_path: Path, sent: bytes, coding: str, words: str) -> None:
    path, north = shard(tmp_path / "s", 50), http(url)
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    answer = north.patch(place, content=sent, headers={"Upload-Offset": "0", "Content-Encoding": coding})
    assert answer.status_code == 422 and words in answer.json()["message"]


def test_a_window_that_takes_much_memory_is_refused() -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    sent = stream.compress(np.random.default_rng(0).bytes(1 << 20)) + stream.flush()
    with pytest.raises(DataError, match="not a zstd stream"):
        Decoder(lambda _: None).feed(sent)


def test_a_home_sends_as_its_settings_say(server: Running, tmp_path: Path) -> None:
    with closing(server.site("north", transfer="zstd")) as north:
        north.learn(data()["north"])
        (record,) = settled(tmp_path / "store").shards()
        assert 0 < north.link.travelled < (tmp_path / "store" / "shards" / record.file).stat().st_size
