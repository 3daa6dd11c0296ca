"""Hidden labels end to end: exact in every mode, and nothing the server holds names a label."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from federation.runs import Table, assert_same, halves, ids_at, learned, settings, table, three, without
from splitwiper import Federation, Label
from splitwiper.config import Masking, Noise
from splitwiper.errors import AbsentClientError, ConfigError, CorruptError, DataError
from splitwiper.store import ServerStore
from splitwiper.wire import Statement, open_shard

MODES = [
    Masking(mode="duplicate"),
    Masking(mode="duplicate", gamma=(1, 3)),
    Masking(mode="partition", gamma=2),
    Masking(mode="subclass", gamma=3),
    Masking(mode="keyed", buckets=3),
    Masking(mode="duplicate", gamma=2, cover=1.0, pad=7),
    Masking(mode="keyed", codes=5, buckets=4, cover=0.6, pad=10),
]


def name_of(masking: Masking) -> str:
    return f"{masking.mode}-{masking.gamma}{'-cover' if masking.cover else ''}"


def federation(path: Path, masking: Masking, **client: object) -> Federation:
    return Federation(path, halves(), settings(masking=masking, **client))


def counts(fed: Federation) -> dict[str, Counter[int]]:
    """What the server sees: rows of every code, by client."""
    store = ServerStore(fed.path / "server")
    out = {}
    for record in store.shards():
        shard = store.open(record)
        out[record.client] = Counter(int(shard.labels[code].name) for code in shard.codes)
    store.database.close()
    return out


@pytest.mark.share(3)
@pytest.mark.parametrize("masking", MODES, ids=name_of)
@pytest.mark.parametrize("request_", ["class", "sample", "client"])
def test_unlearned_equals_never_had(tmp_path: Path, masking: Masking, request_: str) -> None:
    data = three()
    fed = federation(tmp_path / "run", masking, slices=2)
    fed.learn(data)
    y = data["north"][1]
    kept = dict(data)
    if request_ == "class":
        receipt = fed.unlearn("north", classes=["bird"])
        kept["north"] = without(data["north"], y != "bird")
    elif request_ == "sample":
        receipt = fed.unlearn("north", samples=ids_at(fed, "north", [0, 1, 5]))
        kept["north"] = without(data["north"], ~np.isin(np.arange(len(y)), [0, 1, 5]))
    else:
        receipt = fed.unlearn("north", everything=True)
        del kept["north"]
    never = fed.twin(tmp_path / "never")
    never.learn(kept)
    assert_same(fed, never)
    assert fed.verify(receipt).exact and fed.verify().exact
    assert bool(receipt.context["codebook"]) == (request_ != "client")  # to withdraw everything, none is needed
    assert receipt.others["contacted"] == receipt.others["bytes"] == 0
    assert all(spent.traffic == 0 for name, spent in fed.spent.items() if name != "north")


@pytest.mark.parametrize("masking", MODES, ids=name_of)
def test_the_server_reads_no_label_and_no_setting(tmp_path: Path, masking: Masking) -> None:
    words = {"north": table(1, ("asthma", "croup"), 20), "south": table(2, ("croup", "mumps"), 20)}
    fed = federation(tmp_path / "run", masking)
    fed.learn(words)
    fed.unlearn("north", classes=["asthma"])
    for path in (tmp_path / "run" / "server").rglob("*"):
        if path.is_file():
            raw = path.read_bytes()
            assert not any(word in raw for word in (b"asthma", b"croup", b"mumps", b"gamma", b"masking")), path
    assert fed.labels == tuple(Label("", n) for n in ("asthma", "croup", "mumps"))
    sealed = fed._client("north").store.sealed_codebook()
    assert sealed is not None and not any(word in sealed for word in (b"asthma", b"croup", b"mumps"))


@pytest.mark.parametrize("masking", MODES, ids=name_of)
def test_predictions_are_labels_and_never_a_forgotten_one(tmp_path: Path, masking: Masking) -> None:
    data = {"north": table(1, ("bird", "cat", "dog"), 90), "south": table(2, ("cat", "dog"), 60)}
    fed = Federation(tmp_path / "run", halves(), settings(masking=masking, lr=0.1))
    fed.learn(data)
    before = fed.predict("north", data["north"][0])
    assert set(before) <= {"bird", "cat", "dog"}
    fed.unlearn("north", classes=["bird"])
    after = fed.predict("north", data["north"][0])
    assert set(after) <= {"cat", "dog"}
    assert fed.predict("north", data["north"][0], local=True) == after
    chances = fed.predict_proba("north", data["north"][0])
    assert chances.shape == (90, 3) and (chances[:, 0] == 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-5)
    fed.learn({"north": table(9, ("bird",), 30)})  # other birds: the client may name them again
    assert (fed.predict_proba("north", data["north"][0])[:, 0] > 0).all()


def test_gamma_one_is_plain_up_to_the_names_of_labels(tmp_path: Path) -> None:
    """With one code a label, shards have the rows they would have, and each label one code."""
    fed, plain = (
        federation(tmp_path / "run", Masking(mode="duplicate")),
        Federation(tmp_path / "p", halves(), settings()),
    )
    data = three()
    fed.learn(data)
    plain.learn(data)
    assert {n: sorted(c.values()) for n, c in counts(fed).items()} == {
        n: sorted(Counter(y.tolist()).values()) for n, (_, y) in data.items()
    }
    assert len(fed._server.store.model().labels) == 4  # type: ignore[union-attr]


# --- what the server can see of a forgotten class: tested, and told in THREAT_MODEL.md ------------------------


def seen_difference(tmp_path: Path, masking: Masking) -> tuple[Counter[int], Federation]:
    fed = learned(tmp_path / "run", settings(masking=masking))
    before = counts(fed)
    codebook = fed._client("north").group.codebook()
    fed.unlearn("north", classes=["bird"])
    after = counts(fed)
    assert {n: c for n, c in before.items() if n != "north"} == {n: c for n, c in after.items() if n != "north"}
    assert fed._client("north").group.codebook() == codebook
    lost = Counter(before["north"])
    lost.subtract(after["north"])
    return Counter({code: n for code, n in lost.items() if n}), fed


def test_duplicate_shows_which_codes_vanished_and_the_rows_of_each(tmp_path: Path) -> None:
    lost, fed = seen_difference(tmp_path, Masking(mode="duplicate", gamma=3))
    assert lost == dict.fromkeys(fed._client("north").group.codebook().of(Label("", "bird")), 10)


def test_partition_shows_which_codes_vanished_and_their_sum(tmp_path: Path) -> None:
    lost, fed = seen_difference(tmp_path, Masking(mode="partition", gamma=3))
    assert set(lost) <= set(fed._client("north").group.codebook().of(Label("", "bird"))) and sum(lost.values()) == 10


def test_keyed_shows_fewer_rows_in_codes_that_stay(tmp_path: Path) -> None:
    lost, fed = seen_difference(tmp_path, Masking(mode="keyed", codes=4, buckets=6))
    codebook = fed._client("north").group.codebook()
    assert set(lost) <= set(codebook.of(Label("", "bird"))) and sum(lost.values()) == 10
    shared = {code for label in (Label("", "cat"), Label("", "dog")) for code in codebook.of(label)}
    assert set(lost) & shared


def test_padding_hides_the_number_of_rows(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=Masking(mode="keyed", pad=40)))
    assert {sum(c.values()) for c in counts(fed).values()} == {40}
    fed.unlearn("north", samples=ids_at(fed, "north", [0, 1]))
    assert {sum(c.values()) for c in counts(fed).values()} == {40}


def test_cover_makes_counts_equal(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=Masking(mode="partition", gamma=2, cover=1.0)))
    assert all(len(set(c.values())) == 1 for c in counts(fed).values())


def test_rows_of_a_shard_lie_in_an_order_that_tells_nothing(tmp_path: Path) -> None:
    """Copies of one row are not neighbours, and codes do not come in runs."""
    fed = federation(tmp_path / "run", Masking(mode="duplicate", gamma=2))
    fed.learn({"north": table(1, ("bird", "cat"), 200)})
    store = ServerStore(fed.path / "server")
    shard = open_shard(store.root / "shards" / store.shards()[0].file)
    same = (np.asarray(shard.columns["activation"])[1:] == np.asarray(shard.columns["activation"])[:-1]).all(axis=1)
    assert same.mean() < 0.05
    assert 0.15 < (np.diff(shard.codes) == 0).mean() < 0.35  # a quarter, by chance, for four codes
    store.database.close()


# --- joining, agreeing again -------------------------------------------------------------------------------


def test_a_latecomer_takes_the_codebook_and_an_unknown_label_is_refused(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", Masking(mode="partition", gamma=2))
    learned = fed.learn(three())
    assert learned.agreement is not None and learned.agreement.messages >= 3
    again = fed.learn({"late": table(7, ("cat", "eel"))})
    assert again.agreement is not None and fed._client("late").group.codebook() == fed._client("north").group.codebook()
    with pytest.raises(DataError, match=r"'gnu' is not in the codebook.*rekey"):
        fed.learn({"later": table(8, ("gnu", "cat"))})
    assert "later" not in fed.clients and not fed.status().todo
    fed.rekey(["gnu"])
    fed.learn({"later": table(8, ("gnu", "cat"))})
    assert Label("", "gnu") in fed.labels and fed.verify().exact


def test_rekey_changes_every_shard_and_nothing_else(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=Masking(mode="duplicate", gamma=2)))
    fed.unlearn("north", classes=["bird"])
    old, shards = fed._client("north").group.codebook(), {s.client: s.digest for s in fed._server.store.shards()}
    halves_before = {n: fed._client(n).store.half()[0].digest for n in shards}  # type: ignore[index]
    agreement = fed.rekey()
    assert all(s.digest != shards[s.client] for s in fed._server.store.shards())
    assert {n: fed._client(n).store.half()[0].digest for n in shards} == halves_before  # type: ignore[index]
    new = fed._client("north").group.codebook()
    assert set(agreement.clients) == {"north", "south", "west"} and new.version == old.version + 1
    assert Label("", "bird") in old.codes and Label("", "bird") not in new.codes
    assert fed.verify().exact and not fed.status().todo
    assert {s.codebook for s in fed._server.store.shards()} == {new.id}


def test_rekey_takes_every_client(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=Masking(mode="duplicate", gamma=2)))
    shutil.move(tmp_path / "run" / "clients" / "south", tmp_path / "south")
    with pytest.raises(AbsentClientError, match="every client, and south is not here"):
        fed.rekey()
    assert fed.unlearn("north", classes=["bird"]).exact  # forgetting does not need it
    with pytest.raises(ConfigError, match="not hidden"):
        Federation(tmp_path / "plain", halves(), settings()).rekey()


def test_a_talk_that_nobody_here_can_read_is_told(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", Masking(mode="partition", gamma=2))
    fed._link.post("ghost", "labels/1", 0, b"x" * 100)  # somebody with another secret spoke first
    with pytest.raises(CorruptError, match="another invitation secret"):
        fed.learn({"north": table(1, ("bird", "cat"))})


def test_a_wrong_invitation_is_refused(tmp_path: Path) -> None:
    masking = Masking(mode="partition", gamma=2)
    path = tmp_path / "run"
    fed = Federation(path, halves(), settings(masking=masking), invitation="the ward's common secret")
    fed.learn({"north": table(1, ("bird", "cat"))})
    other = Federation(path, halves(), invitation="some quite different secret")
    with pytest.raises(CorruptError, match="another invitation secret"):
        other.learn({"south": table(2, ("bird", "cat"))})
    right = Federation(path, halves(), invitation="the ward's common secret")
    assert right.learn({"east": table(2, ("bird", "cat"))}).agreement


def test_a_client_that_skipped_the_consensus_is_refused(tmp_path: Path) -> None:
    fed = learned(tmp_path / "run", settings(masking=Masking(mode="partition", gamma=2)))
    shard = next((fed.path / "server" / "shards").iterdir())
    copy = tmp_path / "shard"
    shutil.copy(shard, copy)
    with pytest.raises(DataError, match="did not take part in the consensus"):
        fed._link.upload("stranger", copy, Statement("c", "i", "k", {}))
    with pytest.raises(DataError, match="its codebook has 0 to 0"):
        fed._link.upload("stranger", copy, Statement("c", "i", "k", {}, codebook="b", outputs=1))


def test_another_federations_codebook_is_refused(tmp_path: Path) -> None:
    one, two = (federation(tmp_path / n, Masking(mode="partition", gamma=2)) for n in ("one", "two"))
    for fed in (one, two):
        fed.learn(three())
    theirs = two._client("north").store.sealed_codebook()
    assert theirs is not None
    one._client("north").store.remember(codebook=theirs.hex())
    with pytest.raises(CorruptError, match="another federation or invitation"):
        one.predict("north", three()["north"][0])


def test_an_experiment_can_be_repeated_bit_for_bit(tmp_path: Path) -> None:
    runs = []
    for number in range(2):
        fed = federation(tmp_path / str(number), Masking(mode="keyed"), keys="seeded")
        fed.learn(three())
        runs.append(fed)
    assert_same(*runs)


def test_an_interrupted_rekey_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = learned(tmp_path / "run", settings(masking=Masking(mode="partition", gamma=2)))
    from splitwiper.client.group import Group

    taken: list[str] = []
    take = Group.take

    def once(self: Group, codebook: object, labels: object) -> None:
        if taken:
            raise KeyboardInterrupt
        taken.append("one")
        take(self, codebook, labels)  # type: ignore[arg-type]

    monkeypatch.setattr(Group, "take", once)
    with pytest.raises(KeyboardInterrupt):
        fed.rekey()
    monkeypatch.undo()
    again = Federation(tmp_path / "run", halves())
    assert again.status().todo
    again.settle()
    assert {s.codebook for s in again._server.store.shards()} == {again._client("west").group.codebook().id}
    assert again._client("north").group.codebook().version == 2
    assert again.verify().exact and not again.status().todo


def test_different_tasks_keep_their_labels_apart(tmp_path: Path) -> None:
    fed = federation(tmp_path / "run", Masking(mode="partition", gamma=2))
    data: dict[str, Table] = {"north": table(1, ("one", "two"), 40), "south": table(2, ("one", "two"), 40)}
    fed.learn(data, tasks={"north": "pets", "south": "cars"})
    assert {label.task for label in fed.labels} == {"pets", "cars"} and len(fed.labels) == 4
    assert set(fed.predict("north", data["north"][0])) <= {"one", "two"}


@pytest.mark.gpu
@pytest.mark.parametrize(
    "client",
    [
        {"masking": Masking(mode="keyed", buckets=4), "codec": "int4"},
        {"masking": Masking(mode="subclass", gamma=2, cover=0.5)},
        {
            "masking": Masking(mode="duplicate", gamma=2),
            "noise": Noise(mechanism="laplace", epsilon=4.0, clip=1.0, reading="value", nonnegative=True),
        },
    ],
    ids=["keyed", "subclass", "noise"],
)
def test_unlearned_equals_never_had_on_a_gpu(tmp_path: Path, client: dict[str, object]) -> None:
    data, config = three(), settings(device="cuda", **client)
    config = replace(config, server=replace(config.server, device="cuda"))
    fed = Federation(tmp_path / "run", halves(), config)
    fed.learn(data)
    receipt = fed.unlearn("north", classes=["bird"])
    never = fed.twin(tmp_path / "never")
    never.learn({**data, "north": without(data["north"], data["north"][1] != "bird")})
    assert_same(fed, never)
    assert fed.verify(receipt).exact
