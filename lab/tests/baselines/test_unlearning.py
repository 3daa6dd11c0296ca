"""Unlearning in frameworks that do not isolate clients: what each way does, and whom it needs."""

import numpy as np
import pytest
import torch

from baselines.small import HELD, digits, problem
from baselines.test_messages import digest_of
from splitwiper.errors import AbsentClientError, ConfigError, InputError, RequestError
from splitwiper.seeding import state_digest
from splitwiper.wire import Label
from splitwiper_lab.baselines import FRAMEWORKS, Forgetting, Problem, SplitFedV1, Trained, UShaped, Vanilla
from splitwiper_lab.baselines.schedules import Portion
from splitwiper_lab.baselines.unlearning import (
    METHODS,
    Distillation,
    FineTuning,
    GradientAscent,
    IncompetentTeacher,
    Retraining,
)

LEVELS = {"class": {"classes": [4]}, "sample": {"samples": [0, 3, 5]}, "client": {"everything": True}}


@pytest.fixture(scope="module")
def learned() -> dict[str, Trained]:
    """A trained network of each framework."""
    return {
        name: kind(schedule="interleaved").learn(problem(digits(60), epochs=8, lr=0.2))
        for name, kind in FRAMEWORKS.items()
    }


def given_without(level: str) -> dict:
    """The data of clients that never had the rows."""
    data = digits(60)
    x, y = data["north"]
    keep = {"class": y != 4, "sample": ~np.isin(np.arange(len(y)), [0, 3, 5])}.get(level)
    if keep is None:
        del data["north"]
    else:
        data["north"] = (x[keep], y[keep])
    return data


@pytest.mark.share(3)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_retraining_is_never_having_had_the_rows(name: str, level: str, learned: dict[str, Trained]) -> None:
    trained = learned[name]
    again = Retraining().unlearn(trained, trained.problem.choose("north", **LEVELS[level]))
    never = trained.framework.learn(problem(given_without(level), epochs=8, lr=0.2))
    assert digest_of(again) == digest_of(never)
    assert again.exact
    assert again.took_part == tuple(name for name in HELD if level != "client" or name != "north")
    # others' halves are not pre-trained again, the requester's is
    assert {name for name, cost in again.preparing.items() if cost.flops} == ({"north"} if level != "client" else set())


@pytest.mark.share(4)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["vanilla", "u-shaped", "splitfed-v1"])
def test_every_way_at_every_level(name: str, method: str, level: str, learned: dict[str, Trained]) -> None:
    trained = learned[name]
    before = digest_of(trained)
    forgetting = trained.problem.choose("north", **LEVELS[level])
    left = METHODS[method]().unlearn(trained, forgetting)
    assert digest_of(trained) == before  # the old network is as it was
    assert left.exact is (method == "retraining")
    assert sorted(left.network.stems) == sorted(left.problem.clients)
    assert ("north" in left.network.stems) is (level != "client")
    assert len(left.problem.clients.get("north", ())) == (0 if level == "client" else 60 - forgetting.rows)
    working = {name for name, cost in left.spent.items() if cost.traffic}
    assert working == set(left.took_part)
    assert set(left.spent) == set(HELD)
    tests = {client: rows for client, rows in digits(20, first=60).items() if client in left.network.stems}
    found = left.network.evaluate(tests).per_label
    kept = [score for label, score in found.items() if label.name != 4]
    assert sum(score.right for score in kept) / sum(score.rows for score in kept) > 0.7


def test_how_well_classes_are_forgotten(learned: dict[str, Trained]) -> None:
    """Retraining forgets wholly, fine-tuning hardly, the ways that push do; none of these is exact but the first."""
    trained = learned["vanilla"]
    tests, forgetting = digits(20, first=60), trained.problem.choose("north", classes=[4])

    def recalled(left: Trained) -> float:
        return left.network.evaluate(tests).per_label[Label("", 4)].accuracy

    assert recalled(trained) > 0.8
    assert recalled(Retraining().unlearn(trained, forgetting)) == 0.0
    assert recalled(FineTuning().unlearn(trained, forgetting)) > 0.5
    assert recalled(GradientAscent(epochs=10, lr=0.2).unlearn(trained, forgetting)) < 0.2
    assert recalled(Distillation(epochs=20, lr=0.1).unlearn(trained, forgetting)) < 0.5
    assert recalled(IncompetentTeacher(epochs=20, lr=0.1).unlearn(trained, forgetting)) < 0.5


