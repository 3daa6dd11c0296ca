"""Workloads: a data set, a network and settings that suit both, from Python and from ``[data]`` in a file."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import splitwiper_lab.workloads
from splitwiper import Federation
from splitwiper.cli import app
from splitwiper.cli.settings import Settings, read_settings
from splitwiper.config import read_toml
from splitwiper.data.text import encode
from splitwiper.errors import ConfigError
from splitwiper.federation.build import build_halves
from splitwiper_lab.datasets.divide import Divided
from splitwiper_lab.evaluation.comparison import read_comparison
from splitwiper_lab.workloads import MODELS, workload

EXAMPLES = Path(__file__).parents[1] / "examples"
LABELS: dict[str, tuple[Any, ...]] = {
    "cifar10": ("bird", "cat", "dog"),
    "cifar100": ("bird", "aquarium_fish"),
    "mnist": (0, 1, 2, 3),
    "ag_news": ("World", "Sports"),
    "digits": ("three", "four"),
}
ROWS = 8


def inputs_of(source: str, *, alone: bool) -> Any:
    draw = np.random.default_rng(len(source))
    if source == "ag_news":
        return [f"word{n} and {'more ' * 90 if n == 3 else ''}" for n in range(ROWS)]
    if source == "digits":
        return draw.random((ROWS, 1, 8, 8), dtype=np.float32)
    shape = (1, 28, 28) if source == "mnist" and alone else (3, 32, 32)
    return draw.integers(0, 256, (ROWS, *shape), dtype=np.uint8)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Published sets without their files: a few rows of their shapes. Holds what was asked for."""
    seen: dict[str, Any] = {}

    def fake(source: str, **options: Any) -> Divided:
        seen.update(options, source=source)
        names = source.split("+")
        parts = {
            f"{n}-holder": (inputs_of(n, alone=len(names) == 1), np.array([LABELS[n][i % 2] for i in range(ROWS)]))
            for n in names
        }
        tasks = {f"{n}-holder": n if names[1:] else "" for n in names}
        known = {n: LABELS[n] for n in names}
        return Divided(parts, parts, tasks, "bird", next(iter(parts)), tuple(names), known)

    monkeypatch.setattr(splitwiper_lab.workloads, "divided", fake)
    return seen


@pytest.mark.parametrize(
    ("source", "model", "inputs", "args"),
    [
        ("cifar10", "vgg", {"x": "uint8[3,32,32]"}, {"outputs": 3, "augment": True}),
        ("cifar10", "resnet18", {"x": "uint8[3,32,32]"}, {"outputs": 3, "augment": True}),
        ("cifar10+mnist", "vgg", {"x": "uint8[3,32,32]"}, {"outputs": 7}),
        ("mnist", "vgg", {"x": "uint8[1,28,28]"}, {"outputs": 4, "channels": 1, "side": 28}),
        (
            "ag_news",
            "mini_bert",
            {"input_ids": "int32[64]", "attention_mask": "bool[64]"},
            {"outputs": 2, "vocabulary": 8192, "length": 64},
        ),
    ],
)
def test_published_sets(asked: dict[str, Any], source: str, model: str, inputs: Any, args: Any) -> None:
    narrow = {"width": 4} if model in ("vgg", "resnet18") else {"hidden": 8, "layers": 2}
    work = workload(source, model, seed=7, folder="there", rows=99, model_args=narrow)
    assert (asked["source"], asked["seed"], asked["folder"], asked["rows"]) == (source, 7, "there", 99)
    assert work.config.seed == 7 and work.config.model.inputs == inputs
    assert work.config.model.args == {**args, **narrow}
    assert (work.config.server.epochs, work.config.client.epochs, work.config.client.keys) == (30, 10, "seeded")
    assert work.shortened == (2 if source == "ag_news" else 0)  # one text, for training and for tests
    assert work.tasks == ({"cifar10-holder": "cifar10", "mnist-holder": "mnist"} if "+" in source else {})
    halves = build_halves(work.config)  # the rows' own shapes lead to a network that can be cut
    assert [spec.name for spec in halves.boundary] == ["activation", *work.config.model.shared]


def test_arguments_of_images_are_not_taken_for_those_of_texts(asked: dict[str, Any]) -> None:
    assert workload(model_args={"length": "x"}).config.model.args["length"] == "x"  # the network's own affair


def test_rows_are_not_in_its_repr(asked: dict[str, Any]) -> None:
    assert "array" not in repr(workload()) and "ServerConfig(" in repr(workload())


def test_a_missing_package_is_named_as_it_is(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    work = workload("ag_news", "mini_bert")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"^mini_bert needs the package transformers .* pip install"):
        build_halves(work.config)


