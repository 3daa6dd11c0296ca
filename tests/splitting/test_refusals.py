"""Cuts that cannot work are refused, with the reason and with cuts that can."""

import warnings
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from splitting.zoo import Gated, Lstm, ResNet, bert, images, mlp, text, vectors, vgg
from splitwiper.errors import CutError, DataError, InputError
from splitwiper.splitting import CutWarning, legal_cuts, split


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 6)
        self.mid = nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)


class Tied(Base):
    def __init__(self) -> None:
        super().__init__()
        self.mid.weight = self.stem.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mid(self.stem(x)))


class TiedByUse(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.linear(self.mid(self.stem(x)), self.stem.weight))


class Skip(Base):
    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.out(x + self.mid(x))


class SkipThroughView(Base):
    """The cut's output shares memory with what goes around it, which no label shows."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Flatten()

    def forward(self, x: Tensor) -> Tensor:
        x = self.mid(self.stem(x))
        return self.out(self.flat(x) + x)


class RawInput(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mid(self.stem(x)) + x)


class Twice(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mid(self.mid(self.stem(x))))


class Counter(Base):
    """A buffer that both sides change."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        x = self.stem(x)
        self.count += 1
        return self.out(self.mid(x))


class Noise(Base):
    def forward(self, x: Tensor) -> Tensor:
        noise = torch.rand(6)
        return self.out(self.mid(self.stem(x)) + noise)


class Hidden(Base):
    """Values leave for Python behind the back of every trace."""

    def forward(self, x: Tensor) -> Tensor:
        factor = float(x.detach().numpy().sum())
        return self.out(self.mid(self.stem(x)) * factor)


class Side(Base):
    """A tensor goes around the cut through an attribute."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        self.kept = x.detach() * 2
        return self.out(self.mid(x) + self.kept)


class Unused(Base):
    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        self.mid(x)
        return self.out(x)


class Flattened(Base):
    """Rows and steps share a dimension."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        x = self.mid(self.stem(x.repeat_interleave(2, 0)))
        return self.out(x.view(rows, 2, 6).sum(1))


class Scores:
    def __init__(self, value: Tensor) -> None:
        self.value = value


class Wrapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Scores:
        return Scores(self.layer(x))


class Wrapped(Base):
    def __init__(self) -> None:
        super().__init__()
        self.wrap = Wrapping()

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mid(self.wrap(x).value))


