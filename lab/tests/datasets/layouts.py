"""Small data sets in the published layouts, and a publisher on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from splitwiper_lab.datasets.published import Download, Published
from splitwiper_lab.datasets.sources import PUBLISHED

Array = np.ndarray[Any, np.dtype[Any]]
TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
HUNDRED = ["apple", "aquarium_fish", *(f"thing_{n:02d}" for n in range(98))]
ROWS = {"cifar10": (100, 40), "cifar100": (300, 200), "mnist": (120, 60), "ag_news": (80, 40)}
"""Rows for training and for tests in the fixtures."""


def small(name: str) -> Published:
    """The set with the fixtures' row counts."""
    return replace(PUBLISHED[name], rows=ROWS[name])


def picture_bytes(rows: int) -> Array:
    return (np.arange(rows * 3072, dtype=np.int64) * 7 % 251).astype(np.uint8).reshape(rows, 3072)


def cifar10(root: Path) -> Path:
    place = root / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    train, test = ROWS["cifar10"]
    for file, rows in [*((f"data_batch_{n}.bin", train // 5) for n in range(1, 6)), ("test_batch.bin", test)]:
        labels = (np.arange(rows) % 10).astype(np.uint8)[:, None]
        (place / file).write_bytes(np.hstack([labels, picture_bytes(rows)]).tobytes())
    (place / "batches.meta.txt").write_text("\n".join(TEN) + "\n\n", encoding="utf-8")
    return place


def cifar100(root: Path) -> Path:
    place = root / "cifar-100-binary"
    place.mkdir(parents=True)
    for file, rows in zip(("train.bin", "test.bin"), ROWS["cifar100"], strict=True):
        fine = (np.arange(rows) % 100).astype(np.uint8)
        labels = np.stack([fine // 5, fine], axis=1)
        (place / file).write_bytes(np.hstack([labels, picture_bytes(rows)]).tobytes())
    (place / "fine_label_names.txt").write_text("\n".join(HUNDRED) + "\n", encoding="utf-8")
    return place


def idx(values: Array) -> bytes:
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return head + values.astype(np.uint8).tobytes()


def mnist_files() -> dict[str, bytes]:
    found = {}
    for prefix, rows in zip(("train", "t10k"), ROWS["mnist"], strict=True):
        labels = np.arange(rows) % 10
        found[f"{prefix}-images-idx3-ubyte"] = idx(labels[:, None, None] + np.zeros((1, 28, 28), np.int64))
        found[f"{prefix}-labels-idx1-ubyte"] = idx(labels)
    return found


def mnist(root: Path, *, zipped: bool = False, loose: bool = False) -> Path:
    place = root if loose else root / "MNIST" / "raw"
    place.mkdir(parents=True, exist_ok=True)
    for name, raw in mnist_files().items():
        (place / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(raw, mtime=0) if zipped else raw)
    return place


def ag_news(root: Path) -> Path:
    place = root / "ag_news_csv"
    place.mkdir(parents=True)
    for part, rows in zip(("train", "test"), ROWS["ag_news"], strict=True):
        lines = [f'"{n % 4 + 1}","Title {n}, ""quoted""","a line\\broken in two, café {n}"' for n in range(rows)]
        (place / f"{part}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (place / "classes.txt").write_text("World\nSports\nBusiness\nSci/Tech\n", encoding="utf-8")
    return place


WRITERS = {"cifar10": cifar10, "cifar100": cifar100, "mnist": mnist, "ag_news": ag_news}


def tar(files: dict[str, bytes | tarfile.TarInfo]) -> bytes:
    """A .tar.gz archive; a `TarInfo` is put in as it is, without content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def packed(place: Path) -> dict[str, bytes]:
    """The files in a folder, under the names they have in an archive."""
    return {f"{place.name}/{path.name}": path.read_bytes() for path in sorted(place.iterdir())}


def offer(file: str, content: bytes) -> Download:
    return Download(file, len(content), hashlib.sha256(content).hexdigest())


class Publisher:
    """Files by path; a number is a status without a body, a text an address to go to."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.files: dict[str, bytes | int | str] = {}
        self.announced: dict[str, int] = {}
        """Lengths that are announced instead of the true ones."""
        self.asked: list[str] = []
        self.refused: list[str] = []
        """What the other side would not take to the end."""

    def of(self, what: Published, files: dict[str, bytes]) -> Published:
        """Offer files, and the set with their checksums and this address."""
        self.files.update({f"/{name}": content for name, content in files.items()})
        return replace(what, base=self.base, downloads=tuple(offer(name, raw) for name, raw in files.items()))


@contextmanager
def publisher() -> Iterator[Publisher]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.asked.append(self.path)
            content = here.files.get(self.path, 404)
            if isinstance(content, bytes):
                self.send_response(200)
                self.send_header("Content-Length", str(here.announced.get(self.path, len(content))))
                self.end_headers()
                try:
                    self.wfile.write(content)
                except ConnectionError:
                    here.refused.append(self.path)
            elif isinstance(content, str):
                self.send_response(302)
                self.send_header("Location", content)
                self.end_headers()
            else:
                self.send_error(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here = Publisher(f"http://127.0.0.1:{server.server_address[1]}/")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
