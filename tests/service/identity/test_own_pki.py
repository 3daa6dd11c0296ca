"""Certificates that openssl made by the page's own commands: both sides of a TLS connection accept them."""

from __future__ import annotations

import re
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from splitwiper.errors import IdentityError
from splitwiper.service.identity import Trust, client_context, server_context

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "own-pki.md"
SCRIPTS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def run(script: str, folder: Path, key: str) -> None:
    changed = script.replace("-newkey ec -pkeyopt ec_paramgen_curve:prime256v1", f"-newkey {key}")
    subprocess.run(["sh", "-ec", changed], cwd=folder, check=True, capture_output=True)


def connect(folder: Path) -> bytes:
    """Shake hands in memory; return the client's certificate as the server has it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(folder / "server").wrap_bio(to_server, to_client, server_side=True)
    client = client_context(folder / "caller").wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(6):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return server.getpeercert(binary_form=True)


@pytest.mark.parametrize("key", ["ec -pkeyopt ec_paramgen_curve:P-384", "rsa:2048"])
def test_certificates_of_another_authority(tmp_path: Path, key: str) -> None:
    configuration, issuing, revoking = SCRIPTS[:3]
    run(configuration, tmp_path, key)
    run(issuing, tmp_path, key)
    north = connect(tmp_path)
    assert str(Trust(tmp_path / "server").principal(north)) == "client 'north'"
    run(revoking, tmp_path, key)
    with pytest.raises(IdentityError, match="was revoked"):
        Trust(tmp_path / "server").principal(north)
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        connect(tmp_path)