@pytest.mark.parametrize("method", METHODS)
def test_an_absent_client_stops_it(method: str, learned: dict[str, Trained]) -> None:
    trained = learned["vanilla"]
    forgetting = trained.problem.choose("north", classes=[4])
    with pytest.raises(AbsentClientError, match=r"needs 'south', not reachable .*'north' alone"):
        METHODS[method]().unlearn(trained, forgetting, present=["north", "east"])


def test_ascent_without_retention_needs_the_requester_alone(learned: dict[str, Trained]) -> None:
    trained = learned["vanilla"]
    forgetting = trained.problem.choose("north", classes=[4])
    left = GradientAscent(retain=0.0).unlearn(trained, forgetting, present=["north"])
    assert left.took_part == ("north",)
    assert left.spent["south"].traffic == left.spent["south"].flops == 0
    for name in ("east", "south"):
        assert torch.equal(
            left.network.stems[name].state_dict()["body.stem.0.weight"],
            trained.network.stems[name].state_dict()["body.stem.0.weight"],
        )


def test_ascent_stops_where_the_label_is_unlikely() -> None:
    """Rows whose loss is beyond the ceiling give no gradient."""
    logits = torch.tensor([[9.0, 0.0], [0.0, 9.0]], requires_grad=True)
    objective = GradientAscent().objective({"north": Portion(np.arange(0), np.arange(2))})
    objective.loss(logits, torch.tensor([1, 1]), torch.tensor([True, True]), None).backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad[0], torch.zeros(2))
    assert logits.grad[1].abs().sum() > 0


@pytest.mark.parametrize(("kind", "kept", "gone"), [(GradientAscent(), 1.0, -1.0), (Distillation(alpha=0.3), 0.7, 0.3)])
def test_rows_weigh_as_the_formula_says(kind, kept: float, gone: float) -> None:
    """Over a whole epoch the mean is kept · L_r + gone · L_u, however rows fall into clients and batches."""
    chosen = {"a": Portion(np.arange(6), np.arange(6, 8)), "b": Portion(np.arange(12), np.arange(0))}
    logits, codes, taught = torch.randn(20, 3), torch.arange(20) % 3, torch.randn(20, 3)
    marks = torch.isin(torch.arange(20), torch.tensor([6, 7]))
    loss = kind.objective(chosen).loss
    parts = [slice(0, 8), slice(8, 13), slice(13, 20)]
    found = sum(loss(logits[p], codes[p], marks[p], taught[p]) * (p.stop - p.start) for p in parts) / 20
    if isinstance(kind, GradientAscent):
        each = torch.nn.functional.cross_entropy(logits, codes, reduction="none")
        each = torch.where(marks, each.clamp(max=float(np.log(6))), each)
    else:
        each = (logits - taught).square().mean(dim=1)
    assert float(found) == pytest.approx(float(kept * each[~marks].mean() + gone * each[marks].mean()), rel=1e-5)


def test_copies_of_clients_that_took_no_part_follow() -> None:
    """SplitFed has a server half for each client: what one unlearns, all copies unlearn."""
    trained = SplitFedV1().learn(problem(digits(60), epochs=8, lr=0.2))
    left = GradientAscent(retain=0.0, epochs=10, lr=0.1).unlearn(trained, trained.problem.choose("north", classes=[4]))
    states = [state_digest(half.state_dict()) for half in left.network.halves.values()]
    assert len(set(states)) == 1
    assert state_digest(trained.network.halves["east"].state_dict()) not in states


