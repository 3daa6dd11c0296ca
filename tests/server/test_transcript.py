"""The transcript: every epoch can be recomputed alone, whatever is forged is found, and it goes with the model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from federation.runs import FEATURES, assert_same, recomputed, settings, three, without
from splitwiper import Config, Federation, Halves, ServerConfig, split
from splitwiper.errors import CorruptError, DiskFullError, InputError, NotFoundError
from splitwiper.federation import status
from splitwiper.seeding import mac, state_digest
from splitwiper.server import Server
from splitwiper.server.transcript import (
    Transcript,
    check_end,
    check_first,
    detection,
    recompute_epoch,
    sample_epochs,
)
from splitwiper.store import ServerStore, files, ledger
from splitwiper.store.tensors import load_state, save_state

EPOCHS = 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(FEATURES, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(torch.relu(self.stem(x))))
        return logits


def halves() -> Halves:
    torch.manual_seed(0)
    return split(Net(), at="stem", example=torch.zeros(1, FEATURES))


def config(**server: Any) -> Config:
    server = {"epochs": EPOCHS, "batch": 16, "transcript": True, **server}
    return Config(seed=5, server=ServerConfig(**server), client=settings(keys="seeded").client)


def server_of(fed: Federation, progress: Callable[[str, int, int], None] | None = None) -> Server:
    return Server(ServerStore(fed.path / "server"), fed.halves.server, progress)


def present(fed: Federation) -> set[str]:
    return {path.name for path in (fed.path / "server" / "epochs").iterdir()}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    fed = Federation(tmp_path_factory.mktemp("learned") / "run", halves(), config())
    fed.learn(three())
    return fed


# --- recomputing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "server",
    [
        {"optimizer": "sgd", "schedule": "constant", "clip": 0.5},
        {"optimizer": "adam", "schedule": "cosine", "lr": 0.01},
        {"optimizer": "adamw", "schedule": "onecycle", "lr": 0.01, "clip": 1.0},
    ],
    ids=lambda server: server["optimizer"],
)
def test_every_epoch_is_recomputed_alone_and_the_model_is_the_same(tmp_path: Path, server: dict[str, Any]) -> None:
    models = {}
    for transcript in (True, False):
        fed = Federation(tmp_path / str(transcript), halves(), config(**server, transcript=transcript))
        fed.learn(three())
        one = server_of(fed)
        models[transcript] = one.store.model()
        if not transcript:
            with pytest.raises(NotFoundError, match="no transcript"):
                recomputed(one)
            assert not present(fed) and models[False].transcript == ""
            continue
        checks = recomputed(one, *range(1, EPOCHS + 1))
        assert [check.what for check in checks] == [f"epoch {epoch}" for epoch in (0, EPOCHS, *range(1, EPOCHS + 1))]
        assert all(check.exact for check in checks), checks
        assert fed.verify().exact
    assert models[True].digest == models[False].digest
    assert models[True].transcript != ""


def forged(state: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """A state with one bit of its first value flipped, in the middle of the mantissa."""
    out = {key: value.clone() for key, value in state.items()}
    out[name].view(torch.int32).view(-1)[0] ^= 1 << 18
    assert state_digest(out) != state_digest(state)
    return out


@pytest.mark.parametrize(
    "name", ["net/body.body.0.weight", "net/body.body.1.running_mean", "optimizer/body.head.weight/momentum_buffer"]
)
def test_one_forged_bit_is_found_on_both_sides(learned: Federation, name: str) -> None:
    """The forger commits to the forged state; the epoch to it and the epoch from it are both not what was computed."""
    server = server_of(learned)
    inputs, honest = server.inputs(server.store.shards()), server.transcript()
    states = [server.store.epoch_state(epoch) for epoch in range(EPOCHS + 1)]
    lie = forged(states[2], name)
    transcript = Transcript((*honest.digests[:2], state_digest(lie), *honest.digests[3:]))
    assert transcript.root != honest.root
    assert recompute_epoch(inputs, transcript, 1, states[0]).exact
    assert not recompute_epoch(inputs, transcript, 2, states[1]).exact
    assert not recompute_epoch(inputs, transcript, 3, lie).exact
    passed_off = recompute_epoch(inputs, honest, 3, lie)
    assert not passed_off.exact and "not the one in the transcript" in passed_off.detail


def test_a_forged_beginning_or_end_is_found(learned: Federation) -> None:
    server = server_of(learned)
    model, inputs, honest = server.store.model(), server.inputs(server.store.shards()), server.transcript()
    first, last = server.store.epoch_state(0), server.store.epoch_state(EPOCHS)
    assert check_first(inputs, honest).exact and check_end(inputs, honest, last, model.digest).exact
    lie = forged(first, "net/body.head.weight")
    assert not check_first(inputs, Transcript((state_digest(lie), *honest.digests[1:]))).exact
    weights = server.store.weights(model)
    weights["head.weight"][0, 0] += 1
    assert not check_end(inputs, honest, last, state_digest(weights)).exact
    other = check_end(inputs, honest, first, model.digest)
    assert not other.exact and "not the one" in other.detail


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("net/body.head.weight"),
        lambda state: state["net/body.head.weight"].fill_(torch.nan),
        lambda state: state.update({"optimizer/nobody/momentum_buffer": torch.zeros(1)}),
        lambda state: state.clear(),
    ],
)
def test_a_made_up_state_is_an_answer_not_an_error(learned: Federation, change: Callable[[Any], Any]) -> None:
    server = server_of(learned)
    inputs, honest, lie = server.inputs(server.store.shards()), server.transcript(), server.store.epoch_state(1)
    change(lie)
    digests = (honest.digests[0], state_digest(lie), *honest.digests[2:])
    check = recompute_epoch(inputs, Transcript(digests), 2, lie)
    assert not check.exact and "nobody can train" in check.detail
    end = check_end(inputs, Transcript((*honest.digests[:-1], state_digest(lie))), lie, honest.digests[0])
    assert not end.exact


def test_counters_that_divide_by_zero_are_an_answer_too(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), config(optimizer="adam"))
    fed.learn(three())
    server = server_of(fed)
    lie = server.store.epoch_state(1)
    lie["optimizer/body.head.weight/step"].fill_(-1)
    honest = server.transcript()
    transcript = Transcript((honest.digests[0], state_digest(lie), *honest.digests[2:]))
    assert not recompute_epoch(server.inputs(server.store.shards()), transcript, 2, lie).exact


def test_what_is_not_there_is_said(learned: Federation, tmp_path: Path) -> None:
    server = server_of(learned)
    inputs, honest = server.inputs(server.store.shards()), server.transcript()
    for epoch, error in ((0, NotFoundError), (EPOCHS + 1, InputError), (EPOCHS + 2, NotFoundError)):
        with pytest.raises(error, match=r"no (epoch|state after epoch)"):
            recomputed(server, epoch)
    shorter = recompute_epoch(inputs, Transcript(honest.digests[:-1]), 1, server.store.epoch_state(0))
    assert not shorter.exact and "2 epochs, the settings say 3" in shorter.detail
    fed = Federation(tmp_path / "run", halves(), config())
    fed.learn(three())
    damaged = server_of(fed)
    record = damaged.store.epochs()[1]
    path = fed.path / "server" / "epochs" / record.file
    state = load_state(path)
    save_state(path, forged(state, "net/body.head.bias"))
    assert "not the one" in recomputed(damaged, 2)[-1].detail
    path.unlink()
    with pytest.raises(CorruptError, match="cannot be read"):
        recomputed(damaged, 2)
    with damaged.store.database.change() as db:
        db.execute("UPDATE epochs SET digest = ? WHERE epoch = 1", (state_digest(state)[::-1],))
    with pytest.raises(CorruptError, match="does not have the transcript"):
        damaged.transcript()


# --- what is kept, and how it goes ---------------------------------------------------------------------------


def test_unlearning_erases_every_state_and_ends_as_the_twin_does(tmp_path: Path) -> None:
    data = three()
    had = Federation(tmp_path / "had", halves(), config())
    had.learn(data)
    before, store = present(had), ServerStore(tmp_path / "had" / "server")
    old = store.model()
    assert len(before) == EPOCHS + 1 == len(store.epochs())
    had.submit("north", classes=["bird"])
    assert present(had) == before  # nothing was erased yet: the model is there as well
    had.settle()
    never = had.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], data["north"][1] != "bird")})
    assert_same(had, never)
    assert before.isdisjoint(present(had)) and present(had) == {record.file for record in store.epochs()}
    other = ServerStore(tmp_path / "never" / "server")
    assert [record.digest for record in store.epochs()] == [record.digest for record in other.epochs()]
    model = store.model()
    assert model.transcript == other.model().transcript != old.transcript
    entries = [entry for entry in ledger.entries(store.database) if entry["kind"] == "model"]
    assert entries[-1]["transcript"] == mac(model.salt, "transcript", model.transcript).hex()
    (kept,) = [item for item in status(had.path).remains if item.what == "server/epochs"]
    assert kept.count == EPOCHS + 1 and "auditor" in kept.why
    assert kept.size == sum(path.stat().st_size for path in (had.path / "server" / "epochs").iterdir())
    for client in data:
        had.unlearn(client, everything=True)
    assert not present(had) and store.epochs() == ()
    assert ledger.entries(store.database)[-2]["transcript"] is None


def test_the_states_go_before_the_next_model_comes(tmp_path: Path) -> None:
    """The shard without the rows arrives, and nothing that knew them is left, whenever the next training is."""
    fed = Federation(tmp_path / "run", halves(), config())
    fed.learn(three())
    fed.submit("north", classes=["bird"])
    store = ServerStore(fed.path / "server")
    (ticket,) = store.tickets()
    store.withdraw("north", None, answers=[ticket.id])
    assert store.model() is None and not present(fed)


def test_training_that_is_interrupted_leaves_no_state(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), config())

    def interrupt(what: str, done: int, _total: int, loss: float | None = None) -> None:
        if what == "server: training" and done == 2:
            assert len(present(fed)) >= 1  # written as training goes
            raise KeyboardInterrupt

    broken = Federation(fed.path, fed.halves, progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        broken.learn(three())
    assert not present(fed) and status(fed.path).model == "none"
    fed.settle()
    assert all(check.exact for check in recomputed(server_of(fed)))


def test_a_manifest_that_moves_on_under_way_leaves_its_successors_states_alone(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), config())
    fed.learn(three())
    seen: list[set[str]] = []

    def withdraw(_what: str, done: int, _total: int, loss: float | None = None) -> None:
        if done == 1:
            seen.append(present(fed))
            store.withdraw("south", None, answers=())

    store = ServerStore(fed.path / "server")
    store.withdraw("west", None, answers=())
    server_of(fed, withdraw).train()
    assert len(seen) == 2 and {record.file for record in store.epochs()} == present(fed)
    assert len(present(fed)) == EPOCHS + 1 and present(fed).isdisjoint(seen[0])
    assert all(check.exact for check in recomputed(server_of(fed)))


def test_a_full_disk_ends_the_training_and_the_next_call_repeats_it(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), config())
    fed.learn({"north": three()["north"]})
    kept, model = present(fed), ServerStore(fed.path / "server").model()
    writes = 0

    def full(kind: str, path: Path) -> None:
        nonlocal writes
        if kind == "write:before" and path.name.startswith("epoch-"):
            writes += 1
            if writes == 3:
                raise OSError(28, "No space left on device")

    with files.watch(full), pytest.raises(DiskFullError, match="Make room"):
        fed.learn(three())
    assert writes >= 3 and present(fed) == kept  # the model before, and its states, are untouched
    assert ServerStore(fed.path / "server").model() == model
    fed.settle()
    assert all(check.exact for check in recomputed(server_of(fed))) and present(fed).isdisjoint(kept)


def test_a_warm_training_has_no_transcript(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), config(start="warm"))
    fed.learn(three())
    assert recomputed(server_of(fed), 1)[-1].exact  # the first started from the first weights
    fed.unlearn("north", classes=["bird"])
    assert not present(fed) and ServerStore(fed.path / "server").model().transcript == ""


# --- chance --------------------------------------------------------------------------------------------------


def test_detection_is_what_counting_gives() -> None:
    for epochs, sampled, forged_epochs in itertools.product(range(1, 7), range(7), range(7)):
        if max(sampled, forged_epochs) > epochs:
            with pytest.raises(InputError, match="give 0 to"):
                detection(epochs, sampled, forged_epochs)
            continue
        choices = list(itertools.combinations(range(epochs), sampled))
        hits = sum(any(epoch < forged_epochs for epoch in choice) for choice in choices)
        assert detection(epochs, sampled, forged_epochs) == pytest.approx(hits / len(choices))


def test_samples_are_different_epochs_and_all_come_up() -> None:
    assert sample_epochs(5, 5) == (1, 2, 3, 4, 5) and sample_epochs(5, 0) == ()
    assert sample_epochs(9, 4, seed=b"s") == sample_epochs(9, 4, seed=b"s")
    drawn = [sample_epochs(9, 4, seed=bytes([number])) for number in range(200)]
    assert all(list(choice) == sorted(set(choice)) and len(choice) == 4 for choice in drawn)
    assert {epoch for choice in drawn for epoch in choice} == set(range(1, 10))
    assert len({sample_epochs(1000, 10) for _ in range(5)}) == 5  # from the operating system
    with pytest.raises(InputError, match="6 different epochs"):
        sample_epochs(5, 6)
