"""What `portable.py` computes: functions, five small nets and three federations that learn and forget.

It needs torch, NumPy and the package's source; the federations need safetensors as well. Data comes from a hash, and so
is the same everywhere.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Nets = dict[str, tuple[nn.Module, tuple[int, ...]]]


class Recurrent(nn.Module):
    """A GRU and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.GRU(8, 16, batch_first=True)
        self.o = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Logits from the last state."""
        logits: Tensor = self.o(self.g(x)[0][:, -1])
        return logits


class Attention(nn.Module):
    """A layer of a transformer and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.e = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.o = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Logits from the mean over places."""
        logits: Tensor = self.o(self.e(x).mean(1))
        return logits


def digest(*tensors: Tensor) -> str:
    """Sixteen hexadecimal digits of a hash over the tensors' bytes."""
    raw = b"".join(t.detach().contiguous().numpy().tobytes() for t in tensors)
    return hashlib.sha256(raw).hexdigest()[:16]


def drawn(name: str, *shape: int) -> Tensor:
    """Numbers between −1 and 1 that follow from a name."""
    count = int(np.prod(shape))
    words = np.frombuffer(hashlib.shake_256(name.encode()).digest(4 * count), "<i4")
    return torch.from_numpy((words.astype(np.float64) / 2**31).astype(np.float32)).reshape(shape)


# --- functions and nets --------------------------------------------------------------------------------------


def functions() -> dict[str, str]:
    """Digest functions one by one: if nets differ, these show which part of torch causes it."""
    x, w, maps = drawn("x", 512, 256) * 4, drawn("w", 256, 96), drawn("maps", 32, 8, 16, 16)
    kernel, wide = drawn("kernel", 16, 8, 3, 3), x.double()
    generator = torch.Generator().manual_seed(1)
    named: dict[str, Callable[[Tensor], Tensor]] = {
        **{name: getattr(torch, name) for name in ("exp", "tanh", "erf", "sigmoid", "cos", "expm1")},
        **{name: getattr(nn.functional, name) for name in ("gelu", "silu", "softplus")},
    }
    out = {name: digest(call(x), call(wide)) for name, call in named.items()}
    out |= {
        "square roots": digest(x.abs().sqrt(), x.abs().rsqrt(), wide.abs().rsqrt()),
        "log": digest(x.abs().log(), wide.abs().log()),
        "pow": digest(x.abs() ** 1.7, wide.abs() ** 1.7),
        "atan2": digest(torch.atan2(x[0], x[1]), torch.atan2(wide[0], wide[1])),
        "softmax": digest(x.softmax(1), wide.softmax(1), x.log_softmax(0)),
        "sums": digest(x.sum(), x.mean(0), x.var(1), x.norm(), x.cumsum(0), wide.sum(1)),
        "matrix product": digest(x @ w, wide @ w.double(), x.T @ x),
        "convolution": digest(nn.functional.conv2d(maps, kernel, padding=1), nn.functional.conv2d(maps[:3], kernel)),
        "pooling": digest(nn.functional.avg_pool2d(maps, 3), nn.functional.adaptive_avg_pool2d(maps, 5)),
        "normal deviates": digest(torch.randn(1000, generator=generator), torch.randn(7, generator=generator)),
        "dropout": digest(torch.empty(1000).bernoulli_(0.3, generator=generator)),
    }
    return out


def nets() -> Nets:
    """The nets, and the shape of a row of each."""
    maps = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    more = (nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5))
    plain = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 5))
    return {
        "mlp": (plain, (30,)),
        "tanh and softmax": (
            nn.Sequential(nn.Linear(30, 64), nn.Tanh(), nn.Softmax(1), nn.Linear(64, 5)),
            (30,),
        ),
        "cnn with batch norm": (nn.Sequential(*maps, *more), (3, 16, 16)),
        "gru": (Recurrent(), (12, 8)),
        "attention": (Attention(), (10, 16)),
    }


def trained() -> dict[str, str]:
    """Digests of all nets after 40 steps of SGD, and 40 more of AdamW."""
    out = {}
    for name, (net, shape) in nets().items():
        random = np.random.default_rng(7)
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(torch.from_numpy((random.random(p.shape) - 0.5).astype(np.float32) * 0.4))
        x = torch.from_numpy((random.random((512, *shape)) - 0.5).astype(np.float32))
        y = torch.from_numpy(random.integers(0, 5, 512))
        sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        for kind, optimizer in (("sgd", sgd), ("adamw", torch.optim.AdamW(net.parameters(), lr=1e-3))):
            for step in range(40):
                at = step * 64 % 512
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x[at : at + 64]), y[at : at + 64]).backward()
                optimizer.step()
            out[f"{name}, {kind}"] = digest(*net.state_dict().values())
    return out