@pytest.mark.parametrize(
    ("factory", "at", "words"),
    [
        (Tied, "stem", ["'mid.weight'", "'stem.weight'", "tied"]),
        (TiedByUse, "mid", ["both sides use 'stem.weight'"]),
        (Skip, "mid", ["connection goes around it", "'stem.bias'", "Nearest legal cuts: 'stem'"]),
        (SkipThroughView, "flat", ["no trace shows", "Nearest legal cuts: 'stem', 'mid'"]),
        (RawInput, "stem", ["needs the model's input 'x'", 'shared=["x"]', "No legal cut"]),
        (Twice, "mid", ["called 2 times", "Nearest legal cuts: 'stem'"]),
        (Counter, "stem", ["both sides use 'count'"]),
        (Noise, "stem", ["random numbers"]),
        (Hidden, "stem", ["no trace shows"]),
        (Side, "mid", ["connection goes around it"]),
        (Unused, "mid", ["nothing after it uses a tensor", "Nearest legal cuts: 'stem'"]),
        (Flattened, "stem", ["no row dimension", "(4, 6)", "(6, 6)"]),
        (Wrapped, "wrap", ["returns a Scores, which cannot be sent"]),
        (Wrapped, "mid", ["'wrap' before it returns a Scores, which cannot be imitated"]),
        (Gated, "mid", ["branches on data (input 'x')", "allow_data_dependent=True"]),
        (mlp, "4", ["no parameters after it", "Nearest legal cuts:"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_illegal_cuts_say_why(factory: Any, at: str, words: list[str]) -> None:
    with pytest.raises(CutError) as caught:
        split(factory(), at, vectors(2))
    message = str(caught.value)
    assert message.startswith(f"cannot cut after {at!r}: ")
    assert [word for word in words if word not in message] == [], message


def test_a_parameterless_client_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.Linear(3, 2))
    with pytest.raises(CutError, match=r"no parameters before it.*'1'"):
        split(model, "0", vectors(1))


def test_unknown_names_get_near_names_and_legal_cuts() -> None:
    with pytest.raises(CutError, match=r"no module 'layr1'. Did you mean 'layer1'.*Nearest legal cuts: .*'layer1'"):
        split(ResNet(), "layr1", images(1))
    with pytest.raises(CutError, match="no module ''"):
        split(mlp(), "", vectors(1))


def test_cuts_inside_a_residual_block_point_to_the_blocks() -> None:
    with pytest.raises(CutError, match=r"connection goes around it.*Nearest legal cuts: .*'layer1.0'"):
        split(ResNet(), "layer1.0.bn1", images(1))


@pytest.mark.parametrize("at", ["bert.embeddings", "bert.encoder.layer.0"])
@pytest.mark.parametrize("masked", [True, False])
def test_bert_asks_for_its_mask(at: str, masked: bool) -> None:
    example = text(2)
    if not masked:
        example["attention_mask"][:] = 1  # the mask is then dropped, after a look at its values
    with pytest.raises(CutError, match=r'pass shared=\["attention_mask"\]'):
        split(bert(), at, example)


def test_a_nested_tensor_cannot_cross() -> None:
    class Nesting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nested.nested_tensor(list(x), layout=torch.strided)

    class Model(Base):
        def __init__(self) -> None:
            super().__init__()
            self.nest = Nesting()

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.mid(torch.nested.to_padded_tensor(self.nest(self.stem(x)), 0.0)))

    with warnings.catch_warnings(), pytest.raises(CutError, match="a nested tensor, which cannot be sent"):
        warnings.simplefilter("ignore")  # torch warns of nested tensors once per process, so perhaps not here
        split(Model(), "nest", torch.randn(2, 3, 6))


def test_legal_cuts_are_listed_in_execution_order() -> None:
    assert legal_cuts(Skip(), vectors(1)) == ["stem"]
    assert legal_cuts(Lstm(), torch.zeros(1, 5, dtype=torch.long)) == ["embed", "lstm", "out.0", "out.1"]
    assert legal_cuts(vgg(), images(1)) == [str(i) for i in range(13)]
    found = legal_cuts(bert(), text(1), ["attention_mask"])
    assert found.index("bert.embeddings") < found.index("bert.encoder.layer.0") < found.index("bert.pooler")
    assert "bert.encoder.layer.0.attention.self.query" not in found
    assert legal_cuts(bert(), text(1)) == ["bert", "dropout"]


class TwoHeads(Base):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        return self.mid(x), self.out(x)


def test_the_head_must_be_known() -> None:
    with pytest.raises(CutError, match="no single output layer was found; pass head= with one of stem, mid, out"):
        split(TwoHeads(), "stem", vectors(1))
    assert split(TwoHeads(), "stem", vectors(1), head="mid").server.output_layer_name == "mid"
    with pytest.raises(CutError, match=r"head='outt' is not a Linear layer of the model. Did you mean 'out'"):
        split(TwoHeads(), "stem", vectors(1), head="outt")
    with pytest.raises(CutError, match="the head 'stem' lies before it"):
        split(TwoHeads(), "stem", vectors(1), head="stem")


def test_a_model_without_a_linear_layer() -> None:
    with pytest.raises(CutError, match=r"has no Linear layer; its output layer must be one"):
        split(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten()), "0", images(1))


def by_hand(x: Tensor) -> Tensor:
    powers = x.exp()
    return powers / powers.sum(dim=1, keepdim=True)


class Probabilities(Base):
    def __init__(self, squash: Any, *, only_evaluating: bool = False) -> None:
        super().__init__()
        self.squash, self.only_evaluating = squash, only_evaluating

    def forward(self, x: Tensor) -> Tensor:
        scores = self.out(self.mid(self.stem(x)))
        return scores if self.training and self.only_evaluating else self.squash(scores)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Probabilities(nn.Softmax(dim=1)), r"ends in a softmax \(module 'squash'\).*raw scores \(logits\)"),
        (Probabilities(nn.Sigmoid()), r"ends in a sigmoid \(module 'squash'\)"),
        (Probabilities(torch.sigmoid_), r"ends in a sigmoid \(in Probabilities.forward\)"),
        (Probabilities(lambda x: F.softmax(x, dim=1)), r"ends in a softmax \(in Probabilities.forward\)"),
        (Probabilities(nn.Softmax(dim=1), only_evaluating=True), "ends in a softmax"),
        (Probabilities(by_hand), r"ends in a softmax \(its outputs are never negative, and sum to 1 in every row\)"),
    ],
)
def test_outputs_that_are_no_raw_scores_are_warned_of(model: nn.Module, words: str) -> None:
    with pytest.warns(CutWarning, match=words):
        halves = split(model, "stem", vectors(1))
    assert "take that layer off" in str(halves)


def test_what_only_looks_like_a_squashed_output() -> None:
    """Softmax of its own logarithm is itself, and a gate is no output. Warnings are errors here."""
    assert split(Probabilities(nn.LogSoftmax(dim=1)), "stem", vectors(1)).warnings == ()
    assert split(Probabilities(lambda x: x * torch.sigmoid(x)), "stem", vectors(1)).warnings == ()


