"""Settings: validated, read from TOML, written back the same."""

import tomllib
from pathlib import Path

import pytest

from splitwiper import ClientConfig, Config, ModelConfig, ServerConfig
from splitwiper.config import config_digest, from_dict, read_toml, to_toml
from splitwiper.errors import ConfigError


def test_round_trip_through_toml() -> None:
    config = Config(
        seed=3,
        server=ServerConfig(epochs=7, lr=0.01, start="warm"),
        client=ClientConfig(labels=('a "quoted" name', 4), slices=3, standardise=True),
        model=ModelConfig(factory="a.b:c", args={"width": 4, "names": ["x"]}, inputs={"x": "float32[3]"}, at="stem"),
    )
    assert from_dict(Config, tomllib.loads(to_toml(config))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sever": {}}, "unknown key 'sever'. Did you mean 'server'"),
        ({"server": {"epoch": 3}}, "unknown key 'server.epoch'. Did you mean 'epochs'"),
        ({"server": {"epochs": "3"}}, "server.epochs must be int, not '3'"),
        ({"server": {"epochs": True}}, "server.epochs must be int, not True"),
        ({"server": {"epochs": 0}}, "epochs = 0 is out of range"),
        ({"server": {"lr": 0}}, "lr = 0.0 is out of range: give a number > 0"),
        ({"server": {"lr": float("nan")}}, "lr = nan is out of range"),
        ({"server": {"start": "hot"}}, "start = 'hot' is not one of initial, warm"),
        ({"server": 3}, "server must be a table"),
        ({"client": {"slices": 0}}, "slices = 0"),
        ({"client": {"optimizer": "sgdd"}}, "Did you mean 'sgd'"),
        ({"client": {"labels": ["a", "a"]}}, "names a label twice"),
        ({"client": {"labels": [1.5]}}, "client.labels must be str or int"),
        ({"client": {"labels": "abc"}}, "client.labels must be a list"),
        ({"model": {"factory": "nocolon"}}, "package.module:callable"),
        ({"model": {"factory": "a:b"}}, "model.at is missing"),
        ({"model": {"factory": "a:b", "at": "x"}}, "model.inputs is missing"),
        ({"model": {"args": 3}}, "model.args must be a table"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_wrong_settings_say_what_is_wrong(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(Config, values)
    assert message in str(caught.value)


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = = 3")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(tmp_path / "bad.toml")


def test_epochs_per_slice() -> None:
    assert ClientConfig(epochs=10).stage_epochs == 10
    assert ClientConfig(epochs=10, slices=4).stage_epochs == 4
    assert ClientConfig(epochs=10, slices=4, slice_epochs=7).stage_epochs == 7
    assert ClientConfig(epochs=1, slices=100).stage_epochs == 1


def test_digest_depends_on_settings_and_seed() -> None:
    one = config_digest(ServerConfig(), seed=0)
    assert one != config_digest(ServerConfig(lr=0.06), seed=0)
    assert one != config_digest(ServerConfig(), seed=1)


def test_digests_taken_before_a_setting_was_added_still_hold() -> None:
    """Recorded comparisons are named by them."""
    assert config_digest(ServerConfig(), seed=0).startswith("c4c1dc604089acc4")
    assert config_digest(Config(), seed=0).startswith("135f0dbee504006a")
    assert config_digest(ServerConfig(transcript=True), seed=0) != config_digest(ServerConfig(), seed=0)
    assert config_digest(Config(server=ServerConfig(transcript=True)), seed=0) != config_digest(Config(), seed=0)


def test_what_the_server_reads_holds_nothing_of_the_clients() -> None:
    assert "slices" not in to_toml(ServerConfig()) and "labels" not in to_toml(ServerConfig())


def test_types_are_checked_on_construction() -> None:
    with pytest.raises(ConfigError, match="epochs must be int, not '5'"):
        ServerConfig(epochs="5")
    with pytest.raises(ConfigError, match=r"epochs must be int, not 5\.0"):
        ServerConfig(epochs=5.0)
    with pytest.raises(ConfigError, match="server must be a ServerConfig"):
        Config(server={"epochs": 3})
    assert ServerConfig(lr=1).lr == 1.0
