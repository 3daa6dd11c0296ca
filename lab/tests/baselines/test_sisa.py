"""SISA: forgetting gives bit for bit what training without the rows gives, and trains no more than it has to."""

import copy
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from splitwiper.client.local_net import Embedder, Normaliser
from splitwiper.config import ClientConfig, Config, ServerConfig
from splitwiper.data.tables import Table
from splitwiper.errors import ConfigError, DataError, RequestError, TrainingError
from splitwiper.models import digits_cnn
from splitwiper.seeding import Stream, isolated_rng
from splitwiper.server.training import with_output_layer
from splitwiper.splitting import split
from splitwiper.training.loop import Training, state_of
from splitwiper.wire import Label
from splitwiper_lab.baselines.problem import Forgetting, Problem
from splitwiper_lab.baselines.sharding import places
from splitwiper_lab.baselines.sisa import Sisa, by_vote, sisa
from splitwiper_lab.baselines.whole import Weights, Whole, answering, loaded, poolable, train_whole
from splitwiper_lab.workloads import Workload, workload

SHARDS = 4


@pytest.fixture(scope="module")
def work() -> Workload:
    return workload("digits", "digits_cnn", clients=3, rows=300, server={"epochs": 3, "batch": 16, "threads": 1})


@pytest.fixture(scope="module")
def problem(work: Workload) -> Problem:
    return Problem.of_workload(work)


@pytest.fixture(scope="module", params=[1, 3], ids=lambda n: f"{n} slices")
def learned(request: pytest.FixtureRequest, problem: Problem) -> Sisa:
    return sisa(problem, shards=SHARDS, slices=request.param)


def again(problem: Problem, like: Sisa) -> Sisa:
    """The same, trained from nothing."""
    s = like.sharding
    return sisa(problem, shards=s.shards, slices=s.slices, epochs=s.epochs, aggregate=s.aggregate)


def check_equal(one: Sisa, other: Sisa) -> None:
    a, b = one.state, other.state
    assert list(a) == list(b)
    for name in a:
        assert torch.equal(a[name], b[name]), name
    assert one.labels == other.labels
    for shard, checkpoints in one.shards.items():
        for mine, theirs in zip(checkpoints, other.shards[shard], strict=True):
            assert (mine.slice, mine.digest, mine.rows) == (theirs.slice, theirs.digest, theirs.rows)
            assert mine.weights.labels == theirs.weights.labels
    assert one.cost.storage == other.cost.storage
    assert one.cost.skipped == other.cost.skipped


def placed(model: Sisa, client: str) -> np.ndarray:
    return places(model.problem.clients[client], model.problem.config.seed, model.sharding)


def shards_of(model: Sisa, forgetting: Forgetting) -> set[int]:
    return set(placed(model, forgetting.client)[0, forgetting.gone].tolist())


def lying_in(model: Sisa, shard: int, parts: Iterable[int]) -> list[Forgetting]:
    """What each client has in some slices of a shard."""
    out = []
    for name in model.problem.clients:
        place = placed(model, name)
        gone = (place[0] == shard) & np.isin(place[1], list(parts))
        if gone.any():
            out.append(Forgetting(name, "sample", gone))
    return out


# --- exactness -------------------------------------------------------------------------------------------


def test_a_forgotten_class_that_nobody_else_holds_leaves_nothing(learned: Sisa, work: Workload) -> None:
    label = Label("", work.forget)
    forgetting = learned.problem.choose(work.owner, classes=[work.forget])
    assert label in learned.labels
    after = learned.unlearn(forgetting)
    check_equal(after, again(learned.problem.without(forgetting), learned))
    assert label not in after.labels
    assert not any(label in c.weights.labels for checkpoints in after.shards.values() for c in checkpoints)
    assert len(after.problem.labels) == len(learned.problem.labels) - 1


def test_a_forgotten_class_that_others_hold_too(learned: Sisa) -> None:
    forgetting = learned.problem.choose("south", classes=["nine"])
    after = learned.unlearn(forgetting)
    check_equal(after, again(learned.problem.without(forgetting), learned))
    assert after.labels == learned.labels