def test_recipes_can_be_changed_field_by_field(asked: dict[str, Any]) -> None:
    work = workload(server={"lr": 0.2, "precision": "bfloat16"}, client={"codec": "int8", "slices": 4}, device="cuda")
    assert (work.config.server.lr, work.config.server.batch, work.config.server.precision) == (0.2, 1024, "bfloat16")
    assert (work.config.client.codec, work.config.client.slices, work.config.client.batch) == ("int8", 4, 128)
    assert work.config.server.device == work.config.client.device == "cuda"
    assert workload("cifar100").config.server.epochs == 50
    assert workload("cifar100", server={"epochs": 3}).config.server.epochs == 3


def test_what_does_not_fit_reads_well(asked: dict[str, Any]) -> None:
    for call, words in (
        ({"model": "vg"}, "there is no network 'vg'. Did you mean 'vgg'"),
        ({"model": "splitwiper.models:vg"}, "there is no network 'vg' in splitwiper.models. Did you mean 'vgg'"),
        ({"source": "ag_news", "model": "mini_bert", "model_args": {"length": "x"}}, "length = 'x': give a whole"),
        ({"model": "mlp"}, "mlp does not take rows of cifar10 (uint8[3,32,32]); vgg or resnet18 does"),
        ({"model": "digits_cnn"}, "digits_cnn does not take rows of cifar10"),
        ({"source": "ag_news"}, "vgg does not take rows of ag_news (int32[64], bool[64]); mini_bert does"),
        ({"server": {"epoch": 3}}, "unknown key 'server.epoch'. Did you mean 'epochs'"),
        ({"client": {"bach": 3}}, "unknown key 'client.bach'. Did you mean 'batch'"),
        ({"cut": {"att": "stem"}}, "unknown key 'model.att'. Did you mean 'at'"),
    ):
        with pytest.raises(ConfigError) as caught:
            workload(**call)  # type: ignore[arg-type]
        assert words in str(caught.value)


@pytest.mark.parametrize(("source", "model"), [("digits", "digits_cnn"), ("wine", "mlp"), ("breast_cancer", "mlp")])
def test_bundled_sets_are_learned_and_forgotten(tmp_path: Path, source: str, model: str) -> None:
    quick = {"epochs": 5} if model == "digits_cnn" else {}
    rows = 600 if model == "digits_cnn" else None
    work = workload(source, model, clients=2, seed=1, rows=rows, server=quick, client=quick)
    fed = Federation(tmp_path / "run", config=work.config)
    fed.learn(work.train, tasks=work.tasks)
    assert fed.evaluate(work.test).overall.accuracy > 0.85
    assert fed.verify(fed.unlearn(work.owner, classes=[work.forget])).exact
    assert work.forget not in [label.name for label in fed.labels]


def test_a_network_of_ones_own() -> None:
    work = workload(
        "wine", "splitwiper.models:mlp", clients=2, model_args={"inputs": 13, "outputs": 3}, cut={"at": "stem"}
    )
    assert work.config.model.inputs == {"x": "float32[13]"} and work.config.model.head == ""
    assert build_halves(work.config).boundary[0].shape == (32,)


# --- [data] in a configuration file ----------------------------------------------------------------------------


def read(path: Path, **options: Any) -> Settings:
    return read_settings(path, **{"seed": None, "data": None, "progress": lambda *_: None} | options)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.toml")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_examples_can_be_read(asked: dict[str, Any], path: Path) -> None:
    if path.parent.name == "own-data":
        pytest.skip("it has files of its own, and a test of its own")
    found = read(path, data=Path("here"), seed=3)
    model = found.config.model
    assert asked["folder"] == Path("here") and asked["seed"] == 3
    assert (asked["clients"], asked["owner"]) == (("north", "south", "east", "west", "centre"), "north")
    assert found.train.keys() == found.test.keys() and model.factory.removeprefix("splitwiper.models:") in MODELS
    args = {**model.args, **({"width": 4} if "width" in model.args else {})}
    build_halves(replace(found.config, model=replace(model, args=args)))
    table = read_toml(path).get("compare")
    assert (table is not None) is (path.parent.name == "compare")
    if table is not None:
        assert read_comparison(table).systems[0].kind == "splitwiper"


FILE = """
seed = 4
[model]
factory = "splitwiper_lab.models:vgg"
args = {width = 4}
[server]
epochs = 1
[data]
source = "cifar10"
"""


def write(folder: Path, *changes: tuple[str, str]) -> Path:
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return folder / "run.toml"