def seconds() -> dict[str, float]:
    """Processor time of a step of SGD for nets of a more usual size, the fastest of six rounds."""
    wide = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 5))
    maps = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    maps += [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5)]
    sized: Nets = {"mlp": (wide, (784,)), "cnn with batch norm": (nn.Sequential(*maps), (3, 32, 32))}
    sized |= {name: nets()[name] for name in ("gru", "attention")}
    out = {}
    for name, (net, shape) in sized.items():
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        x, y = drawn(name, 128, *shape), torch.arange(128) % 5
        rounds = []
        for _ in range(7):  # the first warms up
            start = time.process_time()  # one thread: others on the machine do not count
            for _ in range(5):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x), y).backward()
                optimizer.step()
            rounds.append((time.process_time() - start) / 5)
        out[name] = min(rounds[1:])
    return out


# --- federations ---------------------------------------------------------------------------------------------


class Split(nn.Module):
    """A stem, which clients hold, a body and a head."""

    def __init__(self, stem: nn.Module, body: nn.Module, width: int) -> None:
        super().__init__()
        self.stem, self.body, self.head = stem, body, nn.Linear(width, 5)
        with torch.no_grad():
            for name, p in self.named_parameters():
                p.copy_(drawn(f"first {name}", *p.shape) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.body(self.stem(x)))
        return logits


class Last(nn.Module):
    """A GRU's last state."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.GRU(12, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The state after the last place."""
        last: Tensor = self.g(x)[0][:, -1]
        return last


class Mean(nn.Module):
    """A layer of a transformer, and the mean over places."""

    def __init__(self) -> None:
        super().__init__()
        self.e = nn.TransformerEncoderLayer(12, 2, 24, dropout=0.1, activation="gelu", batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The mean."""
        return torch.as_tensor(self.e(x).mean(1))


def federations(numerics: str) -> Iterator[tuple[str, nn.Module, tuple[int, ...], Any]]:
    """Networks that are cut behind their stem, one row's shape, and settings."""
    from splitwiper import ClientConfig, Config, ServerConfig

    stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    body = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten())
    both: dict[str, Any] = {"numerics": numerics, "batch": 32}
    more: dict[str, Any] = {"keys": "seeded", "slices": 2, "epochs": 2, **both}
    sgd = Config(seed=3, server=ServerConfig(epochs=4, **both), client=ClientConfig(**more))
    yield "cnn with batch norm, sgd", Split(stem, body, 144), (1, 8, 8), sgd
    adam: dict[str, Any] = {"optimizer": "adamw", "lr": 2e-3, **both}
    for name, module, codec in (("gru", Last(), "int8"), ("attention", Mean(), "int4")):
        client = ClientConfig(**{**more, **adam, "codec": codec, "standardise": True})
        config = Config(seed=3, server=ServerConfig(epochs=4, schedule="onecycle", clip=1.0, **adam), client=client)
        yield f"{name}, adamw, {codec}", Split(nn.Linear(8, 12), module, 16 if name == "gru" else 12), (8, 8), config


def federated(numerics: str = "portable") -> dict[str, str]:
    """Digests of models, client halves and shards after learning, and after forgetting."""
    from splitwiper import Federation, split

    out: dict[str, str] = {}
    for name, model, shape, config in federations(numerics):
        data = {}
        for client in ("north", "south"):
            labels = np.arange(120) % 5
            rows = drawn(f"{client} rows", 120, *shape) + drawn("centres", 5, *shape)[torch.from_numpy(labels)]
            data[client] = (rows.numpy(), labels)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # batch norm in the client half is meant
            halves = split(model, at="stem", example=torch.from_numpy(data["north"][0][:1]), head="head")
            run = Federation(Path(folder) / "run", halves, config)
            run.learn(data)
            out |= {f"{name}, learned: {what}": value for what, value in _state(run)}
            run.unlearn("north", classes=[3])
            out |= {f"{name}, forgot: {what}": value for what, value in _state(run)}
    return out


def _state(run: Any) -> Iterator[tuple[str, str]]:
    yield "model", run._server.store.model().digest[:16]
    for record in run._server.store.shards():
        yield f"shard of {record.client}", record.digest[:16]
        yield f"half of {record.client}", run._client(record.client).store.half()[0].digest[:16]