def test_forgotten_samples_touch_their_shards_only(learned: Sisa) -> None:
    forgetting = learned.problem.choose("north", samples=[5])
    after = learned.unlearn(forgetting)
    check_equal(after, again(learned.problem.without(forgetting), learned))
    (shard,) = shards_of(learned, forgetting)
    assert after.cost.retrained == (shard,)
    assert after.cost.reused == tuple(n for n in range(SHARDS) if n != shard)
    for other in after.cost.reused:
        assert after.shards[other] == learned.shards[other]  # the very objects
    old, new = learned.shards[shard][-1].weights.state, after.shards[shard][-1].weights.state
    assert not all(torch.equal(old[name], new[name]) for name in old)


def test_a_forgotten_client(learned: Sisa) -> None:
    forgetting = learned.problem.choose("east", everything=True)
    after = learned.unlearn(forgetting)
    check_equal(after, again(learned.problem.without(forgetting), learned))
    assert "east" not in after.problem.clients


def test_forgetting_again_and_again(learned: Sisa) -> None:
    model = learned
    for client, rows in (("north", [0, 1]), ("south", [7]), ("north", [2])):
        model = model.unlearn(model.problem.choose(client, samples=rows))
    check_equal(model, again(model.problem, learned))


def test_an_emptied_slice_and_then_an_emptied_shard(problem: Problem) -> None:
    model = learned = sisa(problem, shards=SHARDS, slices=3)
    for forgetting in lying_in(model, 2, [1]):
        model = model.unlearn(Forgetting(forgetting.client, "sample", forgetting.gone))
    assert [c.slice for c in model.shards[2]] == [0, 2]
    assert model.shards[2][0] is learned.shards[2][0]
    check_equal(model, again(model.problem, learned))
    for forgetting in lying_in(model, 2, [0, 2]):
        model = model.unlearn(forgetting)
    assert model.cost.skipped == (2,)
    assert list(model.shards) == [0, 1, 3]
    check_equal(model, again(model.problem, learned))
    assert len(model.predict(problem.clients["east"].shard.columns["x"])) == len(problem.clients["east"])


def test_an_emptied_last_slice_needs_no_training(problem: Problem) -> None:
    model = learned = sisa(problem, shards=SHARDS, slices=3)
    first, *others = lying_in(model, 0, [2])
    model = model.unlearn(first)
    assert (model.cost.retrained, model.cost.row_epochs > 0) == ((0,), bool(others))
    for forgetting in others:
        model = model.unlearn(forgetting)
    assert (model.cost.retrained, model.cost.row_epochs) == ((), 0)
    assert model.shards[0] == learned.shards[0][:2]
    check_equal(model, again(model.problem, learned))


def test_standardised_inputs_are_refitted_on_what_is_left() -> None:
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    x[7] *= 1e6
    halves = split(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), at="1", example=torch.zeros(1, 4))
    config = Config(server=ServerConfig(epochs=2, batch=8, threads=1), client=ClientConfig(standardise=True))
    learned = sisa(Problem.of(halves, config, {"a": (x[:30], y[:30]), "b": (x[30:], y[30:])}), shards=2, slices=2)
    forgetting = learned.problem.choose("a", samples=[7])
    after = learned.unlearn(forgetting)
    check_equal(after, again(learned.problem.without(forgetting), learned))
    scales = [c.weights.fitted["x"][1].max() for cs in after.shards.values() for c in cs]
    assert max(scales) < 10
    assert max(w.fitted["x"][1].max() for w in learned.models.values()) > 1e4
    weights = after.models[0]
    shift, scale = (part.numpy() for part in weights.fitted["x"])
    plain = answering(after.problem, replace(weights, fitted={}))((x - shift) / scale)
    torch.testing.assert_close(answering(after.problem, weights)(x), plain)


def test_nothing_but_the_seed_and_the_rows_matters(problem: Problem, learned: Sisa) -> None:
    torch.manual_seed(99)
    np.random.seed(99)
    before = torch.get_rng_state()
    check_equal(again(problem, learned), learned)
    assert torch.equal(torch.get_rng_state(), before)
    other = replace(problem, config=replace(problem.config, seed=1))
    assert not np.array_equal(placed(learned, "north"), placed(replace(learned, problem=other), "north"))


