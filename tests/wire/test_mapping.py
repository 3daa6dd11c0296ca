"""Files mapped into memory."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from splitwiper.wire.mapping import mapped


def opened() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def maps(path: Path) -> int:
    return Path("/proc/self/maps").read_text(encoding="utf-8").count(str(path))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_map_holds_no_descriptor_and_goes_with_the_last_array(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 64)
    before = opened()
    whole = mapped(path)
    part = whole[64:1088].view("<f4").reshape(16, 16)
    assert opened() == before
    assert whole.tobytes() == path.read_bytes()
    del whole
    assert maps(path) == 1
    assert part.tobytes() == path.read_bytes()[64:1088]
    del part
    assert maps(path) == 0


def test_a_map_cannot_be_written_to(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"rows")
    array = mapped(path)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    with pytest.raises(ValueError, match=r"(?i)writeable"):
        array.flags.writeable = True


def test_an_erased_file_stays_readable_while_it_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"rows")
    array = mapped(path)
    path.unlink()
    assert array.tobytes() == b"rows"


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert mapped(tmp_path / "file").shape == (0,)
    assert mapped(tmp_path / "file").dtype == np.uint8


def test_what_cannot_be_mapped_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        mapped(tmp_path / "nothing")
    with pytest.raises(OSError, match=str(tmp_path)):
        mapped(tmp_path)
