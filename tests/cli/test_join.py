"""``splitwiper join`` and ``forget``: what is told before a server is asked. `service/test_homes.py` has the rest."""

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
    told = call("join", tmp_path / "north.toml", "--home", tmp_path / "home", code=2).stderr
    assert words in told.replace("\n", " ") and not (tmp_path / "home").exists()


def test_everything_is_not_forgotten_by_accident(call, tmp_path: Path) -> None:
    assert "add --yes" in call("forget", tmp_path, "--everything", code=2).stderr
    assert "join first" in call("forget", tmp_path, "--everything", "--yes", code=6).stderr
    assert "name one thing" in call("forget", tmp_path, "--everything", "--class", "x", code=2).stderr
