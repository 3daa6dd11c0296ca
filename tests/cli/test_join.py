"""``splitwiper join`` and ``forget``: what is told before a server is asked. `service/test_sites.py` and
`service/test_site_commands.py` have the rest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

GOOD = 'name = "north"\nurl = "https://127.0.0.1:1"\ndata = "rows.npz"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("url", "ulr"), "unknown key 'ulr'. Did you mean 'url'"),
        (GOOD.replace('data = "rows.npz"\n', ""), "data is missing"),
        (GOOD.replace("north", "../north"), "letters, digits"),
        (GOOD + "[client]\nepoch = 3\n", "client.epoch"),
    ],
)
def test_a_wrong_file(text: str, words: str, call, tmp_path: Path) -> None:
    (tmp_path / "north.toml").write_text(text, encoding="utf-8")
    told = call("join", tmp_path / "north.toml", "--site", tmp_path / "site", code=2).stderr
    assert words in told.replace("\n", " ") and not (tmp_path / "site").exists()


def test_everything_is_not_forgotten_by_accident(call, tmp_path: Path) -> None:
    assert "add --yes" in call("forget", tmp_path, "--everything", code=2).stderr
    assert "join first" in call("forget", tmp_path, "--everything", "--yes", code=6).stderr
    assert "name one thing" in call("forget", tmp_path, "--everything", "--class", "x", code=2).stderr


def test_a_group_key_is_made_once_and_kept_private(call, tmp_path: Path) -> None:
    key, other = tmp_path / "keys" / "ward.group", tmp_path / "other.group"
    assert "never to the server" in call("group", key).stdout.replace("\n", " ")
    call("group", other)
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_text().strip()) >= 40 and key.read_text() != other.read_text()
    assert "there already" in call("group", key, code=2).stderr
    (tmp_path / "north.toml").write_text(GOOD, encoding="utf-8")
    joining = ("join", tmp_path / "north.toml", "--site", tmp_path / "site", "--group")
    assert "there is no group key" in call(*joining, tmp_path / "gone", code=6).stderr
    other.chmod(0o644)
    told = call(*joining, other, code=10).stderr.replace("\n", " ")
    assert "chmod 600" in told and "splitwiper group" in told
    other.chmod(0o600)
    other.write_text("short\n", encoding="utf-8")
    assert "at least 16" in call(*joining, other, code=2).stderr


def test_codes_do_not_change_over_a_network(call, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text("", encoding="utf-8")
    assert "make a new store" in call("rekey", tmp_path, code=2).stderr.replace("\n", " ")
