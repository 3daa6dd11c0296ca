"""The page's commands for curl, run by curl itself against a server that is a process."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from service.processes import Running

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_page_s_commands(tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## With curl")[2].partition("\n## ")[0]
    commands = re.findall(r"`(curl -K [^`]+)`", section)
    assert len(commands) == 8
    script = section.partition("```sh\n")[2].partition("```")[0]
    server = Running(tmp_path)
    try:
        subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True)

        def curl(command: str) -> subprocess.CompletedProcess[str]:
            here = shlex.split(command.replace("https://127.0.0.1:8443", server.url))
            return subprocess.run(here, cwd=tmp_path, capture_output=True, text=True, timeout=30)

        told = {}
        for command in commands:
            done = curl(command)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            told[command.rpartition("8443")[2]] = done.stdout
        assert json.loads(told["/healthz"])["status"] == "alive" and json.loads(told["/readyz"])["room"] is True
        assert json.loads(told["/v1/status"])["free_bytes"] > 0 and "splitwiper_free_bytes" in told["/metrics"]
        document = json.loads(told["/openapi.json"])
        assert set(told) - {"/openapi.json"} <= set(document["paths"])
        assert json.loads(told["/v1/federation"])["at"] == "stem" and json.loads(told["/v1/requests"]) == []
        wrong = curl("curl -K north.curl https://127.0.0.1:8443/metrics")
        assert wrong.returncode == 22 and json.loads(wrong.stdout)["kind"] == "ForbiddenError"
        stranger = curl("curl -sS --cacert certs/clients/north/ca.pem https://127.0.0.1:8443/healthz")
        assert stranger.returncode != 0 and stranger.stdout == ""
        strange = curl("curl -K north.curl -X POST -d '{}' https://127.0.0.1:8443/v1/requests")
        assert "Content-Type: application/json" in json.loads(strange.stdout)["message"]
    finally:
        server.stop()
