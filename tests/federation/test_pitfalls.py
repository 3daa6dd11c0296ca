"""Ways in which exactness could be lost without anybody noticing. Each was a real defect once, or nearly."""

import json
import random
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from federation.runs import (
    FEATURES,
    assert_same,
    halves,
    ids_at,
    learned,
    positions_in_last_slice,
    settings,
    table,
    three,
    without,
)
from splitwiper import Config, Federation, Halves, Label, ModelConfig, numerics, split
from splitwiper.errors import (
    AbsentClientError,
    BusyError,
    CorruptError,
    DataError,
    InputError,
    NotFoundError,
    TrainingError,
)
from splitwiper.splitting import CutWarning
from splitwiper.store import ClientStore
from splitwiper.wire import Spent


def cut_of(model: nn.Module, at: str, example: object, **more: object) -> Halves:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutWarning)
        return split(model, at=at, example=example, **more)


# --- numerics and global state -----------------------------------------------------------------------------------


def test_a_checkpoint_made_under_other_numerics_is_not_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numerics, "_cores", lambda: 2)  # a machine with one core would take one thread both times
    threads = torch.get_num_threads()
    fed = Federation(tmp_path / "run", halves(), settings(slices=4))
    try:
        torch.set_num_threads(1)
        fed.learn(three())
        before = {r.file for r in fed._client("north").store.checkpoints().values()}
        victim = ids_at(fed, "north", positions_in_last_slice(fed, "north")[:1])
        torch.set_num_threads(2)
        receipt = fed.unlearn("north", samples=victim)
    finally:
        torch.set_num_threads(threads)
    assert not before & {r.file for r in fed._client("north").store.checkpoints().values()}
    assert fed.verify(receipt).exact


def test_what_a_progress_callback_draws_shifts_nothing(tmp_path: Path) -> None:
    def nosy(*_: object, **__: object) -> None:
        torch.rand(3), np.random.rand(3), random.random()

    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    cut = cut_of(model, "0", torch.zeros(1, FEATURES))
    quiet = Federation(tmp_path / "quiet", cut, settings())
    quiet.learn(three())
    quiet.twin(tmp_path / "loud")
    loud = Federation(tmp_path / "loud", cut, progress=nosy)
    loud.learn(three())
    assert_same(quiet, loud)


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x)


def test_a_half_that_draws_even_when_evaluating(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 8), Noisy(), nn.Linear(8, 3))
    fed = Federation(tmp_path / "run", cut_of(model, "1", torch.zeros(1, FEATURES)), settings())
    fed.learn(three())
    torch.rand(7)
    assert fed.verify().exact


def test_settings_of_the_caller_do_not_reach_training(tmp_path: Path) -> None:
    plain = learned(tmp_path / "plain", settings(slices=2))
    odd = plain.twin(tmp_path / "odd")
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            odd.learn(three())
            assert odd.verify().exact
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(plain, odd)
    before = torch.random.get_rng_state()
    plain.predict("north", three()["north"][0])
    assert torch.equal(before, torch.random.get_rng_state())


