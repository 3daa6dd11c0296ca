"""The halves as objects: heads, clients of their own, previews, warnings, side effects."""

import copy
import gc
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from splitting.zoo import Branches, DictBoundary, Lstm, ResNet, Vit, bert, images, mlp, text, vectors, vgg
from splitwiper.errors import CutError, DataError
from splitwiper.splitting import CutWarning, Halves, TensorSpec, call_with, split
from splitwiper.splitting.ghosts import RUN
from splitwiper.splitting.trees import same


def quiet(*args: Any, **kwargs: Any) -> Halves:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutWarning)
        return split(*args, **kwargs)


@pytest.mark.parametrize(
    ("factory", "at", "example", "head"),
    [
        (mlp, "1", vectors(1), "4"),
        (ResNet, "layer1", images(1), "fc"),
        (Vit, "blocks.0", images(1), "head"),
        (Lstm, "lstm", torch.zeros(1, 5, dtype=torch.long), "out.2"),
        (bert, "bert", text(1), "classifier"),  # made when it runs: it imports all of transformers
        (DictBoundary, "stem", vectors(1), "out"),
        (lambda: nn.Sequential(mlp(), nn.LogSoftmax(1)), "0.1", vectors(1), "0.4"),
    ],
    ids=["mlp", "resnet", "vit", "lstm", "bert", "dict", "softmax"],
)
def test_the_head_is_found_and_replaced(factory: Callable[[], nn.Module], at: str, example: Any, head: str) -> None:
    halves = quiet(factory(), at, example)
    server = halves.server
    assert server.output_layer_name == head
    sent = call_with(halves.client, example)
    assert server.logits(sent).shape == (1, server.output_layer.out_features)
    names = list(server.state_dict())
    wide = nn.Linear(server.output_layer.in_features, 11)
    server.set_output_layer(wide)
    assert server.output_layer is wide
    assert list(server.state_dict()) == names
    assert server.state_dict()[f"{head}.weight"].shape[0] == 11
    assert server.logits(sent).shape == (1, 11)
    assert any(parameter is wide.weight for parameter in server.parameters())
    with pytest.raises(CutError, match=f"Linear layer of {wide.in_features} features"):
        server.set_output_layer(nn.Linear(wide.in_features + 1, 3))


def test_logits_must_be_a_matrix() -> None:
    class Pairs(nn.Module):
        def __init__(self, wrap: bool) -> None:
            super().__init__()
            self.stem, self.out, self.wrap = nn.Linear(6, 6), nn.Linear(6, 3), wrap

        def forward(self, x: Tensor) -> Any:
            x = self.out(self.stem(x))
            return [x] if self.wrap else x[:, None]

    for wrap, words in ((True, "returns a list, neither"), (False, r"shape \(2, 1, 3\)")):
        halves = split(Pairs(wrap), "stem", vectors(1))
        with pytest.raises(CutError, match=words):
            halves.server.logits(halves.client(vectors(2)))


def test_the_boundary_is_checked_and_not_changed() -> None:
    halves = quiet(vgg(), "1", images(1))  # a relu in place follows
    sent = {name: tensor.detach() for name, tensor in halves.client(images(4)).items()}
    kept = sent["activation"].clone()
    leaf = sent["activation"].requires_grad_()
    halves.server(sent).sum().backward()
    assert torch.equal(sent["activation"], kept)
    assert leaf.grad is not None
    with pytest.raises(DataError, match="lacks activation"):
        halves.server({})
    with pytest.raises(DataError, match=r"arrived with shape \(4, 8, 8\)"):
        halves.server({"activation": kept[..., 0]})
    masked = quiet(bert(), "bert.embeddings", text(1), shared="attention_mask")
    sent = masked.client(**text(3))
    with pytest.raises(DataError, match="rows must agree"):
        masked.server({**sent, "attention_mask": sent["attention_mask"][:2]})
    with pytest.raises(DataError, match="no 'attention_mask'"):
        masked.client(input_ids=text(1)["input_ids"])


def test_positional_and_keyword_calls_agree() -> None:
    model = bert().eval()
    halves = quiet(model, "bert.embeddings", text(1), shared=["attention_mask"])
    inputs = text(3)
    expected = halves.client(**inputs)
    assert same(halves.client(inputs["input_ids"], inputs["attention_mask"]), expected)
    assert same(call_with(halves.client, tuple(inputs.values())), expected)
    tupled = quiet(model, "bert.embeddings", tuple(text(1).values()), shared=["attention_mask"])
    assert same(tupled.server(tupled.client(*inputs.values())), model(**inputs))


