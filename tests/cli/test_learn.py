from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-data"


def test_learning_again_changes_nothing(call, call_json, place: Path, ward: Path) -> None:
    found = call_json("learn", place / "ward.toml", "--run", ward)
    assert found["trained"] is False
    assert found["model"] == "current"
    assert found["accuracy"] > 0.9
    assert {name: (c["new"], c["held"], c["refused"]) for name, c in found["clients"].items()} == {
        "north": (0, 36, 0),
        "south": (0, 20, 0),
    }
    assert found["clients"]["south"]["accuracy"] is None
    shown = call("learn", place / "ward.toml", "--run", ward).stdout
    assert "Nothing new" in shown
    assert "Accuracy on all test rows" in shown


def test_a_new_run_says_what_was_learned(call, place: Path, tmp_path: Path) -> None:
    shown = call("learn", place / "ward.toml", "--run", tmp_path / "new").stdout
    assert "new rows" in shown
    assert next(text for text in shown.splitlines() if text.startswith("south")).split()[1:4] == ["20", "0", "0"]
    assert "The server trained 12 epochs" in shown


def test_forgotten_rows_are_refused(call, call_json, place: Path, ward: Path) -> None:
    call("unlearn", ward, "north", "--everything", "--yes")
    found = call_json("learn", place / "ward.toml", "--run", ward)
    assert found["clients"]["north"]["refused"] == 36
    assert found["clients"]["north"]["accuracy"] is None
    assert "stay forgotten" in call("learn", place / "ward.toml", "--run", ward).stdout


def test_bundled_digits(call_json, place: Path, tmp_path: Path) -> None:
    config = tmp_path / "digits.toml"
    config.write_text(
        "model.factory = 'splitwiper.models:digits_cnn'\nmodel.inputs = {x = 'float32[1,8,8]'}\nmodel.at = 'stem'\n"
        "server = {epochs = 1, threads = 1}\nclient = {epochs = 1, threads = 1}\n"
        "data = {source = 'digits', clients = ['a', 'b'], owner = 'b', forget = 'nine'}\n",
        encoding="utf-8",
    )
    found = call_json("learn", config, "--run", tmp_path / "run", "--seed", 4)
    assert set(found["clients"]) == {"a", "b"}
    assert 0 <= found["accuracy"] <= 1
    assert "seed = 4" in (tmp_path / "run" / "federation.toml").read_text(encoding="utf-8")


