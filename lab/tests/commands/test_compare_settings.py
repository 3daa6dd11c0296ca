"""``splitwiper compare``: what it says to settings that are wrong."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from commands.comparing import HEAD, write
from splitwiper.errors import ConfigError
from splitwiper_lab.evaluation.comparison import read_comparison


def test_the_file_must_say_what_to_compare(tmp_path: Path, call) -> None:
    bare = write(tmp_path, "", head=HEAD.replace("[compare]\n", ""))
    problem = call("compare", bare, code=2).stderr
    assert "smoke.toml has no [compare] table" in problem and "splitwiper compare --help" in problem
    listed = write(tmp_path, "", head='compare = ["vanilla"]\n' + HEAD.replace("[compare]\n", ""))
    assert "has no [compare] table" in call("compare", listed, code=2).stderr
    problem = call("compare", tmp_path / "smok.toml", code=2).stderr
    assert "there is no configuration file" in problem and "Did you mean 'smoke.toml'?" in problem


def test_seeds_and_folders_out_of_range(smoke: Path, tmp_path: Path, call, nothing_is_computed: None) -> None:
    assert "--seeds" in call("compare", smoke, "--seeds", 0, code=2).stderr
    assert (
        "seeds = 1001 is out of range: give a number ≥ 1 and ≤ 1000"
        in call("compare", smoke, "--seeds", 1001, code=2).stderr
    )
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "Check the path" in call("compare", smoke, "--out", tmp_path / "file", code=7).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed = 2", r"unknown key 'compare.seed'. Did you mean 'seeds'\?"),
        ("systems = []", r"must be a list of systems, as in \[\[compare.systems\]\] kind = 'vanilla'"),
        ('systems = "vanilla"', r"must be a list of systems, as in \[\[compare.systems\]\]"),
        ("systems = [3]", r"compare.systems\[0\] must be a name or a table, not 3"),
        (
            'systems = ["splitwiper", "vanila"]',
            r"systems\[1\].kind = 'vanila' is not a system. Did you mean 'vanilla'\?",
        ),
        ("systems = [{}]", "kind = '' is not a system. Known are splitwiper, vanilla, u-shaped, .*, sisa"),
        ('systems = ["vanilla", "vanilla"]', "two .* are called 'vanilla, interleaved'; give one of them another name"),
        ('systems = ["sisa", {kind = "vanilla", name = "sisa, 5 shards"}]', "another name"),
        ('systems = [{kind = "vanilla", shedule = "turns"}]', r"'compare.systems\[0\].shedule'. Did you mean 'sch"),
        ('systems = [{kind = "vanilla", schedule = "turn"}]', r"not one of interleaved, turns. Did you mean 'turns'\?"),
        ('systems = [{kind = "vanilla", schedule = 1}]', r"compare.systems\[0\].schedule must be str, not 1"),
        ('systems = [{kind = "vanilla", aggregate = "men"}]', r"not an aggregation. Did you mean 'mean'\?"),
        ('systems = [{kind = "vanilla", start = "scrath"}]', r"pretrained, scratch. Did you mean 'scratch'\?"),
        ('systems = [{kind = "vanilla", synchronise = "averge"}]', r"none, average. Did you mean 'average'\?"),
        ('systems = [{kind = "vanilla", synchronise = true}]', "synchronise must be str, not True"),
        ('systems = [{kind = "splitfed-v1", synchronise = "none"}]', "SplitFed averages .* vanilla split learning"),
        ('systems = [{kind = "splitfed-v2", synchronise = "none"}]', "SplitFed averages .* vanilla split learning"),
        ('systems = [{kind = "vanilla", unlearning = "retrain"}]', "unlearn 'retrain'. Did you mean 'retraining'"),
        ('systems = [{kind = "vanilla", unlearning = ["x"]}]', "Known are retraining, .*, incompetent-teacher"),
        ('systems = [{kind = "vanilla", unlearning = []}]', "a list of ways to unlearn: retraining, fine-tuning"),
        ('systems = [{kind = "vanilla", unlearning = 3}]', "a list of ways to unlearn: retraining, fine-tuning"),
        ('systems = [{kind = "vanilla", unlearning = {method = "fine-tuning", epoch = 2}}]', "Did you mean 'epochs'"),
        ('systems = [{kind = "vanilla", unlearning = {method = "retraining", epochs = 2}}]', "It has no settings"),
        ('systems = [{kind = "vanilla", unlearning = {method = "distillation", alpha = "1"}}]', "must be a number"),
        (
            'systems = [{kind = "vanilla", unlearning = {method = "distillation", preserver = 1}}]',
            "unknown key 'preser",
        ),
        (
            'systems = [{kind = "vanilla", unlearning = {method = "fine-tuning", epochs = 0}}]',
            "epochs = 0 .* give a num",
        ),
        ('systems = [{kind = "splitwiper", mask = {}}]', r"unknown key .*mask'. Did you mean 'masking'\?"),
        ('systems = [{kind = "splitwiper", masking = {mode = "partitio"}}]', r"Did you mean 'partition'\?"),
        ('systems = [{kind = "splitwiper", unlearning = "retraining"}]', "Known keys: masking, noise"),
        ('systems = [{kind = "sisa", shards = 0}]', "shards = 0 is out of range"),
        ('systems = [{kind = "sisa", shards = "2"}]', r"systems\[0\].shards must be int, not '2'"),
        ('systems = [{kind = "sisa", slice = 2}]', r"Did you mean 'slices'\?"),
        ("seeds = 0", "seeds = 0 is out of range: give a number ≥ 1 and ≤ 1000"),
        ("seeds = 1001", "seeds = 1001 is out of range"),
        ('seeds = "2"', "compare.seeds must be int, not '2'"),
        ("delta = 0", "delta = 0.0 is out of range: give a number > 0 and ≤ 1"),
        ("delta = 1.1", "delta = 1.1 is out of range"),
        ("delta = nan", "delta = nan is out of range"),
        ("bandwidth = 0", "bandwidth = 0.0 is out of range: give a number > 0"),
        ("bandwidth = inf", "bandwidth = inf is out of range"),
        ('bandwidth = "fast"', "compare.bandwidth must be float, not 'fast'"),
        ('level = "clas"', r"not one of class, sample, client. Did you mean 'class'\?"),
        ("absent = 3", "compare.absent must be str, not 3"),
        ("forget = 1.5", "compare.forget must be str or int, not 1.5"),
        ("membership = 0.4", "compare.membership must be a table, not 0.4"),
        ("membership = {sahdows = 2}", r"'compare.membership.sahdows'. Did you mean 'shadows'"),
        ("membership = {shadow = 0.95}", "shadow = 0.95 is out of range: give a number ≥ 0 and ≤ 0.9"),
        ("membership = {shadows = 0}", "shadows = 0 is out of range: give a number ≥ 1 and ≤ 64"),
        ("membership = {labels = 0}", "labels = 0.0 is out of range: give a number > 0 and ≤ 1"),
        ('membership = {shadow = "some"}', "compare.membership.shadow must be float, not 'some'"),
    ],
)
def test_wrong_settings_are_told_with_the_remedy(
    tmp_path: Path, call, nothing_is_computed: None, text: str, said: str
) -> None:
    problem = call("compare", write(tmp_path, text), code=2).stderr
    assert "smoke.toml: " in problem and re.search(said, problem), problem


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ("north", "compare.absent = 'north' is not a client, or is the owner itself. Others are east, south"),
        ("soth", r"compare.absent = 'soth' is not a client, or is the owner itself. Did you mean 'south'\?"),
        ("nowhere", "Others are east, south"),
    ],
)
def test_only_another_client_can_be_away(tmp_path: Path, call, absent: str, said: str) -> None:
    assert re.search(said, call("compare", write(tmp_path, f'absent = "{absent}"'), code=2).stderr)


@pytest.mark.parametrize("way", ["distillation", "incompetent-teacher"])
def test_half_an_epoch_is_refused(tmp_path: Path, call, way: str) -> None:
    text = f'systems = [{{kind = "vanilla", unlearning = {{method = "{way}", epochs = 1.5}}}}]'
    assert f"epochs = 1.5 of {way} must be a whole number" in call("compare", write(tmp_path, text), code=2).stderr


@pytest.mark.parametrize(
    "ways",
    [
        '["retraining", "retraining"]',
        '[{method = "fine-tuning", epochs = 1}, {method = "fine-tuning", epochs = 2}]',
    ],
)
def test_one_way_given_twice_is_refused_or_told_apart(tmp_path: Path, ways: str) -> None:
    table = {"systems": [{"kind": "vanilla", "unlearning": tomllib.loads(f"ways = {ways}")["ways"]}]}
    try:
        (system,) = read_comparison(table).systems
    except ConfigError:
        return
    assert len(set(system.ways)) == 2


def test_a_slip_in_systems_is_recognised(tmp_path: Path, call) -> None:
    problem = call("compare", write(tmp_path, 'sytems = ["vanilla"]'), code=2).stderr
    assert "Did you mean 'systems'" in problem


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ('{kind = "vanilla", synchronise = "yes"}', "is not one of none, average"),
        ('{kind = "splitfed-v1", synchronise = "none"}', "without synchronisation it is vanilla"),
    ],
)
def test_synchronise_is_told_as_the_file_has_it(tmp_path: Path, call, system: str, said: str) -> None:
    assert said in call("compare", write(tmp_path, f"systems = [{system}]"), code=2).stderr.replace("'", '"')
