"""Hidden labels when things go wrong: agreements that stop half-way, folders that are away or damaged, equal codes."""

import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from federation.runs import activations, halves, ids_at, learned, settings, table, three
from splitwiper import Federation, Label
from splitwiper.client.group import Group
from splitwiper.config import Masking, Noise
from splitwiper.errors import AbsentClientError, ConfigError, CorruptError, DataError, NotFoundError
from splitwiper.masking.consensus import Participant, Turn

PARTS = Masking(mode="partition", gamma=2)
NOISE = Noise(mechanism="laplace", epsilon=0.02, clip=1.0, reading="value", nonnegative=True)


def federation(path: Path, masking: Masking = PARTS, **client: object) -> Federation:
    return Federation(path, halves(), settings(masking=masking, **client))


def interrupt_taking(fed: Federation, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Die in a rekey when so many clients have the new codebook."""
    take, taken = Group.take, []

    def once(self: Group, codebook: object, labels: object) -> None:
        if len(taken) == after:
            raise KeyboardInterrupt
        taken.append(self)
        take(self, codebook, labels)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Group, "take", once)
        with pytest.raises(KeyboardInterrupt):
            fed.rekey()


def interrupt_talking(fed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die in a rekey when one client has spoken."""
    said: list[Turn] = []
    speak = Participant.speak

    def once(self: Participant, pool: object) -> Turn:
        if said:
            raise KeyboardInterrupt
        said.append(speak(self, pool))  # type: ignore[arg-type]
        return said[0]

    with monkeypatch.context() as patched:
        patched.setattr(Participant, "speak", once)
        with pytest.raises(KeyboardInterrupt):
            fed.rekey()


@pytest.mark.parametrize(
    "masking", [Masking(mode="duplicate", gamma=(1, 3)), Masking(mode="partition", gamma=2, cover=0.9)], ids=str
)
def test_a_rekey_has_noise_of_its_own(tmp_path: Path, masking: Masking) -> None:
    """The same noise on other values would give their difference away."""
    fed = learned(tmp_path / "run", settings(masking=masking, noise=NOISE))
    before = activations(fed, "north")
    fed.rekey()
    after = activations(fed, "north")
    rows = min(len(before), len(after))
    assert np.abs(before[:rows] - after[:rows]).mean() > 20  # noise of scale 50 on values up to 1


def test_a_rekey_that_draws_the_same_codes_is_finished_too(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", Masking(mode="duplicate"))
    fed.learn({"north": table(1, ("bird",), 30)})
    fed.rekey()
    assert fed.status().model == "current" and fed.verify().exact
    assert set(fed.predict("north", table(1, ("bird",), 30)[0])) == {"bird"}


def test_a_rekey_with_nobody(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run")
    with pytest.raises(NotFoundError, match="nobody holds rows"):
        fed.rekey()
    fed.learn({"north": table(1, ("bird", "cat"))})
    fed.unlearn("north", everything=True)
    with pytest.raises(NotFoundError, match="nobody holds rows"):
        fed.rekey()


def test_everything_is_forgotten_in_the_middle_of_an_agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    interrupt_talking(fed, monkeypatch)
    receipt = fed.unlearn("west", everything=True)
    assert receipt.exact and fed.unlearn("north", classes=["bird"]).exact
    assert "west" not in {client for client, _, _ in fed.uploads()} and fed.verify().exact and not fed.status().todo


def test_an_agreement_waits_for_who_is_away_and_forgetting_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    interrupt_talking(fed, monkeypatch)
    shutil.move(tmp_path / "run" / "clients" / "west", tmp_path / "west")
    assert fed.unlearn("north", classes=["bird"]).exact  # under the codebook that all have
    with pytest.raises(AbsentClientError, match="waits for west"):
        fed.learn({"late": table(9, ("cat", "dog"))})
    shutil.move(tmp_path / "west", tmp_path / "run" / "clients" / "west")
    fed.settle()
    assert {s.codebook for s in fed._server.store.shards()} == {fed._client("west").group.codebook().id}
    assert fed._client("late").group.codebook().version == 2 and fed.verify().exact and not fed.status().todo


def test_a_rekey_is_finished_when_who_was_away_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    interrupt_taking(fed, monkeypatch, after=1)
    shutil.move(tmp_path / "run" / "clients" / "west", tmp_path / "west")
    with pytest.raises(DataError, match="different codebooks"):
        fed.settle()
    shutil.move(tmp_path / "west", tmp_path / "run" / "clients" / "west")
    assert any("west" in what for what in fed.status().todo)
    fed.settle()
    assert fed.verify().exact and not fed.status().todo


def test_labels_wished_for_survive_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    fed._client("north").group.wish([Label("", "gnu")])
    interrupt_talking(fed, monkeypatch)
    fed._client("north").group.wish([Label("", "gnu")])
    fed.settle()
    assert Label("", "gnu") in fed.labels and not fed._client("north").group.wished()


def test_a_damaged_client_stops_no_other(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    fed.submit("south", samples=ids_at(fed, "south", [0]))
    path = next((tmp_path / "run" / "clients" / "south" / "slices").iterdir())
    *content, last = path.read_bytes()
    path.write_bytes(bytes([*content, last ^ 1]))
    fed.submit("north", classes=["bird"])
    assert [r.client for r in fed.settle()] == ["north"]


@pytest.mark.parametrize("what", [{"classes": ["bird"]}, {"everything": True}], ids=["class", "client"])
def test_without_the_group_key_forgetting_still_works(tmp_path: Path, what: dict[str, object]) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    (tmp_path / "run" / "clients" / "north" / "group").unlink()
    ticket = fed.submit("north", **what)  # type: ignore[arg-type]
    try:
        fed.settle()
    except CorruptError as problem:
        assert "group key" in str(problem)
    assert next(t.state for t in fed.status().tickets if t.id == ticket.id) == "settled"
    assert "north" not in {client for client, _, _ in fed.uploads()}
    assert Label("", "cat") in fed.labels and fed.predict("south", three()["south"][0])


def test_too_few_codes_are_noticed_before_anything_is_kept(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", Masking(mode="keyed", codes=2))
    with pytest.raises(ConfigError, match=r"codes = 2 is fewer than the 4 labels"):
        fed.learn(three())
    assert not fed.clients


def test_data_that_is_read_late_is_checked_against_the_codebook(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    calls: list[int] = []

    def changing() -> tuple[np.ndarray, np.ndarray]:
        calls.append(1)
        return table(7, ("cat", "dog") if len(calls) == 1 else ("gnu", "cat"))

    with pytest.raises(DataError, match="'gnu' is not in the codebook"):
        fed.learn({"late": changing})
    assert fed.learn({"north": table(11, ("cat",), 5)}).added["north"].new == 5


def test_a_client_that_forgot_everything_comes_back_after_a_rekey(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    fed.unlearn("north", everything=True)
    fed.rekey(["gnu"])
    assert Label("", "gnu") in fed.labels  # the newest codebook counts, not the first client's
    fed.learn({"north": table(21, ("gnu", "cat"))})
    assert fed._client("north").group.codebook().version == 2 and fed.verify().exact


@pytest.mark.parametrize("away", [False, True])
def test_a_label_is_forgotten_however_its_rows_are(tmp_path: Path, away: bool) -> None:
    data = three()
    fed = federation(tmp_path / "run", Masking(mode="keyed", buckets=3))
    fed.learn(data)
    if away:
        shutil.move(tmp_path / "run" / "clients" / "north", tmp_path / "north")
        fed.unlearn("north", everything=True)
        shutil.move(tmp_path / "north", tmp_path / "run" / "clients" / "north")
    else:
        fed.unlearn("north", samples=[i for i, label in fed.rows("north").items() if label == "bird"])
    fed.learn({"north": table(31, ("cat", "dog"), 20)})
    assert (fed.predict_proba("north", data["north"][0])[:, fed.labels.index(Label("", "bird"))] == 0).all()


def test_predictions_are_counted_at_the_scale_of_their_noise(tmp_path: Path) -> None:
    noise = Noise(mechanism="laplace", epsilon=0.01, clip=1.0, reading="mean", nonnegative=True)
    fed = federation(tmp_path / "run", noise=noise)
    fed.learn({"north": table(1, ("bird", "cat"), 20)})
    before = fed.privacy("north").value.pure
    fed.predict("north", table(1, ("bird", "cat"), 20)[0])
    after = fed.privacy("north").value.pure
    assert before is not None and after is not None and after - before == pytest.approx(0.01 * 10)


def test_rows_lie_in_a_new_order_in_every_upload(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", Masking(mode="duplicate"))
    added = fed.learn({"north": table(1, ("bird", "cat"), 200)}).added["north"]
    before = fed.sent("north").sources().tolist()
    fed.unlearn("north", samples=added.ids[:1])
    after = fed.sent("north").sources().tolist()
    kept = [row for row in before if row in set(after)]
    same = sum(a == b for a, b in zip(kept, after, strict=True))
    assert len(after) == 199 and same < 20
    fed.rekey()
    assert sum(a == b for a, b in zip(fed.sent("north").sources().tolist(), after, strict=True)) < 20


def test_cover_rows_are_blends_of_two(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", Masking(mode="partition", gamma=3, cover=1.0))
    fed.learn({"north": table(1, ("bird", "cat", "dog"), 120)})
    values = activations(fed, "north")
    assert len(values) > 120 and len(np.unique(values, axis=0)) == len(values)


def test_rows_forgotten_before_a_rekey_are_refused_and_stop_nobody(tmp_path: Path) -> None:
    data = three()
    fed = federation(tmp_path / "run")
    fed.learn(data)
    fed.unlearn("north", classes=["bird"])
    fed.rekey()
    again = fed.learn({**data, "late": table(41, ("cat",), 6)})
    assert again.added["north"].refused == 10 and again.added["late"].new == 6
    with pytest.raises(DataError, match="'bird' is not in the codebook"):
        fed.learn({"north": table(42, ("bird", "cat"))})  # other birds


def test_the_servers_first_weights_do_not_tell_the_number_of_labels(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run")
    assert not any(name.startswith(fed.halves.server.output_layer_name) for name in fed._server.store.initial())
    fed.learn(three())
    assert Federation(tmp_path / "run", halves()).verify().exact


def test_a_rekey_tries_every_key_before_it_begins(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    (tmp_path / "run" / "clients" / "south" / "group").write_text("00" * 32)
    with pytest.raises(CorruptError, match="client 'south'"):
        fed.rekey()
    assert not fed.status().todo and fed.unlearn("north", classes=["bird"]).exact


def test_unfinished_work_cannot_be_verified(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=PARTS))
    fed._registry.mark_pending("south")
    assert fed.verify().outcome == "unverifiable"
    fed.settle()
    assert fed.verify().exact


def test_a_short_invitation_is_told_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 16"):
        Federation(tmp_path / "run", halves(), settings(masking=PARTS), invitation="short")
    assert not (tmp_path / "run").exists()


def test_a_codebook_that_cannot_be_computed_stops_no_forgetting(tmp_path: Path) -> None:
    """Clients agree on more labels than there are codes for: none has a codebook, and each forgets all the same."""
    fed = learned(tmp_path / "run", settings(masking=Masking(mode="keyed", codes=6)))
    name = fed.clients[0]
    with pytest.raises(ConfigError):
        fed.rekey([f"new{number}" for number in range(7)])
    with suppress(ConfigError):
        fed.unlearn(name, everything=True)
    assert [ticket.state for ticket in fed._server.store.tickets(name)] == ["settled"]
    assert name not in fed.uploads()