def test_clients_bring_halves_of_their_own() -> None:
    halves = split(mlp(), "1", vectors(1))
    wide = split(nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 2)), "1", torch.zeros(1, 9))
    both = halves.with_clients({"wide": wide, "plain": nn.Linear(4, 8)}, examples={"plain": torch.zeros(1, 4)})
    assert halves.clients == {} and set(both.clients) == {"wide", "plain"}
    assert both.client_for("other") is both.client
    for name, inputs in (("wide", torch.zeros(3, 9)), ("plain", torch.zeros(3, 4)), ("other", vectors(3))):
        assert both.server.logits(both.client_for(name)(inputs)).shape == (3, 3)
    assert list(both.client_for("plain").state_dict()) == ["weight", "bias"]
    assert list(both.client_for("wide").state_dict()) == ["0.weight", "0.bias"]
    assert not both.client_for("wide").eval().training
    assert "wide, plain" in str(both)
    copied = copy.deepcopy(both)
    assert torch.equal(
        copied.client_for("wide")(torch.ones(1, 9))["activation"],
        both.client_for("wide")(torch.ones(1, 9))["activation"],
    )


def test_boundaries_of_other_names_are_renamed() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.out = nn.Linear(5, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.body(x).relu())

    halves = split(Named(), "body", torch.zeros(1, 5))
    other = split(DictBoundary(), "stem.a", vectors(1))
    joined = halves.with_clients({"dict": other})
    assert list(joined.client_for("dict")(vectors(2))) == ["activation"]


def test_clients_that_do_not_fit_are_refused() -> None:
    halves = split(mlp(), "1", vectors(1))
    with pytest.raises(CutError, match=r"'a' sends activation \(3, float32\).* expects activation \(8, float32\)"):
        halves.with_clients({"a": split(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), "0", torch.zeros(1, 2))})
    with pytest.raises(CutError, match=r"expects activation \(8, float32\).*shape \(7,\)"):
        halves.with_clients({"a": nn.Linear(4, 7)}, examples={"a": torch.zeros(1, 4)})
    with pytest.raises(CutError, match=r"sends activation \(8, float64\)"):
        halves.with_clients({"a": nn.Linear(4, 8).double()}, examples={"a": torch.zeros(1, 4).double()})
    with pytest.raises(CutError, match="must return activation; it returned a tuple"):
        halves.with_clients({"a": nn.LSTM(4, 8)}, examples={"a": torch.zeros(1, 1, 4)})
    with pytest.raises(CutError, match="example for 'b', who brings no client half"):
        halves.with_clients({"a": nn.Linear(4, 8)}, examples={"b": torch.zeros(1, 4)})


def test_the_preview_is_a_table() -> None:
    halves = quiet(bert(), "bert.embeddings", text(1), shared=["attention_mask"])
    lines = str(halves).splitlines()
    assert repr(halves) == str(halves)
    assert lines[0] == "cut after 'bert.embeddings'"
    assert lines[6].split() == ["crosses", "the", "cut", "kind", "per", "row", "dtype", "bytes", "per", "row"]
    assert lines[7].split() == ["activation", "activation", "7", "x", "16", "float32", "448"]
    assert lines[8].split() == ["attention_mask", "side", "7", "int64", "56"]
    assert lines[9].split() == ["together", "504"]
    assert lines[11] == "head 'classifier': 16 -> 3"
    assert lines[12].startswith("warning: the client half has dropout (bert.embeddings.dropout)")
    assert len({len(line) for line in lines[6:10]}) == 1


def test_operations_are_counted_on_the_right_side() -> None:
    halves = split(mlp(), "1", vectors(5))
    assert halves.flops == (2 * 6 * 8, 2 * 8 * 8 + 2 * 8 * 3)
    halves = split(Lstm(), "lstm", torch.zeros(1, 5, dtype=torch.long))
    assert halves.flops[0] == 5 * 2 * (4 * 7 * (6 + 7) + 4 * 7 * (7 + 7))