def test_tasks_keep_equal_labels_apart(call_json, place: Path, tmp_path: Path) -> None:
    config = place / "ward.toml"
    config.write_text(config.read_text(encoding="utf-8") + 'task = "other"\n', encoding="utf-8")
    call_json("learn", config, "--run", tmp_path / "run")
    found = call_json("predict", tmp_path / "run", "south", place / "south.csv", "--label", "kind", "--proba")
    assert {"task": "other", "name": 3} in found["labels"]
    assert {"task": "", "name": 3} in found["labels"]
    assert set(found["predictions"]) <= {3, "other"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("seed = 3", "sead = 3"), "unknown key 'sead'. Did you mean 'seed'?"),
        (("epochs = 12", "epoch = 12"), "unknown key 'server.epoch'. Did you mean 'epochs'?"),
        (("epochs = 12", "epochs = 0"), "out of range"),
        (("epochs = 12", 'codec = "int8"'), "unknown key 'server.codec': codec belongs to [client]."),
        (("epochs = 4", 'start = "warm"'), "unknown key 'client.start': start belongs to [server]."),
        (('data = "south.csv"', 'dat = "south.csv"'), "unknown key 'clients.south.dat'. Did you mean 'data'?"),
        (('data = "south.csv"', 'test = "south.csv"'), "clients.south.data is missing"),
        (('data = "south.csv"', 'data = "sout.csv"'), "Did you mean 'south.csv'"),
        (("[clients.north]", "[clint.north]"), "unknown key 'clint'. Did you mean"),
        (("[clients.north]", "[data]"), "one of them, not both"),
        (('factory = "splitwiper.models:mlp"', ""), "model.factory is missing"),
        (('factory = "splitwiper.models:mlp"', 'factory = "ward_models:net"'), "add that folder to PYTHONPATH"),
        (("[server]", "[server"), "is not valid TOML"),
        (
            ('[clients.north]\ndata = "north.npz"\ntest = "north-test.npz"', "[clients]\nnorth = 3"),
            "must be a table, not 3",
        ),
    ],
)
def test_wrong_settings_read_well(call, place: Path, tmp_path: Path, change: tuple[str, str], words: str) -> None:
    config = place / "ward.toml"
    text = config.read_text(encoding="utf-8")
    assert change[0] in text
    config.write_text(text.replace(*change), encoding="utf-8")
    result = call("learn", config, "--run", tmp_path / "new", code=2)
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("made", [False, True])
def test_a_refused_first_learn_does_not_stand_in_the_way(call, place: Path, tmp_path: Path, made: bool) -> None:
    config, run = place / "ward.toml", tmp_path / "new"
    if made:
        run.mkdir()
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("inputs = 4", "inputs = 5").replace("float32[4]", "float32[5]"), encoding="utf-8")
    assert "cannot take rows" in call("learn", config, "--run", run, code=2).stderr
    assert run.exists() == made
    assert not made or not list(run.iterdir())
    config.write_text(text, encoding="utf-8")
    call("learn", config, "--run", run)
    (place / "south.csv").write_text("a,b,kind\n1,2,x\n3,4,y\n", encoding="utf-8")
    call("learn", config, "--run", run, code=2)
    assert (run / "federation.toml").is_file()  # what has learned stays


def test_a_batch_of_all_rows_is_pointed_out(call, place: Path, tmp_path: Path) -> None:
    config = place / "ward.toml"
    text = config.read_text(encoding="utf-8")
    for batch in (56, 55):
        config.write_text(text.replace("epochs = 12\nbatch = 8", f"epochs = 1\nbatch = {batch}"), encoding="utf-8")
        said = call("learn", config, "--run", tmp_path / str(batch)).stderr
        assert said == (
            "note: server.batch = 56 takes all 56 training rows at once: one step per epoch; lower server.batch.\n"
            if batch == 56
            else ""
        )


def test_other_settings_than_the_run_was_made_with(call, place: Path, ward: Path) -> None:
    result = call("learn", place / "ward.toml", "--run", ward, "--seed", 9, code=2)
    assert "seed is 3, given 9" in result.stderr


def test_a_configuration_that_is_not_there(call, place: Path, tmp_path: Path) -> None:
    for path, words in ((place / "wrd.toml", "Did you mean 'ward.toml'"), (place, "Give the path of a TOML file")):
        assert words in call("learn", path, "--run", tmp_path / "new", code=2).stderr


def test_the_models_code_may_lie_in_the_current_folder(
    call, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "own_ward_net.py").write_text("from splitwiper.models import mlp as net\n", encoding="utf-8")
    config = place / "ward.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("splitwiper.models:mlp", "own_ward_net:net"), encoding="utf-8")
    monkeypatch.chdir(place)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    call("learn", "ward.toml", "--run", tmp_path / "new")


def test_the_example_works(call, call_json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy
    import shutil

    shutil.copytree(EXAMPLE, tmp_path / "own", ignore=shutil.ignore_patterns("runs", "*.csv"))
    monkeypatch.chdir(tmp_path / "own")
    runpy.run_path("make_data.py", run_name="__main__")
    assert call_json("learn", "wine.toml", "--run", "runs/wine")["accuracy"] > 0.9
    call("unlearn", "runs/wine", "north", "--class", "barolo", "--receipt", "barolo.json")
    assert call_json("verify", "runs/wine", "barolo.json")["exact"]
    found = call_json("predict", "runs/wine", "south", "south-test.csv", "--label", "kind")
    assert set(found["predictions"]) <= {"grignolino", "barbera"}
