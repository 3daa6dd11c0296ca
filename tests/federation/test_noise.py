"""Noise on activations end to end: exact, counted, and told only to the client."""

from pathlib import Path

import numpy as np
import pytest

from federation.runs import activations, assert_same, halves, ids_at, learned, settings, three, without
from splitwiper import Federation
from splitwiper.config import Masking, Noise

VALUE = Noise(mechanism="laplace", epsilon=2.0, clip=1.0, reading="value", nonnegative=True)
ROW = Noise(mechanism="gaussian", epsilon=4.0, clip=2.0, reading="row")
MEAN = Noise(mechanism="laplace", epsilon=0.2, clip=1.0, reading="mean", nonnegative=True)
KINDS = [
    {"noise": VALUE},
    {"noise": ROW, "masking": Masking(mode="keyed", buckets=3)},
    {"noise": MEAN, "masking": Masking(mode="duplicate", gamma=3), "codec": "int8"},
    {"noise": VALUE, "masking": Masking(mode="subclass", gamma=2, cover=0.8), "codec": "float16"},
]


def federation(path: Path, **client: object) -> Federation:
    return Federation(path, halves(), settings(**client))


@pytest.mark.parametrize("client", KINDS, ids=["value", "row", "mean", "cover"])
def test_unlearned_equals_never_had(tmp_path: Path, client: dict[str, object]) -> None:
    data = three()
    fed = federation(tmp_path / "run", **client)
    fed.learn(data)
    receipt = fed.unlearn("north", classes=["bird"])
    never = fed.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], data["north"][1] != "bird")})
    assert_same(fed, never)
    assert fed.verify(receipt).exact and fed.verify().exact


def test_noise_is_there_and_is_fresh_in_every_generation(tmp_path: Path) -> None:
    plain = federation(tmp_path / "p", keys="seeded")
    noisy = federation(tmp_path / "n", noise=VALUE, keys="seeded")
    for fed in (plain, noisy):
        fed.learn(three())
    first = activations(noisy, "south")
    assert 0.1 < np.abs(first - np.clip(first, 0, 1)).mean() < 2  # scale 1/2 on values in [0, 1]
    values = activations(plain, "south")
    assert (values >= 0).all() and (first < 0).any()  # behind a ReLU, and with noise on it
    noisy.unlearn("south", samples=ids_at(noisy, "south", [0]))
    second = activations(noisy, "south")
    # where activations are zero before noise and after, the same noise would give the same values; fresh noise lies on
    # a grid of thousands, so a few of them may coincide
    dead = int((values == 0).mean(axis=0).argmax())
    assert (values[:, dead] == 0).mean() > 0.9
    assert np.isin(second[:, dead], first[:, dead]).mean() < 0.5


def test_asking_again_gives_the_same_answer_and_spends_nothing(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(noise=VALUE))
    x = three()["south"][0]
    before = fed._client("south").privacy()
    one = fed.predict_proba("south", x)
    asked = fed._client("south").privacy()
    np.testing.assert_array_equal(fed.predict_proba("south", x[::-1])[::-1], one)
    assert fed._client("south").privacy() == asked
    assert (before.predictions, asked.predictions) == (0, 1)
    assert asked.row.pure is not None and before.row.pure is not None and asked.row.pure > before.row.pure


def test_predicting_at_home_sends_and_spends_nothing(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(noise=VALUE))
    before = fed.spent["south"].bytes_up
    fed.predict("south", three()["south"][0], local=True)
    assert fed._client("south").privacy().predictions == 0
    assert fed.spent["south"].bytes_up == before and fed.spent["south"].bytes_down > 0


def test_every_upload_is_counted_and_a_repeated_one_is_not(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(noise=VALUE, masking=Masking(mode="duplicate", gamma=2)))
    fed.reupload("north")
    assert fed._client("north").privacy().uploads == 1
    receipt = fed.unlearn("north", classes=["bird"])
    said = fed._client("north").privacy()
    assert said.uploads == 2
    assert said.value.pure == pytest.approx(2 * 2 * VALUE.epsilon)  # two uploads of two copies
    assert said.row.pure == pytest.approx(8 * 2 * 2 * VALUE.epsilon)  # of eight values
    assert receipt.privacy["uploads"] == 2 and receipt.privacy["row"]["pure"] == said.row.pure
    assert fed.verify(receipt).exact  # what the client adds for itself is not the server's to vouch for
    told = {c.name: c.privacy.replace("\xa0", " ") for c in fed.status().clients}
    assert "each row of 8 values: epsilon 64 (pure)" in told["north"] and "each value: epsilon 8" in told["north"]
    assert "after 1 upload" in told["south"]


def test_the_server_is_told_nothing_of_it(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(noise=VALUE))
    fed.unlearn("north", classes=["bird"])
    for path in (tmp_path / "run" / "server").rglob("*"):
        if path.is_file():
            raw = path.read_bytes()
            assert not any(word in raw for word in (b"laplace", b"epsilon", b"noise", b'privacy": {"')), path


def test_without_the_key_it_cannot_be_verified(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(noise=VALUE))
    (tmp_path / "run" / "clients" / "north" / "key").unlink()
    assert fed.verify().outcome == "unverifiable"
