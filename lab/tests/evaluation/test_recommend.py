"""What is recommended follows from what was measured."""

from splitwiper_lab.evaluation.recommend import frontier, recommendation
from splitwiper_lab.evaluation.tradeoff import Point, settings


def point(name: str, accuracy: float, recovered: float, sent: int = 100, known: float = 0.9) -> Point:
    attacks = [
        {"attack": "a", "knows": "", "sample_recovery": recovered / 2},
        {"attack": "b", "knows": "Q", "sample_recovery": recovered},
        {"attack": "c", "knows": "aux", "sample_recovery": known},
        {"attack": "d", "knows": "Q", "sample_recovery": None},
    ]
    return Point(name, accuracy, accuracy, 0.0, sent, 10, 10, 0, None, None, attacks)


PLAIN = point("plain labels", 0.95, 1.0)


def test_recovery_is_that_of_the_strongest_attack_with_the_knowledge() -> None:
    one = point("x", 0.9, 0.6, known=0.5)
    assert (one.recovered(""), one.recovered("Q"), one.recovered("aux")) == (0.3, 0.6, 0.6)
    assert Point.from_dict({**one.to_dict(), "from another version": 1}) == one


def test_the_frontier_leaves_out_what_another_beats() -> None:
    good, worse, dear = point("good", 0.94, 0.5), point("worse", 0.93, 0.6), point("dear", 0.94, 0.5, sent=300)
    assert frontier([PLAIN, good, worse, dear]) == (PLAIN, good)


def test_a_setting_that_hides_and_is_cheap_is_recommended() -> None:
    said = recommendation([PLAIN, point("dear", 0.5, 0.2), point("good", 0.94, 0.5)])
    assert said.startswith("Take “good” (-1.0 points of accuracy, 1 × the bytes, 50.0\xa0% of the rows recovered)")


def test_where_nothing_hides_that_is_said_first() -> None:
    said = recommendation([PLAIN, point("cheap", 0.95, 1.0), point("dear", 0.5, 0.8)])
    assert said.startswith("No setting that costs at most") and "Do not rely on masked labels" in said
    assert "hide no more than names and counts" in said and "What hides most is “dear”" in said
    half = recommendation([PLAIN, point("cheap", 0.94, 0.7), point("dear", 0.5, 0.4)])
    assert "The best of the cheap ones is “cheap”" in half and "The cheapest that hides labels is “dear”" in half
    assert "ten rows of each label recovers at least 90.0\xa0%" in half


def test_too_little_to_say_anything() -> None:
    assert "Too few" in recommendation([PLAIN]) and "Too few" in recommendation([point("x", 0.9, 0.1)] * 2)


def test_the_sweep_has_the_papers_settings_and_names_each_once() -> None:
    names = [setting.name for setting in settings(10)]
    assert len(set(names)) == len(names)
    assert {"plain labels", "duplicate, γ = 1", "duplicate, γ = 2", "duplicate, γ = 3", "duplicate, γ in 1…3"} <= set(
        names
    )
    assert any(setting.noise.is_on for setting in settings(10))