def test_scores_that_add_up_to_about_one_are_not_taken_for_probabilities() -> None:
    """Where the example is zero, the first outputs are biases, the same in every row: any two small numbers."""
    model = Probabilities(lambda x: 0 * x + torch.tensor([0.5, 0.5005] + [0.0] * (x.shape[1] - 2)))
    assert split(model, "stem", vectors(1)).warnings == ()


@pytest.mark.parametrize("half", ["stem", "out"])
@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_parameters_are_refused(kind: str, half: str) -> None:
    """Copies do not have them, so training would go on without a word."""
    model = Probabilities(nn.Identity())
    getattr(next(getattr(model, half).parameters()), kind)(lambda gradient: None)
    with pytest.raises(CutError, match=f"parameter '{half}.* has a gradient hook.*register_full_backward_hook"):
        split(model, "stem", vectors(1))
    plain = split(Probabilities(nn.Identity()), "stem", vectors(1))
    with pytest.raises(CutError, match="gradient hook") if half == "stem" else nullcontext():
        plain.with_clients({"south": Stem(model.stem)})


class Stem(nn.Module):
    def __init__(self, stem: nn.Module) -> None:
        super().__init__()
        self.stem = stem

    def forward(self, x: Tensor) -> Tensor:
        return self.stem(x)


def test_inputs_are_checked() -> None:
    with pytest.raises(CutError, match=r"shared='attention_musk' is not an input.*Did you mean 'attention_mask'"):
        split(bert(), "bert", text(1), shared=["attention_musk"])
    with pytest.raises(InputError, match=r"do not fit Sequential.forward"):
        split(mlp(), "1", {"pixels": vectors(1)})
    with pytest.raises(InputError, match="not str"):
        split(mlp(), "1", "pixels")
    with pytest.raises(InputError, match="at least one example"):
        split(mlp(), "1", [])
    with pytest.raises(InputError, match="differ in their inputs"):
        split(bert(), "bert", [text(1), {"input_ids": text(1)["input_ids"]}])
    with pytest.raises(DataError, match=r"shape \(0, 6\)"):
        split(mlp(), "1", vectors(0))
    with pytest.raises(CutError, match="does not run on 2 rows of the example in training mode"):
        split(mlp(), "1", torch.zeros(1, 5))


def test_examples_must_give_the_same_boundary() -> None:
    with pytest.raises(CutError, match="examples disagree"):
        split(ResNet(), "conv1", [images(1), torch.randn(1, 3, 12, 12)])


def test_models_that_cannot_be_traced_say_what_to_do() -> None:
    with pytest.raises(CutError, match=r"'0.weight' is not initialised yet; run the model once"):
        split(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), "0", vectors(1))
    model = mlp()
    model.cache = model(vectors(1))
    with pytest.raises(CutError, match="cannot be copied"):
        split(model, "1", vectors(1))


class Recomputed(Base):
    """The cut lies in a part that is computed without autograd and again when gradients are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = checkpoint(self.part, x, use_reentrant=True) if self.training else self.part(x)
        return self.out(self.mid(x))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_cut_that_stops_gradients_is_refused() -> None:
    with pytest.raises(CutError, match=r"gradients do not reach .*stem.*Nearest legal cuts: 'stem', 'mid'"):
        split(Recomputed(), "part.1", vectors(1))


# --- models that cannot be trained, or not kept -------------------------------------------------------------


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2)


class DoublesByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        x += 1
        return self.last(x)


@pytest.mark.parametrize("at", ["0", "3"])
def test_a_model_that_changes_what_its_gradient_needs(at: str) -> None:
    """Plain torch cannot train it either: that is said before anything is learned."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), Doubles(), nn.Linear(8, 8), nn.Linear(8, 3))
    with pytest.raises(CutError, match=r"cannot be trained, cut or not: what '1' returns is changed in place in .*'2'"):
        split(model, at=at, example=torch.zeros(1, 4))
    with pytest.raises(CutError, match="cannot be trained, cut or not: what 'act' returns"):
        split(DoublesByHand(), at="first", example=torch.zeros(1, 4))
    allowed = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    assert split(allowed, at="1", example=torch.zeros(1, 4)).at == "1"


class Remembers(nn.Module):
    """A running mean, kept as a buffer or as an attribute."""

    def __init__(self, how: str) -> None:
        super().__init__()
        if how == "attribute":
            self.mean = torch.zeros(8)
        else:
            self.register_buffer("mean", torch.zeros(8), persistent=how == "persistent")

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(dim=0)
        return x - self.mean


@pytest.mark.parametrize("how", ["attribute", "not persistent", "persistent"])
def test_state_that_no_state_dict_has_is_named(how: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), Remembers(how), nn.Linear(8, 3))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        cut = split(model, at="0", example=torch.ones(1, 4))
    told = [str(warning.message) for warning in found if "which no state dict has" in str(warning.message)]
    assert len(told) == (how != "persistent") and all("1.mean" in text for text in told)
    assert list(told) == [note for note in cut.warnings if "state dict" in note]