@pytest.mark.parametrize("framework", [Vanilla, UShaped])
def test_one_unlearning_after_another(framework) -> None:
    """An output that nobody holds any more stays, and teachers have it too."""
    trained = framework().learn(problem(epochs=2))
    first = FineTuning(epochs=1).unlearn(trained, trained.problem.choose("north", classes=[4]))
    for kind in (Distillation, IncompetentTeacher, GradientAscent):
        second = kind(epochs=1).unlearn(first, first.problem.choose("south", classes=[5]))
        assert second.network.labels == trained.network.labels
    assert "north" not in first.starts  # it was pre-trained on what was forgotten


def test_requests_made_from_another_problem(learned: dict[str, Trained]) -> None:
    trained = learned["vanilla"]
    stale = trained.problem.choose("north", classes=[4])
    left = FineTuning(epochs=1).unlearn(trained, stale)
    for kind in (Retraining, FineTuning, GradientAscent):
        with pytest.raises(RequestError, match="not about the rows"):
            kind().unlearn(left, stale)


def test_teachers_of_another_shape(learned: dict[str, Trained]) -> None:
    trained = learned["vanilla"]
    forgetting = trained.problem.choose("north", classes=[4])
    fewer = Vanilla().learn(trained.problem.without(forgetting))
    with pytest.raises(InputError, match=r"the student has 6 labels .* the teacher 5"):
        Distillation(preserver=fewer.network).unlearn(trained, forgetting)
    gone = Vanilla().learn(trained.problem.without(trained.problem.choose("east", everything=True)))
    with pytest.raises(InputError, match="no part for it"):
        IncompetentTeacher(destroyer=gone.network).unlearn(trained, forgetting)
    with pytest.raises(InputError, match=r"for client .* the teacher"):
        Distillation(preserver=learned["u-shaped"].network).unlearn(trained, forgetting)


def test_a_teacher_of_ones_own(learned: dict[str, Trained]) -> None:
    """Both teachers are the student itself: there is little to learn."""
    trained = learned["vanilla"]
    forgetting = trained.problem.choose("north", classes=[4])
    left = Distillation(destroyer=trained.network, epochs=1).unlearn(trained, forgetting)
    assert left.losses[0] < 0.5


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (FineTuning, {"epochs": 0}, "epochs = 0"),
        (GradientAscent, {"retain": -1.0}, "retain = -1.0"),
        (Distillation, {"alpha": 2.0}, "alpha = 2.0"),
        (IncompetentTeacher, {"share": 0.0}, "share = 0.0"),
        (IncompetentTeacher, {"temperature": 0.0}, "temperature = 0.0"),
    ],
)
def test_wrong_settings(kind: type, settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**settings)


@pytest.mark.parametrize(
    ("client", "what", "message"),
    [
        ("nroth", {"everything": True}, "Did you mean 'north'"),
        ("north", {"classes": [7]}, "no rows of class 7"),
        ("north", {"samples": [60]}, "no row 60"),
        ("north", {"samples": []}, "names no row"),
        ("north", {"samples": [7.9]}, "row numbers"),
        ("north", {"samples": [True, False]}, "row numbers"),
        ("north", {"classes": ["4"]}, "It has 2, 3, 4"),
        ("north", {}, "say what to forget"),
        ("north", {"classes": [4], "everything": True}, "one of them"),
    ],
)
def test_requests_that_name_nothing(client: str, what: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        problem(digits(60)).choose(client, **what)


def test_forgetting_all_there_is() -> None:
    alone = problem({"north": digits()["north"]})
    with pytest.raises(RequestError, match="nothing would be left"):
        alone.without(alone.choose("north", everything=True))


def test_rows_forgotten_before() -> None:
    """Places in the data as it was given stay what they were."""
    first: Problem = problem(digits(60))
    second = first.without(first.choose("north", samples=[2]))
    with pytest.raises(RequestError, match="forgotten row 2 already"):
        second.choose("north", samples=[2])
    chosen: Forgetting = second.choose("north", samples=[9])
    held = second.clients["north"]
    assert np.array_equal(held.shard.columns["x"][chosen.gone][0], digits(60)["north"][0][9])
