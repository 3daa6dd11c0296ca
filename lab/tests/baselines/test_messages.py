"""What passes between clients and server: counted to the byte, and no label where none may pass."""

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from baselines.small import HELD, digits, problem
from splitwiper.seeding import state_digest
from splitwiper_lab.baselines import FRAMEWORKS, Trained
from splitwiper_lab.baselines.channel import Message, size
from splitwiper_lab.baselines.unlearning import METHODS


class Wire:
    """Sends every message as bytes, and keeps them."""

    def __init__(self) -> None:
        self.sent: dict[str, list[tuple[str, bytes]]] = {}

    def __call__(self, client: str, way: str, message: Message) -> Message:
        raw = save({name: tensor.contiguous() for name, tensor in message.items()})
        assert len(raw) == size(message)
        self.sent.setdefault(client, []).append((way, raw))
        return load(raw)

    def total(self, client: str, way: str) -> int:
        return sum(len(raw) for direction, raw in self.sent[client] if direction == way)


def digest_of(trained: Trained) -> str:
    net, parts = trained.network, {}
    for name in net.stems:
        for kind, module in (("stem", net.stems[name]), ("half", net.halves[name]), ("tail", net.tails.get(name))):
            if module is not None:
                parts |= {f"{name}.{kind}.{key}": value for key, value in module.state_dict().items()}
    return state_digest(parts)


@pytest.mark.parametrize("schedule", ["interleaved", "turns"])
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_bytes_are_all_that_passes(name: str, schedule: str) -> None:
    """Training over real bytes gives the same bits, and the meters agree with the bytes."""
    kind = FRAMEWORKS[name](schedule=schedule, start="scratch")
    wire = Wire()
    over, direct = kind.learn(problem(epochs=2), tap=wire), kind.learn(problem(epochs=2))
    assert digest_of(over) == digest_of(direct)
    for client, cost in direct.spent.items():
        assert cost.bytes_up == wire.total(client, "up")
        assert cost.bytes_down == wire.total(client, "down")
        assert cost.round_trips == sum(way == "down" for way, _ in wire.sent[client])


def spellings(codes: np.ndarray) -> list[bytes]:
    """A batch's labels as a program might write them down."""
    kinds = ("<i8", "<i4", "<i2", "i1", "<f8", "<f4", "<f2")
    one_hot = np.eye(10)[codes]
    return [codes.astype(kind).tobytes() for kind in kinds] + [one_hot.astype(kind).tobytes() for kind in kinds]


@pytest.mark.parametrize(("name", "leaks"), [("vanilla", True), ("u-shaped", False)])
def test_u_shaped_never_sends_a_label(name: str, leaks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message holds a batch's labels in any spelling, nor an integer, nor a label's name; vanilla's do."""
    from splitwiper_lab.baselines.client import BaselineClient

    batches: dict[str, list[np.ndarray]] = {}
    send = BaselineClient.send

    def remembered(self: BaselineClient, parts: Message, gone: torch.Tensor) -> Message:
        batches.setdefault(self.name, []).append(parts["@code"].numpy().copy())
        return send(self, parts, gone)

    monkeypatch.setattr(BaselineClient, "send", remembered)
    data = {client: (x, [f"secret-{digit}" for digit in y]) for client, (x, y) in digits(60).items()}
    wire = Wire()
    FRAMEWORKS[name](start="scratch").learn(problem(data, epochs=1), tap=wire)
    found = 0
    for client, messages in wire.sent.items():
        assert all(len(codes) >= 7 for codes in batches[client])  # short runs of bytes would be found by chance
        for way, raw in messages:
            assert b"secret" not in raw
            if way == "up":
                integers = any(not tensor.is_floating_point() for tensor in load(raw).values())
                found += integers or any(text in raw for codes in batches[client] for text in spellings(codes))
    assert bool(found) is leaks


def test_u_shaped_gradients_tell_how_many_labels_there_are() -> None:
    """What keeping labels locally does not hide: a batch's gradients of features span one dimension fewer."""
    wire = Wire()
    FRAMEWORKS["u-shaped"](start="scratch").learn(problem(epochs=1, batch=1000), tap=wire)
    for client, messages in wire.sent.items():
        (gradients,) = (load(raw)["features"] for way, raw in messages if way == "up" and b"features" in raw[:200])
        assert int(torch.linalg.matrix_rank(gradients.double(), rtol=1e-5)) == len(HELD[client]) - 1


@pytest.mark.parametrize("method", METHODS)
def test_u_shaped_unlearning_sends_no_label(method: str) -> None:
    trained = FRAMEWORKS["u-shaped"](start="scratch").learn(problem(epochs=1))
    heard: list[set[str]] = []

    def listen(client: str, way: str, message: Message) -> Message:
        heard.append(set(message))
        return message

    METHODS[method]().unlearn(trained, trained.problem.choose("north", classes=[4]), tap=listen)
    assert heard
    assert all("@label" not in names for names in heard)


def test_traffic_grows_with_epochs_and_by_the_rows() -> None:
    one, three = (FRAMEWORKS["vanilla"](start="scratch").learn(problem(epochs=epochs)) for epochs in (1, 3))
    for client, cost in three.spent.items():
        assert cost.bytes_up == pytest.approx(3 * one.spent[client].bytes_up, rel=0.01)
        assert cost.flops == 3 * one.spent[client].flops
        assert cost.round_trips == 3 * one.spent[client].round_trips
    rows, row = len(one.problem.clients["north"]), 4 * 8 * 8 * 4
    assert one.spent["north"].bytes_down == pytest.approx(rows * row, rel=0.05)
    assert one.spent["north"].flops == rows * 2 * 2 * 4 * 9 * 64  # forward, and backward to the weights alone
