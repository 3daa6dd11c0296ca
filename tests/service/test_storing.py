"""A server's configuration file: what it says, and what holds where it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitwiper import Config
from splitwiper.errors import ConfigError, InputError
from splitwiper.server import Server
from splitwiper.service.running import serve
from splitwiper.service.storing import open_store, read_server
from splitwiper.store import ServerStore

MODEL = """
[model]
factory = "splitwiper.models:mlp"
args = {inputs = 4, outputs = 3, hidden = 6, cut = 4}
inputs = {x = "float32[4]"}
at = "stem"
"""


def file(folder: Path, text: str) -> Path:
    path = folder / "server.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "transcript"),
    [
        ("", True),
        ("[server]\nepochs = 2\n", True),
        ("[server]\ntranscript = true\n", True),
        ("[server]\ntranscript = false\n", False),
    ],
)
def test_between_organisations_training_keeps_a_transcript(tmp_path: Path, text: str, transcript: bool) -> None:
    settings = read_server(file(tmp_path, text + MODEL))
    assert settings.config.server.transcript is transcript
    assert not Config().server.transcript  # in one process it is off
    halves = open_store(tmp_path / "store", settings)
    assert Server(ServerStore(tmp_path / "store"), halves.server).config == settings.config.server
    open_store(tmp_path / "store", settings)
    other = file(tmp_path, f"[server]\ntranscript = {str(not transcript).lower()}\n{MODEL}")
    with pytest.raises(InputError, match="made with other settings"):
        open_store(tmp_path / "store", read_server(other))


@pytest.mark.parametrize("text", ["server = 3\n", "[server]\ntranscript = 1\n"])
def test_wrong_types_are_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"server.toml: server.*must be"):
        read_server(file(tmp_path, text))


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ("ranks = 2", "takes neither ranks nor settings"),
        ('engine = "distributed"\nranks = 0', "ranks = 0"),
        (
            'engine = "splitwiper.engines.distributed:Distributed"\nengine_args = {comand = ["srun"]}',
            "does not take the settings",
        ),
    ],
)
def test_an_engine_that_cannot_be_is_refused_before_anything_is_served(
    tmp_path: Path, service: str, words: str
) -> None:
    path = file(tmp_path, f'[service]\nidentity = "tokens"\n{service}\n{MODEL}')
    with pytest.raises(ConfigError, match=words):
        serve(tmp_path / "store", read_server(path), config=path, ready=lambda _: pytest.fail("it serves"))
    assert not (tmp_path / "store").exists()
