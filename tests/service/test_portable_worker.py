"""A server with portable numerics: the worker's process trains under the profile, whatever clients compute with."""

from __future__ import annotations

import platform
from contextlib import closing
from pathlib import Path

import pytest
import torch

from service.processes import ENVIRONMENT, Running, data, settled
from splitwiper.portable import SWITCHES


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not torch.cpu._is_avx2_supported(),
    reason="portable numerics are for x86-64 processors with AVX2",
)
def test_the_worker_trains_under_the_profile(tmp_path: Path) -> None:
    free = {name: value for name, value in ENVIRONMENT.items() if name not in SWITCHES}
    server = Running(tmp_path, numerics="portable", environment=free)
    try:
        with closing(server.site("north")) as site:
            site.learn(data()["north"])
        model = settled(tmp_path / "store").model()
        assert model is not None and model.fingerprint["numerics"] == "portable 1"
    finally:
        assert server.stop() == 0