@pytest.mark.parametrize(
    ("model", "at", "example", "words"),
    [
        (vgg(), "1", images(1), ["batch normalisation"]),
        (vgg(), "8", images(1), ["dropout", "batch normalisation"]),
        (Branches(), "mid", vectors(1), ["random numbers"]),
    ],
)
def test_what_belongs_on_the_server_is_warned_of(model: nn.Module, at: str, example: Tensor, words: list[str]) -> None:
    with pytest.warns(CutWarning) as caught:
        halves = split(model, at, example)
    assert len(caught) == len(words) == len(halves.warnings)
    for word, one, note in zip(words, caught, halves.warnings, strict=True):
        assert word in note and str(one.message) == note and one.filename == __file__


def test_nothing_of_the_example_stays() -> None:
    example = text(2)
    watched = [weakref.ref(tensor) for tensor in example.values()]
    halves = quiet(bert(), "bert.encoder.layer.0", example, shared=["attention_mask"])
    rows = {tuple(row) for row in example["input_ids"].tolist()}
    del example
    gc.collect()
    assert [ref() for ref in watched] == [None, None]
    # Nor a copy of it: every tensor that can be reached from the halves, through whatever holds it.
    seen, stack, tensors = set(), [halves], []
    while stack:
        found = stack.pop()
        if id(found) in seen or isinstance(found, type | types.ModuleType | types.FunctionType):
            continue
        seen.add(id(found))
        if isinstance(found, Tensor):
            tensors.append(found)
        else:
            stack += gc.get_referents(found)
    assert len(tensors) > 20
    assert not any(tuple(row) in rows for t in tensors if t.ndim == 2 and not t.is_meta for row in t.tolist())


def test_ghosts_take_no_memory_and_answer_only_inside_a_pass() -> None:
    halves = quiet(ResNet(), "layer1", images(1))
    with pytest.raises(AttributeError, match="'weight' of module 'conv1' belongs to the other half"):
        halves.server.conv1.weight  # noqa: B018
    shells = [module for name, module in halves.server.named_modules() if name.startswith(("conv1", "bn1", "layer1"))]
    assert len(shells) > 10
    for module in shells:
        assert not module.state_dict()
        assert not any(isinstance(value, Tensor) for value in vars(module).values())


class Fragile(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.out, self.broken = nn.Linear(6, 6), nn.Linear(6, 3), False

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.broken:
            raise ValueError("broken")
        return self.out(x)


def test_a_failing_pass_leaves_nothing_behind() -> None:
    halves = split(Fragile(), "stem", vectors(1))
    sent = halves.client(vectors(2))
    expected = halves.server(sent)
    halves.server._core.broken = True
    with pytest.raises(ValueError, match="broken"):
        halves.server(sent)
    assert RUN.get() is None
    halves.server._core.broken = False
    assert torch.equal(halves.server(sent), expected)


def test_halves_run_side_by_side_in_threads() -> None:
    model = ResNet().eval()
    halves = quiet(model, "layer1", images(1))
    inputs = [images(rows) for rows in (1, 2, 3, 4)]
    expected = [model(x) for x in inputs]
    wrong = []

    def work(x: Tensor, wanted: Tensor) -> None:
        for _ in range(10):
            if not torch.equal(halves.server(halves.client(x)), wanted):
                wrong.append(x.shape)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_split_works_inside_inference_mode() -> None:
    model = mlp()
    with torch.inference_mode():
        halves = split(model, "1", vectors(1))
    halves.server(halves.client(vectors(2))).sum().backward()
    assert all(p.grad is not None for p in halves.client.parameters())


def test_a_module_with_two_names_is_cut_under_either() -> None:
    class Alias(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.out = nn.Linear(6, 6), nn.Linear(6, 3)
            self.alias = self.stem

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.alias(x))

    model = Alias()
    halves = split(model, "alias", vectors(1))
    assert set(halves.client.state_dict()) == {n for n in model.state_dict() if not n.startswith("out")}
    assert torch.equal(halves.server(halves.client(vectors(1) * 0)), model(vectors(1) * 0))


def test_specs_know_their_size() -> None:
    assert TensorSpec("x", (2, 3), torch.float16, "side").bytes_per_row == 12
    assert str(TensorSpec("x", (), torch.int64, "side")) == "x (scalar, int64)"


def test_both_halves_can_be_printed() -> None:
    halves = split(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), at="1", example=torch.zeros(1, 3))
    assert "held by the other half" in str(halves.client) and "in_features=3" in str(halves.client)
    assert "held by the other half" in str(halves.server) and "out_features=2" in str(halves.server)