def test_every_key_reaches_the_data(asked: dict[str, Any], tmp_path: Path) -> None:
    keys = 'source = "cifar10"\npartition = "disjoint"\nclients = 7\nforget = 0\nowner = "a"\nshare = true\nrows = 50'
    read(write(tmp_path, ('source = "cifar10"', f'{keys}\nfolder = "sets"')))
    assert asked["clients"][-1] == "client-7" and len(asked["clients"]) == 7
    asked.pop("clients")
    assert asked == {
        "source": "cifar10",
        "partition": "disjoint",
        "forget": 0,
        "owner": "a",
        "share": True,
        "seed": 4,
        "folder": tmp_path / "sets",
        "rows": 50,
    }
    read(write(tmp_path, ('source = "cifar10"', 'source = "cifar10"\nclients = ["x", "y"]')))
    assert asked["clients"] == ("x", "y") and asked["folder"] is asked["forget"] is asked["rows"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("source", "sorce"), "unknown key 'data.sorce'. Did you mean 'source'"),
        (('source = "cifar10"', "rows = 3"), "data.source is missing"),
        (('source = "cifar10"', 'source = "cifar10"\nclients = 0'), "data.clients = 0 is out of range"),
        (('source = "cifar10"', 'source = "cifar10"\nclients = true'), "data.clients must be a list, not True"),
        (('source = "cifar10"', 'source = "cifar10"\nrows = -1'), "data.rows = -1 is out of range"),
        (("seed = 4", "seed = -4"), "seed = -4 is out of range"),
        (("[server]\nepochs", "[server]\nepoch"), "unknown key 'server.epoch'. Did you mean 'epochs'"),
        (("args =", "arguments ="), "unknown key 'model.arguments'"),
    ],
)
def test_wrong_tables_read_well(asked: dict[str, Any], tmp_path: Path, change: tuple[str, str], words: str) -> None:
    path = write(tmp_path, change)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ") and words in str(caught.value)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_learn_says_what_it_shortened(asked: dict[str, Any], tmp_path: Path) -> None:
    small = "args = {hidden = 8, layers = 2}\n[client]\nepochs = 1"
    path = write(tmp_path, ("vgg", "mini_bert"), ("args = {width = 4}", small), ("cifar10", "ag_news"))
    result = run("learn", path, "--run", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["texts_shortened"] == 2
    assert "2 texts had more tokens than the model takes" in run("learn", path, "--run", tmp_path / "run").stdout


def test_texts_are_predicted_as_they_were_encoded(asked: dict[str, Any], tmp_path: Path) -> None:
    small = "args = {hidden = 8, layers = 2, length = 12, vocabulary = 300}\n[client]\nepochs = 1"
    path = write(tmp_path, ("vgg", "mini_bert"), ("args = {width = 4}", small), ("cifar10", "ag_news"))
    assert run("learn", path, "--run", tmp_path / "run").exit_code == 0
    (tmp_path / "new.csv").write_text("title,text\nRed Sox,a \\win\nOil,up\n", encoding="utf-8")
    told = run("predict", tmp_path / "run", "ag_news-holder", tmp_path / "new.csv", "--proba", "--json")
    assert told.exit_code == 0, told.output
    inputs = encode(["Red Sox a win", "Oil up"], length=12, vocabulary=300).inputs
    expected = Federation(tmp_path / "run").predict_proba("ag_news-holder", inputs)
    assert json.loads(told.stdout)["probabilities"] == expected.tolist()
    (tmp_path / "new.csv").write_text("class,text\n1,Red Sox\n2,Oil\n", encoding="utf-8")
    wrong = run("predict", tmp_path / "run", "ag_news-holder", tmp_path / "new.csv")
    assert wrong.exit_code == 2 and "leave it out (--label 'class')" in wrong.stderr
    assert run("predict", tmp_path / "run", "ag_news-holder", tmp_path / "new.csv", "--label", "class").exit_code == 0
    (tmp_path / "new.csv").write_text("1,Red Sox\n2,Oil\n", encoding="utf-8")
    assert "give the columns names" in run("predict", tmp_path / "run", "ag_news-holder", tmp_path / "new.csv").stderr


def test_data_that_is_not_there_and_data_that_needs_no_folder(tmp_path: Path) -> None:
    result = run("learn", write(tmp_path), "--run", tmp_path / "run", "--data", tmp_path)
    assert result.exit_code == 6 and "splitwiper data fetch cifar10" in result.stderr
    assert not (tmp_path / "run").exists()
    own = write(tmp_path, ('[data]\nsource = "cifar10"', '[clients.north]\ndata = "north.csv"'))
    result = run("learn", own, "--run", tmp_path / "run", "--data", tmp_path)
    assert result.exit_code == 2 and "--data is for a [data] table" in result.stderr


def test_workloads_that_hide_something_have_secret_keys() -> None:
    assert workload("digits", "digits_cnn").config.client.keys == "seeded"
    assert workload("digits", "digits_cnn", client={"masking": {"mode": "partition"}}).config.client.keys == "random"
    assert (
        workload("digits", "digits_cnn", client={"masking": {"mode": "partition"}, "keys": "seeded"}).config.client.keys
        == "seeded"
    )
