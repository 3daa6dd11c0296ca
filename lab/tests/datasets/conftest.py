"""A publisher on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datasets.layouts import Publisher, publisher


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with publisher() as here:
        yield here