def test_stages_go_on_from_each_other_each_on_a_stream_of_its_own(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def spy(*args, **told):
        calls.append((told["stream"], told["before"], train_whole(*args, **told)))
        return calls[-1][2]

    monkeypatch.setattr("splitwiper_lab.baselines.sisa.train_whole", spy)
    learned = sisa(problem, shards=2, slices=2, epochs=1)
    assert [before for _, before, _ in calls] == [None, calls[0][2], None, calls[2][2]]
    assert [made for *_, made in calls] == [c.weights for cs in learned.shards.values() for c in cs]
    assert [s.content for s, *_ in calls] == [c.digest for cs in learned.shards.values() for c in cs]
    assert [(s.purpose, s.name) for s, *_ in calls] == [(f"sisa/{p}", f"shard {n}") for n in (0, 1) for p in (0, 1)]


def test_rows_stay_where_they_are(learned: Sisa) -> None:
    held = learned.problem.clients["north"]
    kept = learned.problem.without(learned.problem.choose("north", samples=range(0, 100, 2))).clients["north"]
    where = dict(zip(map(bytes, held.shard.columns["@mac"]), placed(learned, "north").T.tolist(), strict=True))
    now = places(kept, learned.problem.config.seed, learned.sharding).T.tolist()
    assert now == [where[bytes(mac)] for mac in kept.shard.columns["@mac"]]
    assert {n for n, _ in now} == set(range(SHARDS))
    assert {n for _, n in now} == set(range(learned.sharding.slices))


# --- what it costs ---------------------------------------------------------------------------------------


def test_costs_of_learning(problem: Problem, learned: Sisa) -> None:
    slices, cost = learned.sharding.slices, learned.cost
    epochs = {1: 3, 3: 2}[slices]  # round(2·3 / 4) = 2
    assert learned.sharding.stage_epochs == epochs
    parts = np.concatenate([placed(learned, name)[1] for name in problem.clients])
    assert cost.row_epochs == epochs * sum((parts <= n).sum() for n in range(slices))
    forward = cost.row_epochs * sum(problem.halves.flops)
    assert 2 * forward < cost.flops < 3 * forward  # no gradient of the inputs is computed
    assert cost.storage == sum(t.nbytes for t in learned.state.values())
    assert len({name.rsplit("/", 1)[0] for name in learned.state}) == SHARDS * slices
    assert (cost.retrained, cost.reused, cost.skipped) == (tuple(range(SHARDS)), (), ())
    assert cost.seconds > 0


def test_a_row_in_a_late_slice_costs_the_late_stages_only(problem: Problem) -> None:
    learned = sisa(problem, shards=SHARDS, slices=3)
    shard, part = 1, 1
    place = placed(learned, "south")
    row = np.flatnonzero((place[0] == shard) & (place[1] == part))[0]
    after = learned.unlearn(Forgetting("south", "sample", np.arange(place.shape[1]) == row))
    assert after.shards[shard][0] is learned.shards[shard][0]
    assert after.shards[shard][1] is not learned.shards[shard][1]
    trained = learned.shards[shard][1].rows - 1 + learned.shards[shard][2].rows - 1
    assert after.cost.row_epochs == learned.sharding.stage_epochs * trained


def test_progress_is_told_over_all_shards(problem: Problem) -> None:
    seen: list[tuple[int, int]] = []
    sisa(problem, shards=2, slices=2, epochs=3, on_epoch=lambda done, of, loss: seen.append((done, of)))
    assert seen == [(n + 1, 8) for n in range(8)]  # 2 shards × 2 stages × round(2·3 / 3) epochs


# --- answers ---------------------------------------------------------------------------------------------


def test_most_constituents_win_and_ties_go_to_the_surest() -> None:
    majority = [[[0.51, 0.49, 0]], [[0.51, 0.49, 0]], [[0, 1, 0]]]
    assert by_vote(np.array(majority)).tolist() == [0]  # though 1 has the larger sum
    tie = [[[0.6, 0.4, 0], [0.9, 0.1, 0]], [[0.0, 0.2, 0.8], [0.0, 0.2, 0.8]]]
    assert by_vote(np.array(tie)).tolist() == [2, 0]
    abstaining = [[[-1, -1, -1]], [[0.2, 0.3, 0.5]], [[-1, -1, -1]]]
    assert by_vote(np.array(abstaining)).tolist() == [2]
    unlikely = [[[-1, 0.0, -1]], [[0.0, -1, 0.0]], [[-1, 0.0, -1]]]
    assert by_vote(np.array(unlikely)).tolist() == [1]


def test_posteriors_are_the_mean_over_the_union_of_labels(problem: Problem, work: Workload) -> None:
    learned = sisa(problem, shards=15, epochs=1)
    x = work.test["north"][0]
    chances, labels = learned.posteriors(x)
    assert labels == problem.labels
    assert min(len(weights.labels) for weights in learned.models.values()) < len(labels)
    expected = np.zeros_like(chances)
    for weights in learned.models.values():
        table = torch.softmax(answering(problem, weights)(x).double(), dim=1).numpy()
        for column, label in enumerate(weights.labels):
            expected[:, labels.index(label)] += table[:, column] / len(learned.models)
    np.testing.assert_allclose(chances, expected, atol=1e-12)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    averaging = replace(learned, sharding=replace(learned.sharding, aggregate="mean"))
    assert averaging.predict(x) == [labels[n] for n in chances.argmax(axis=1)]
    assert averaging.predict(x) != learned.predict(x)  # a vote is another thing


def test_it_learns_and_forgets(problem: Problem, work: Workload) -> None:
    learned = sisa(problem, shards=2, epochs=12, aggregate="mean")
    label = Label("", work.forget)
    before = learned.evaluate(work.test)
    assert before.accuracy > 0.85
    assert before.per_label[label].accuracy > 0.5
    after = learned.unlearn(problem.choose(work.owner, classes=[work.forget])).evaluate(work.test)
    assert after.per_label[label].right == 0
    assert after.accuracy > 0.75
    assert set(after.clients) == set(work.test)


def test_clients_with_tasks_are_answered_in_their_own(problem: Problem, work: Workload) -> None:
    tasks = {"north": "left", "south": "right"}
    data = {name: work.train[name] for name in tasks}
    learned = sisa(Problem.of(problem.halves, problem.config, data, tasks=tasks), shards=2)
    x = work.test["north"][0]
    assert {label.task for label in learned.predict(x, task="left")} == {"left"}
    assert {label.task for label in learned.predict(x)} == {"left", "right"}
    result = learned.evaluate({name: work.test[name] for name in tasks}, tasks=tasks)
    assert result.accuracy > 0.3
    gone = learned.unlearn(learned.problem.choose("north", everything=True))
    assert gone.evaluate({"north": work.test["north"]}, tasks=tasks).overall.right == 0


def test_constituents_that_know_nothing_of_a_task_abstain(problem: Problem, work: Workload) -> None:
    tasks = {"north": "left", "south": "right"}
    tasked = Problem.of(problem.halves, problem.config, {name: work.train[name] for name in tasks}, tasks=tasks)
    learned = sisa(tasked, shards=1, epochs=1)
    left, right = (trained(tasked, [tasked.clients[name]]) for name in tasks)
    made = [replace(learned.shards[0][0], weights=weights) for weights in (left, right, right)]
    model = replace(learned, shards={n: (checkpoint,) for n, checkpoint in enumerate(made)})
    x = work.test["north"][0]
    answers = answering(tasked, left)(x).argmax(dim=1)
    assert len(answers.unique()) > 1
    assert model.predict(x, task="left") == [left.labels[n] for n in answers]


def test_inputs_of_another_form_are_refused(learned: Sisa, work: Workload) -> None:
    x = np.asarray(work.test["north"][0])
    changing = np.full(x.shape, 2**24 + 1)  # not one of the floats it was trained on
    for wrong in (x[:, :, :4], {"x": x}, (x, x), changing):
        with pytest.raises(DataError, match=r"learned from|inputs alone"):
            learned.predict(wrong)
    assert learned.predict(x.astype(np.float64)) == learned.predict(x)


# --- what cannot be done, and what little is enough --------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"shards": 0}, "shards = 0"),
        ({"slices": 0}, "slices = 0"),
        ({"epochs": 0}, "epochs = 0"),
        ({"aggregate": "means"}, "mean"),
        ({"shards": 301}, "300 rows"),
    ],
)
def test_wrong_settings(problem: Problem, settings: dict, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        sisa(problem, **settings)


def test_clients_that_cannot_be_pooled(problem: Problem, work: Workload) -> None:
    x, y = (np.asarray(part) for part in work.train["north"])
    for other in ((x,), {"input": x}):
        mixed = Problem.of(problem.halves, problem.config, {"a": (x, y), "b": (other, y)})
        with pytest.raises(DataError, match="cannot be pooled"):
            sisa(mixed)
    own = problem.halves.with_clients({"south": problem.halves})
    with pytest.raises(DataError, match="'south' brings a client half of its own"):
        sisa(replace(problem, halves=own))
    with pytest.raises(DataError, match="no rows"):
        poolable(problem.halves, [])


def test_requests_about_other_rows(learned: Sisa) -> None:
    for wrong in (Forgetting("north", "sample", np.ones(3, bool)), Forgetting("west", "sample", np.ones(3, bool))):
        with pytest.raises(RequestError, match="not about the rows"):
            learned.unlearn(wrong)


def test_as_many_shards_as_rows(problem: Problem) -> None:
    few = problem.without(problem.choose("north", everything=True))
    for name in few.clients:
        few = few.without(Forgetting(name, "sample", np.arange(len(few.clients[name])) >= 6))
    learned = sisa(few, shards=12, slices=2, epochs=1)
    assert min(checkpoints[-1].rows for checkpoints in learned.shards.values()) == 1
    assert learned.cost.skipped
    assert sorted([*learned.shards, *learned.cost.skipped]) == list(range(12))
    after = learned.unlearn(few.choose("east", everything=True))  # fewer rows than shards are left
    with pytest.raises(ConfigError, match="6 rows"):
        again(after.problem, learned)
    nothing = Forgetting("south", "sample", np.zeros(6, bool))
    check_equal(after, replace(after, shards={}).unlearn(nothing))
    assert set(after.shards) == set(placed(learned, "south")[0].tolist())


class Pair(nn.Module):
    """A net whose batch norm needs two rows."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.stem(x)))


def test_a_single_row_that_a_layer_cannot_take_is_skipped() -> None:
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    halves = split(Pair(), at="stem", example=torch.zeros(2, 3))
    config = Config(server=ServerConfig(epochs=1, batch=8, threads=1))
    everyone = Problem.of(halves, config, {"a": (x, np.arange(6) % 2)})
    learned = sisa(everyone, shards=4, slices=2)
    rows = [int((placed(learned, "a")[0] == shard).sum()) for shard in range(4)]
    assert 1 in rows
    assert learned.cost.skipped == tuple(shard for shard in range(4) if rows[shard] < 2)
    alone = everyone.without(everyone.choose("a", samples=range(1, 6)))
    with pytest.raises(DataError, match="fewer shards"):
        sisa(alone, shards=1)


# --- the unsplit network -----------------------------------------------------------------------------------


def test_the_whole_is_the_unsplit_network(problem: Problem) -> None:
    with isolated_rng(Stream(3, "model")):
        model = digits_cnn()
    halves = split(model, at="stem", example=torch.zeros(1, 1, 8, 8), head="head")
    held = problem.clients["north"]
    head = with_output_layer(halves.server, halves.server.state_dict(), held.labels, seed=0)
    net = Whole(Embedder(halves.client, "one", Normaliser({})), head)
    whole = copy.deepcopy(model)
    whole.head = copy.deepcopy(head.output_layer)
    plain = _Named(whole)
    told = {"epochs": 2, "stream": Stream(0, "test"), "what": "test"}
    for one in (net, plain):
        Training(one, held.cache(held.labels), problem.config.server, **told).run()
    merged = {**state_of(net.embedder.body), **state_of(net.server)}
    mine = state_of(whole)
    assert set(mine) <= set(merged)
    assert all(torch.equal(merged[name], mine[name]) for name in mine)
    assert not torch.equal(mine["stem.0.weight"], model.state_dict()["stem.0.weight"])


class _Named(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: dict) -> torch.Tensor:
        return self.net(inputs["x"])


def trained(problem: Problem, rows: list, **told) -> Weights:
    return train_whole(problem, rows, stream=Stream(5, "shadow", "0"), epochs=1, **told)


def test_a_shadow_model_has_the_outputs_it_is_told(problem: Problem) -> None:
    east = problem.clients["east"]
    weights = trained(problem, [east], labels=problem.labels)
    assert weights.labels == problem.labels
    assert len(weights.losses) == 1
    logits = answering(problem, weights)(torch.from_numpy(east.shard.columns["x"]))
    assert logits.shape == (len(east), len(problem.labels))
    net = loaded(problem, weights)
    with torch.inference_mode():
        same = net({"x": torch.from_numpy(east.shard.columns["x"])})
    torch.testing.assert_close(logits, same)
    assert not any(p.requires_grad for p in net.parameters())
    assert trained(problem, [east]).labels == east.labels
    with pytest.raises(DataError, match="not among the labels given"):
        trained(problem, [east], labels=problem.labels[:2])


def test_going_on_keeps_what_is_known_and_adds_outputs(problem: Problem) -> None:
    east, north = problem.clients["east"], problem.clients["north"]
    first = trained(problem, [east])
    still = replace(problem.config.server, lr=1e-30, weight_decay=0.0, momentum=0.0)
    calm = replace(problem, config=replace(problem.config, server=still))
    on = trained(calm, [east, north], before=first)
    assert set(on.labels) == {*east.labels, *north.labels}
    rows = [on.labels.index(label) for label in first.labels]
    assert torch.equal(on.server["head.weight"][rows], first.server["head.weight"])
    assert torch.equal(on.client["stem.0.weight"], first.client["stem.0.weight"])
    new = next(label for label in on.labels if label not in first.labels)
    begun = with_output_layer(
        problem.halves.server, problem.halves.server.state_dict(), [new], seed=problem.config.seed
    )
    assert torch.equal(on.server["head.weight"][on.labels.index(new)], begun.output_layer.weight[0])


def test_a_loss_that_is_not_finite_is_no_skipped_shard(problem: Problem) -> None:
    wild = replace(problem, config=replace(problem.config, server=replace(problem.config.server, lr=1e38)))
    with pytest.raises(TrainingError, match="shard 0"):
        sisa(wild, shards=2)
    one = wild.without(wild.choose("north", everything=True)).without(wild.choose("south", everything=True))
    one = one.without(Forgetting("east", "sample", np.arange(len(one.clients["east"])) > 0))
    with pytest.raises(TrainingError, match="loss is"):
        sisa(one, shards=1)


def test_tables_whose_columns_differ_cannot_be_pooled() -> None:
    torch.manual_seed(0)
    halves = split(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), at="1", example=torch.zeros(1, 3))
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    names, order, y = ("age", "weight", "pulse"), [2, 0, 1], np.arange(40) % 2
    turned = Table(tuple(names[place] for place in order), x[:, order])
    mixed = Problem.of(halves, Config(), {"a": (Table(names, x), y), "b": (turned, y)})
    with pytest.raises(DataError, match="'b' and 'a' have other columns, or in another order: they cannot be pooled"):
        sisa(mixed, shards=2, slices=1)
    trained = sisa(Problem.of(halves, Config(), {"a": (Table(names, x), y)}), shards=2, slices=1, epochs=1)
    assert trained.predict(turned, task="") == trained.predict(Table(names, x), task="")
    with pytest.raises(DataError, match="an array does not say which is which"):
        trained.predict(x, task="")
