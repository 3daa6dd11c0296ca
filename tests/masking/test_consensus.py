"""Agreement on labels: it ends, it is right, and what it tells about one client."""

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from splitwiper import Label
from splitwiper.config import Masking
from splitwiper.errors import ConfigError, DataError
from splitwiper.masking.consensus import Participant, Turn, agree


def told_by(transcript: Sequence[Turn], client: str) -> Mapping[Label, bool]:
    """Return what a transcript proves about one client: True for labels it holds, False for labels it does not."""
    out: dict[Label, bool] = {}
    finished = False
    for turn in transcript:
        for label in turn.added:
            if turn.client == client:
                out[label] = True
            elif finished:
                out[label] = False
        finished = finished or (turn.client == client and turn.done)
    return out


def labels(*names: str) -> set[Label]:
    return {Label("", name) for name in names}


def group(sets: dict[str, set[Label]], seed: int = 0, **manner: float) -> list[Participant]:
    return [
        Participant(name, own, Masking(mode="duplicate", **manner), Random(f"{seed} {name}"))  # type: ignore[arg-type]
        for name, own in sets.items()
    ]


WARDS = {"north": labels("a", "b", "c"), "south": labels("b", "c", "d"), "east": labels("d"), "west": labels("a", "d")}


@pytest.mark.parametrize("add", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("finish", [0.01, 1.0])
@pytest.mark.parametrize("most", [1, 100])
def test_it_ends_with_every_label_for_all_legal_settings(add: float, finish: float, most: int) -> None:
    found = agree(group(WARDS, add=add, finish=finish, most=most))
    assert set(found.labels) == labels("a", "b", "c", "d")
    assert [turn.client for turn in found.transcript if turn.done] and all(
        len(turn.added) <= most for turn in found.transcript
    )


@pytest.mark.parametrize("setting", [{"add": 0.0}, {"finish": 0.0}, {"add": 1e-9}, {"most": 0}, {"add": 1.5}])
def test_hopeless_settings_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        Masking(mode="duplicate", **setting)  # type: ignore[arg-type]


def test_a_client_without_labels_is_refused() -> None:
    with pytest.raises(DataError, match="no labels to agree on"):
        group({"north": set()})


def test_a_client_that_lacks_nothing_adds_nothing() -> None:
    """The printed algorithm chooses at least one label from an empty set."""
    (north,) = group({"north": labels("a")}, add=1.0, finish=0.01)
    assert all(north.speak(labels("a", "b")).added == () for _ in range(50))


def test_a_client_is_done_when_its_own_labels_are_there_and_not_before() -> None:
    """The printed algorithm tests another client's set."""
    (north,) = group({"north": labels("a", "b", "c")}, add=0.01, finish=1.0, most=1)
    assert not any(north.speak(labels("a", "b")).done for _ in range(20))
    assert north.speak(labels("a", "b", "c")).done


def test_what_a_leaked_transcript_proves() -> None:
    a, b, c, d = (Label("", name) for name in "abcd")
    said = [Turn("north", (a,)), Turn("south", (b, c)), Turn("north", (), done=True), Turn("south", (d,), done=True)]
    assert told_by(said, "north") == {a: True, d: False}  # of b and c nothing is certain
    assert told_by(said, "south") == {b: True, c: True, d: True}  # of a nothing is certain


def test_a_transcript_never_lies_and_leaves_doubt() -> None:
    doubts = 0
    for seed in range(200):
        found = agree(group(WARDS, seed))
        for name, own in WARDS.items():
            told = told_by(found.transcript, name)
            assert all((label in own) == held for label, held in told.items())
            doubts += sum(label not in told for label in own)
    assert doubts > 200 * 2  # on average more than two of nine memberships stay in doubt


def test_both_sets_that_differ_in_a_label_can_give_the_same_transcript() -> None:
    """Deniability: `south` may hold what `north` added first, or not; the talk can be the same, word for word."""

    def transcripts(south: set[Label]) -> set[tuple[Turn, ...]]:
        wards = {"north": labels("a"), "south": south}
        return {agree(group(wards, seed, add=0.5, finish=0.5)).transcript for seed in range(300)}

    shared = transcripts(labels("b")) & transcripts(labels("a", "b"))
    assert shared
    assert all(Label("", "a") not in told_by(said, "south") for said in shared)
