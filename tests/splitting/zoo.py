"""Models of many shapes, small enough to cut in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def vgg() -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), nn.MaxPool2d(2)]

    return nn.Sequential(
        *block(3, 8),
        *block(8, 12),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(48, 16),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(16, 5),
    )


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.short = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 8), Block(8, 8))
        self.layer2 = nn.Sequential(Block(8, 12, 2), Block(12, 12))
        self.fc = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        return self.fc(x.mean((2, 3)))


class Branches(nn.Module):
    """Two branches after the stem, a relu module used on both sides, dropout in the model's own code."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.act = nn.ReLU()
        self.mid = nn.Linear(8, 8)
        self.left = nn.Linear(8, 4)
        self.right = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.4))
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.act(self.stem(x)), 0.3, self.training)
        x = self.act(self.mid(x))
        x = torch.cat([self.act(self.left(x)), self.right(x)], 1)
        return self.out(F.dropout(x, 0.3, self.training))


class TupleStem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 4)
        self.b = nn.Linear(6, 5)
        self.c = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self.a(x), [self.b(x), self.c(x)]


class TupleBoundary(nn.Module):
    """The third output is never used, so it must not cross."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = TupleStem()
        self.out = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, (b, _) = self.stem(x)
        return self.out(torch.cat([a, b], 1))


class DictStem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.a(x)
        return {"low": y, "high": {"square": y * y}, "name": "stem", "unused": y + 1}


class DictBoundary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = DictStem()
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        found = self.stem(x)
        return {"logits": self.out(found["low"] + found["high"]["square"]), "extra": found["low"]}


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 7, num_layers=2, batch_first=True)
        self.out = nn.Sequential(nn.Linear(7, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, tokens: Tensor) -> Tensor:
        _, (h, _) = self.lstm(self.embed(tokens))
        return self.out(h[-1])


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(5, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.encoder(self.project(x)).mean(1))


class Vit(nn.Module):
    """Parameters of its own, changed in place before the blocks, and a constant buffer used on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.cls = nn.Parameter(torch.randn(1, 1, 8))
        self.position = nn.Parameter(torch.randn(1, 5, 8))
        self.register_buffer("scale", torch.tensor(0.5))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        tokens *= self.scale
        x = torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1)
        x += self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0] * self.scale)


class Gated(nn.Module):
    """Branches on its data before the cut."""

    def __init__(self) -> None:
        super().__init__()
        self.positive = nn.Linear(6, 8)
        self.negative = nn.Linear(6, 8)
        self.mid = nn.Linear(8, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.positive(x) if x.sum() > 0 else self.negative(x)
        return self.out(F.relu(self.mid(x)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def bert(labels: int = 3) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
        num_labels=labels,
    )
    model: nn.Module = BertForSequenceClassification(config)
    return model


def text(rows: int) -> dict[str, Tensor]:
    mask = torch.ones(rows, 7, dtype=torch.long)
    mask[::2, 4:] = 0
    return {"input_ids": torch.randint(0, 30, (rows, 7)), "attention_mask": mask}


def images(rows: int) -> Tensor:
    return torch.randn(rows, 3, 8, 8)


def vectors(rows: int) -> Tensor:
    return torch.randn(rows, 6)


@dataclass(frozen=True)
class Case:
    """A model, a legal cut of it, and inputs with any number of rows."""

    factory: Callable[[], nn.Module]
    at: str
    inputs: Callable[[int], Any]
    boundary: tuple[str, ...] = ("activation",)
    shared: tuple[str, ...] = ()
    allow: bool = False

    def __str__(self) -> str:
        return f"{self.factory.__name__}-{self.at}"


def inputs_of_lstm(rows: int) -> Tensor:
    return torch.randint(0, 20, (rows, 5))


def sequences(rows: int) -> Tensor:
    return torch.randn(rows, 4, 5)


MASKED = ("activation", "attention_mask")
CASES = (
    Case(vgg, "0", images),
    Case(vgg, "2", images),
    Case(vgg, "5", images),
    Case(vgg, "8", images),
    Case(ResNet, "conv1", images),
    Case(ResNet, "layer1", images),
    Case(ResNet, "layer1.0", images),
    Case(ResNet, "layer2.0", images),
    Case(Branches, "stem", vectors),
    Case(Branches, "mid", vectors),
    Case(TupleBoundary, "stem", vectors, ("activation.0", "activation.1.0")),
    Case(DictBoundary, "stem", vectors, ("activation.low", "activation.high.square")),
    Case(Lstm, "lstm", inputs_of_lstm, ("activation.1.0",)),
    Case(Lstm, "embed", inputs_of_lstm),
    Case(Transformer, "project", sequences),
    Case(Transformer, "encoder.layers.0", sequences),
    Case(Transformer, "encoder", sequences),
    Case(Vit, "patch", images),
    Case(Vit, "blocks.0", images),
    Case(mlp, "1", vectors),
    Case(bert, "bert.embeddings", text, MASKED, ("attention_mask",)),
    Case(bert, "bert.encoder.layer.0", text, MASKED, ("attention_mask",)),
    Case(bert, "bert", text, ("activation.pooler_output",)),
    Case(Gated, "mid", vectors, allow=True),
)
