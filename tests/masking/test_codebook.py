"""Expansion and anonymisation: codes, shuffled; every client computes the same, and nobody else can read it."""

import pytest

from splitwiper import Label
from splitwiper.config import Masking, Noise
from splitwiper.errors import ConfigError, CorruptError, DataError
from splitwiper.masking.codebook import Codebook
from splitwiper.masking.modes import expand
from splitwiper.masking.sealing import GroupKey

LABELS = [Label("", name) for name in ("cat", "dog", "bird", "frog")]


def key(federation: str = "f", secret: str = "a secret of sixteen or more") -> GroupKey:
    return GroupKey.of(secret, federation=federation)


def test_constant_expansion_covers_every_code_once() -> None:
    codebook = expand(LABELS, key(), Masking(mode="partition", gamma=3))
    assert codebook.outputs == 12
    assert sorted(code for codes in codebook.codes.values() for code in codes) == list(range(12))
    assert {len(codes) for codes in codebook.codes.values()} == {3}


def test_a_range_gives_labels_different_numbers_of_codes() -> None:
    databases = [expand(LABELS, key(), Masking(mode="duplicate", gamma=(1, 3)), version=v) for v in range(1, 30)]
    sizes = {len(codes) for codebook in databases for codes in codebook.codes.values()}
    assert sizes == {1, 2, 3} and len({codebook.outputs for codebook in databases}) > 3


def test_gamma_one_is_a_shuffle() -> None:
    databases = [expand(LABELS, key(), Masking(mode="duplicate"), version=v) for v in range(1, 20)]
    assert all(codebook.outputs == 4 for codebook in databases)
    assert len({tuple(codebook.codes[label] for label in LABELS) for codebook in databases}) > 5


def test_everybody_computes_the_same_and_others_do_not() -> None:
    masking = Masking(mode="duplicate", gamma=2)
    one = expand(LABELS, key(), masking)
    assert expand(LABELS[::-1], key(), masking) == one
    assert expand(LABELS, key(secret="another secret entirely"), masking).id != one.id
    assert expand(LABELS, key(), Masking(mode="duplicate", gamma=3)).id != one.id
    assert expand(LABELS, key(), masking, version=2).id != one.id


@pytest.mark.parametrize(("codes", "buckets"), [(4, 1), (4, 3), (7, 5), (0, 3), (20, 16)])
def test_keyed_codes_are_injections_that_labels_share(codes: int, buckets: int) -> None:
    codebook = expand(LABELS, key(), Masking(mode="keyed", codes=codes, buckets=buckets))
    assert codebook.outputs == (codes or 8)
    for bucket in range(buckets):
        used = [codebook.codes[label][bucket] for label in LABELS]
        assert len(set(used)) == len(LABELS) and set(used) <= set(range(codebook.outputs))
    if buckets * len(LABELS) >= 2 * codebook.outputs:
        owners = [{x for x in LABELS if code in codebook.codes[x]} for code in range(codebook.outputs)]
        assert all(owners) and any(len(some) > 1 for some in owners)


def test_fewer_codes_than_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match="fewer than the 4 labels"):
        expand(LABELS, key(), Masking(mode="keyed", codes=3))


@pytest.mark.parametrize("gamma", [0, -1, 1.5, (3, 1), (1, 2, 3), (), True, "2"])
def test_gamma_is_a_number_of_codes(gamma: object) -> None:
    with pytest.raises(ConfigError, match="gamma"):
        Masking(mode="duplicate", gamma=gamma)  # type: ignore[arg-type]


def test_a_label_that_was_not_agreed_on() -> None:
    codebook = expand(LABELS, key(), Masking(mode="duplicate"))
    with pytest.raises(DataError, match=r"'fish' is not in the codebook.*rekey"):
        codebook.of(Label("", "fish"))


def test_an_answer_about_codes_that_are_not_there() -> None:
    codebook = expand(LABELS, key(), Masking(mode="duplicate", gamma=2))
    good = [Label("", code) for code in range(8)]
    codebook.check_outputs(good)
    with pytest.raises(DataError, match="code 8 is outside the codebook"):
        codebook.check_outputs([*good, Label("", 8)])
    with pytest.raises(DataError, match="'cat' is outside"):
        codebook.check_outputs([Label("", "cat"), *good[1:]])
    with pytest.raises(DataError, match="7 codes were answered"):
        codebook.check_outputs(good[:-1])


def test_it_is_kept_encrypted_and_belongs_to_one_group() -> None:
    codebook = expand(LABELS, key(), Masking(mode="duplicate", gamma=2))
    sealed = codebook.sealed(key())
    assert Codebook.opened(sealed, key()) == codebook
    assert not any(name in sealed for name in (b"cat", b"dog", b"bird", b"frog"))
    for other in (key("g"), key(secret="another secret entirely")):
        with pytest.raises(CorruptError, match="another federation or invitation"):
            Codebook.opened(sealed, other)


def test_settings_without_a_mode_are_refused() -> None:
    for given in ({"gamma": 3}, {"buckets": 4}, {"cover": 0.5}):
        with pytest.raises(ConfigError, match="mode is missing"):
            Masking(**given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="gamma is not for mode = 'keyed'"):
        Masking(mode="keyed", gamma=3)
    with pytest.raises(ConfigError, match="codes is not for mode = 'partition'"):
        Masking(mode="partition", codes=40)
    with pytest.raises(ConfigError, match="mechanism is missing"):
        Noise(epsilon=1.0, clip=1.0)