class Counting(nn.Module):
    """A module with state that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 8)
        self.register_buffer("steps", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.steps += 1
        return self.linear(x) * (1 + 0.01 * self.steps)


def test_resuming_and_going_straight_through_are_one_computation(tmp_path: Path) -> None:
    cut = cut_of(nn.Sequential(Counting(), nn.ReLU(), nn.Linear(8, 3)), "0", torch.zeros(1, FEATURES))
    fed = Federation(tmp_path / "run", cut, settings(slices=4))
    data = three()
    fed.learn(data)
    victim = ids_at(fed, "north", positions_in_last_slice(fed, "north")[:1])
    receipt = fed.unlearn("north", samples=victim)
    assert fed.verify(receipt).exact


def test_frozen_parameters_stay_frozen(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    fed = Federation(tmp_path / "run", split(model, at="1", example=torch.zeros(1, FEATURES)), settings())
    fed.learn(three())
    weights = fed._server.store.weights(fed._server.store.model())
    assert torch.equal(weights["2.weight"], model[2].weight)
    half = fed._client("north").store
    state = half.root / "half" / half.half()[0].file
    from splitwiper.store.tensors import load_state

    assert torch.equal(load_state(state)["body.0.weight"], model[0].weight)


# --- inputs ------------------------------------------------------------------------------------------------------


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.mix = nn.Linear(FEATURES + 4, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, z: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.mix(torch.cat([z, self.embed(a)], dim=1))))


@pytest.mark.parametrize("form", ["args", "kwargs", "kwargs turned"])
def test_inputs_of_different_types_keep_their_places(tmp_path: Path, form: str) -> None:
    torch.manual_seed(0)
    x, ids = table(1, ("a", "b"), 16)[0], np.arange(16) % 10
    kinds = {"args": (x, ids), "kwargs": {"z": x, "a": ids}, "kwargs turned": {"a": ids, "z": x}}
    example = (torch.zeros(1, FEATURES), torch.zeros(1, dtype=torch.int64))
    cut = cut_of(TwoInputs(), "mix", example)
    fed = Federation(tmp_path / "run", cut, settings(standardise=True))
    fed.learn({"north": (kinds[form], np.arange(16) % 2)})
    embedder = fed._client("north")
    from splitwiper.client.pretrain import thaw
    from splitwiper.store.tensors import load_state

    half = embedder.store.half()
    half_inputs = embedder._half_inputs()
    frozen = thaw(half_inputs, load_state(embedder.store.root / "half" / half[0].file))
    named = {"args": {"0": x, "1": ids}}.get(form, {"a": ids, "z": x})
    scaled = frozen.normaliser({name: torch.from_numpy(value) for name, value in named.items()})
    floats = scaled["0" if form == "args" else "z"]
    assert torch.allclose(floats.mean(0), torch.zeros(FEATURES), atol=1e-5)
    assert torch.allclose(floats.std(0, unbiased=False), torch.ones(FEATURES), atol=1e-4)
    assert len(fed.predict("north", kinds[form])) == 16 and fed.verify().exact


def test_scalar_inputs_can_be_standardised(tmp_path: Path) -> None:
    class Scalar(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(1, 4)
            self.last = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.relu(self.first(x[:, None])))

    fed = Federation(tmp_path / "run", split(Scalar(), at="first", example=torch.zeros(1)), settings(standardise=True))
    fed.learn({"north": (np.arange(8, dtype=np.float32), np.arange(8) % 2)})
    assert fed.verify().exact


def test_minus_zero_is_zero(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), settings())
    x, y = table(1, ("a", "b"), 8)
    x[0, 0] = 0.0
    added = fed.learn({"north": (x, y)}).added["north"]
    fed.unlearn("north", samples=added.ids[:1])
    x[0, 0] = -0.0
    assert fed.learn({"north": (x, y)}).added["north"].refused == 1


def test_rows_the_half_cannot_take_are_found_wherever_they_are(tmp_path: Path) -> None:
    example = (torch.zeros(1, FEATURES), torch.zeros(1, dtype=torch.int64))
    fed = Federation(tmp_path / "run", cut_of(TwoInputs(), "mix", example), settings())
    x, ids = table(1, ("a", "b"), 300)[0], np.arange(300) % 10
    fed.learn({"south": ((x, ids), np.arange(300) % 2)})
    wrong = ids.copy()
    wrong[290] = 77
    with pytest.raises(DataError, match="between rows 256 and 299"):
        fed.learn({"east": ((x, ids), np.arange(300) % 2), "north": ((x, wrong), np.arange(300) % 2)})
    assert fed.clients == ("south",) and fed.status().todo == ()  # nothing of the call was kept


def test_other_inputs_are_welcome_after_everything_was_forgotten(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run")
    fed.unlearn("north", everything=True)
    x, y = table(5, ("a", "b"), 8)
    assert fed.learn({"north": ({"input": x}, y)}).added["north"].new == 8


def test_forgotten_rows_do_not_come_back_in_another_form(tmp_path: Path) -> None:
    x, y = table(5, ("a", "b"), 8)
    whole = np.rint(x)  # integers, so that they can come back as such
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn({"north": (whole, y), "south": three()["south"]})
    fed.unlearn("north", everything=True)
    for form in ((whole,), {"input": whole}, {"input": whole.astype(np.float16).astype(np.float32)}):
        added = fed.learn({"north": (form, y)}).added["north"]
        assert (added.new, added.refused) == (0, 8)
    assert fed.learn({"north": ((x,), y)}).added["north"].new == 8  # these were never forgotten
    fed.unlearn("north", everything=True)
    assert fed.learn({"north": ({"input": np.concatenate([x, whole])}, [*y, *y])}).added["north"].refused == 16
    assert fed.verify().exact


def test_a_client_that_forgot_everything_keeps_no_salt_of_its_shard(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run")
    store = ClientStore(fed.path / "clients" / "north")
    name, salt, _ = json.loads(store.database.meta("shard_salt") or "")
    fed.unlearn("north", everything=True)
    found = (fed.path / "clients" / "north" / "client.db").read_bytes()
    assert salt.encode() not in found and name.encode() not in found


# --- keys, folders, copies ---------------------------------------------------------------------------------------


def test_another_key_is_noticed(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(data)
    receipt = fed.unlearn("north", classes=["bird"])
    (fed.path / "clients" / "north" / "key").write_text("ab" * 32)
    with pytest.raises(CorruptError, match=r"client\.db was changed by something other"):
        fed.learn({"north": data["north"]})
    assert fed.verify(receipt).outcome == "mismatch"


def test_a_twin_is_never_made_over_a_run(tmp_path: Path) -> None:
    one = Federation(tmp_path / "one", halves(), settings())
    two = Federation(tmp_path / "two", halves(), settings())
    for fed in (one, two):
        fed.learn(three())
    key = (two.path / "clients" / "north" / "key").read_bytes()
    with pytest.raises(InputError, match="give another folder"):
        one.twin(two.path)
    assert (two.path / "clients" / "north" / "key").read_bytes() == key and two.verify().exact


def test_a_twin_of_a_run_whose_client_is_away_is_refused(tmp_path: Path) -> None:
    """The client would join it with another key, and nothing would be equal."""
    fed = learned(tmp_path / "run")
    shutil.move(fed.path / "clients" / "north", tmp_path / "away")
    with pytest.raises(AbsentClientError, match="'north' is not here"):
        fed.twin(tmp_path / "twin")
    assert not (tmp_path / "twin").exists()
    fed.unlearn("north", everything=True)
    assert fed.twin(tmp_path / "twin").clients == ()


def test_a_folder_that_comes_back_is_cleaned(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(data)
    away = fed.path / "clients" / "north"
    shutil.move(away, tmp_path / "away")
    receipt = fed.unlearn("north", everything=True)
    shutil.move(tmp_path / "away", away)
    with pytest.raises(NotFoundError, match="forgotten while its folder was away"):
        fed.predict("north", data["north"][0])
    assert any("north" in line for line in fed.status().todo)
    fed.settle()
    assert fed.rows("north") == {} and fed.status().todo == ()
    assert not list((away / "slices").iterdir()) and not list((away / "half").iterdir())
    assert fed.verify(receipt).exact
    assert fed.learn({"north": data["north"]}).added["north"].refused == 30


def test_a_server_restored_from_before_is_asked_again(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(data)
    fed._server.store.database.close()
    shutil.copytree(fed.path / "server", tmp_path / "backup")
    fed.unlearn("north", classes=["bird"])
    fed._server.store.database.close()
    shutil.rmtree(fed.path / "server")
    shutil.copytree(tmp_path / "backup", fed.path / "server")
    again = Federation(fed.path, halves())
    assert again.verify().outcome != "exact"
    assert any("north" in line for line in again.status().todo)
    assert [r.client for r in again.settle()] == ["north"]
    assert Label("", "bird") not in again.labels and again.verify().exact


def test_a_copy_of_a_folder_is_found_and_not_worked_on(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(data)
    shutil.copytree(fed.path / "clients" / "north", fed.path / "clients" / "copy")
    fed.unlearn("north", classes=["bird"])
    assert any("copy of the folder of client north" in line for line in fed.status().todo)
    with pytest.raises(CorruptError, match="Remove the copy"):
        fed.learn({"copy": data["south"]})
    assert Label("", "bird") not in fed.labels


@pytest.mark.parametrize("name", ["north/", "../clients/north", "", ".", "nor\nth"])
def test_names_that_are_paths_lead_nowhere(tmp_path: Path, name: str) -> None:
    fed = learned(tmp_path / "run")
    with pytest.raises(NotFoundError, match="there is no client"):
        fed.unlearn(name, samples=[0])
    assert len(fed.rows("north")) == 30 and fed.status().todo == ()


def test_requests_of_an_absent_client_end_with_everything(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings())
    fed.learn(data)
    fed.submit("north", classes=["bird"])
    shutil.rmtree(fed.path / "clients" / "north")
    with pytest.raises(AbsentClientError, match="waits for north"):
        fed.settle()
    fed.learn({"south": table(9, ("cat",), 3)})  # others can go on
    fed.unlearn("north", everything=True)
    assert len(fed.receipts()) == 2 and fed.status().todo == ()


def test_another_model_of_the_same_shapes_is_refused(tmp_path: Path) -> None:
    def model(act: nn.Module) -> Halves:
        torch.manual_seed(0)
        return split(
            nn.Sequential(nn.Linear(FEATURES, 8), act, nn.Linear(8, 3)), at="1", example=torch.zeros(1, FEATURES)
        )

    Federation(tmp_path / "run", model(nn.ReLU()), settings())
    Federation(tmp_path / "run", model(nn.ReLU()))
    with pytest.raises(InputError, match="code or constants differ"):
        Federation(tmp_path / "run", model(nn.Tanh()))


def test_settings_come_back_equal_whatever_containers_were_used(tmp_path: Path) -> None:
    args = {"inputs": FEATURES, "outputs": 3, "hidden": 12, "cut": 8}
    model = ModelConfig(factory="splitwiper.models:mlp", args=args, inputs={"x": f"float32[{FEATURES}]"}, at="stem")
    base = settings(labels=["cat", "dog"])
    config = Config(seed=5, server=base.server, client=base.client, model=model)
    Federation(tmp_path / "run", config=config)
    Federation(tmp_path / "run", config=config)


# --- trouble with one client is nobody else's --------------------------------------------------------------------


def test_open_requests_are_not_exact_yet(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run")
    fed.submit("north", classes=["bird"])
    assert fed.verify().outcome == "unverifiable"


def test_what_is_left_cannot_be_trained_on_yet_the_rest_is_forgotten(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    fed = Federation(tmp_path / "run", cut_of(model, "1", torch.zeros(1, FEATURES)), settings())
    data = three()
    fed.learn({"north": without(data["north"], np.arange(30) < 3), "south": data["south"]})
    with pytest.raises(TrainingError, match="a batch of 1 rows"):
        fed.unlearn("north", samples=ids_at(fed, "north", [0, 1]))
    assert [s.client for s in fed._server.store.shards()] == ["south"]
    assert [r.client for r in fed.receipts()] == ["north"]
    fed.unlearn("south", samples=ids_at(fed, "south", [0]))  # north's trouble is not south's
    fed.learn({"north": table(8, ("cat", "dog"), 6)})
    assert fed.verify().exact


def test_a_damaged_slice_stops_its_own_client_alone(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run")
    fed.submit("north", classes=["bird"])
    store = fed._client("north").store
    path = store.root / "slices" / store.slices()[0].file
    *content, last = path.read_bytes()
    path.write_bytes(bytes([*content, last ^ 1]))
    receipt = fed.unlearn("south", samples=ids_at(fed, "south", [0]))
    assert receipt.client == "south"
    with pytest.raises(CorruptError, match="restore it"):
        fed.settle()


def test_removing_the_last_slice_leaves_no_checkpoint_too_many(tmp_path: Path) -> None:
    data = three()
    fed = Federation(tmp_path / "run", halves(), settings(slices=6))
    fed.learn(data)
    gone = positions_in_last_slice(fed, "north")
    never = fed.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], ~np.isin(np.arange(30), gone))})
    fed.unlearn("north", samples=ids_at(fed, "north", gone))
    assert_same(fed, never)


def test_a_receipt_counts_no_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning that was interrupted before the server trained is not charged to the next request."""
    fed = Federation(tmp_path / "run", halves(), settings())
    with monkeypatch.context() as patch:
        patch.setattr(fed._server, "train", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fed.learn(three())
    fed = Federation(tmp_path / "run", halves())
    receipt = fed.unlearn("north", classes=["bird"])
    assert receipt.others == {"contacted": 0, "bytes": 0, "seconds": 0}
    assert fed.spent["south"] == Spent()
    (shard,) = [s for s in fed._server.store.shards() if s.client == "north"]
    assert fed.spent["north"].bytes_up == shard.size


def test_what_is_not_a_half_or_a_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must come from split\(.*not be a Linear"):
        Federation(tmp_path / "run", nn.Linear(2, 2))
    with pytest.raises(InputError, match=r"must be a splitwiper\.Config, not a dict"):
        Federation(tmp_path / "run", halves(), {"seed": 1})


def test_verify_takes_a_receipt_its_file_or_its_ticket(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run")
    receipt = fed.unlearn("north", classes=["bird"])
    receipt.save(tmp_path / "receipt.json")
    assert fed.verify(receipt.ticket).exact and fed.verify(tmp_path / "receipt.json").exact
    with pytest.raises(NotFoundError, match="no ticket"):
        fed.verify("nothing")


def test_what_is_no_receipt_and_no_name_is_said(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run")
    with pytest.raises(InputError, match="takes a receipt, its file or its ticket, not int"):
        fed.verify(5)
    with pytest.raises(NotFoundError, match="there is no client None"):
        fed.unlearn(None, everything=True)


def test_a_model_that_is_being_trained_is_not_called_interrupted(tmp_path: Path) -> None:
    def predict() -> None:
        Federation(tmp_path / "run", halves()).predict("south", three()["south"][0])

    def during(what: str, *_: object, **__: object) -> None:
        if what.startswith("server"):
            with pytest.raises(BusyError, match="being trained by another process"):
                predict()
            raise KeyboardInterrupt

    Federation(tmp_path / "run", halves(), settings()).learn(three())
    with pytest.raises(KeyboardInterrupt):
        Federation(tmp_path / "run", halves(), progress=during).unlearn("north", classes=["bird"])
    with pytest.raises(NotFoundError, match="interrupted: call settle") as caught:
        predict()
    assert caught.value.__traceback__  # which holds on to all that was under way
    assert not torch.is_inference_mode_enabled() and not torch.are_deterministic_algorithms_enabled()
    fed = Federation(tmp_path / "run", halves())
    fed.settle()
    assert fed.verify().exact and len(fed.predict("south", three()["south"][0])) == 24
