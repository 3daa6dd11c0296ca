"""The paper's workloads: a data set divided over clients, a network, and suitable settings, in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import splitwiper.models
from splitwiper.config import ClientConfig, Config, ModelConfig, ServerConfig, from_dict
from splitwiper.data.text import encode
from splitwiper.errors import ConfigError, nearest
from splitwiper.wire import Label
from splitwiper_lab import models
from splitwiper_lab.datasets.divide import Divided, divided
from splitwiper_lab.datasets.published import Part

LENGTH, VOCABULARY = 64, 8192
"""Tokens per text and number of word ids, unless the model's arguments say otherwise."""


@dataclass(frozen=True)
class NetworkRecipe:
    """A network of `splitwiper.models` or `splitwiper_lab.models`: its kind of rows, and the settings of its halves."""

    takes: str
    """'images', 'texts' or 'tables'."""
    server: Mapping[str, Any] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    shared: tuple[str, ...] = ()


_MAPS = NetworkRecipe(
    "images",
    server={"batch": 1024, "lr": 0.4, "schedule": "onecycle"},
    client={"batch": 128, "lr": 0.05, "schedule": "onecycle"},
)
_ADAM = {"optimizer": "adamw", "lr": 5e-4, "weight_decay": 0.01, "clip": 1.0, "schedule": "onecycle"}
MODELS = {
    "vgg": _MAPS,
    "resnet18": _MAPS,
    "mini_bert": NetworkRecipe(
        "texts",
        server={**_ADAM, "batch": 256},
        client={**_ADAM, "batch": 128},
        shared=("attention_mask",),
    ),
    "digits_cnn": NetworkRecipe("images"),
    "mlp": NetworkRecipe("tables", server={"batch": 32}, client={"batch": 32, "standardise": True}),
}
"""Networks by name. Other settings are the defaults of `ServerConfig` and `ClientConfig`: 30 and 10 epochs of SGD."""
EPOCHS = {"cifar100": 50}
"""Epochs of the server half where the default of 30 is too low (Section 5.1)."""
MIRRORED = ("cifar10", "cifar100")
"""Sets whose images mean the same when they are mirrored: the server half is trained with `ShiftFlip`."""


@dataclass(frozen=True)
class Workload:
    """Data, network and settings of an experiment.

    ``Federation(path, config=work.config).learn(work.train, tasks=work.tasks)`` trains it, and
    ``unlearn(work.owner, classes=[work.forget])`` forgets the label it was divided for.

    Attributes:
        train: training rows by client, in the form that `Federation.learn` accepts.
        test: test rows by client, divided as the training rows are.
        tasks: the tasks of clients that have their own.
        config: all settings, including the model's.
        forget: the label to forget.
        owner: the client that holds that label.
        shortened: number of texts that exceeded the model's length and were truncated.
    """

    train: dict[str, Part] = field(repr=False)
    test: dict[str, Part] = field(repr=False)
    tasks: dict[str, str]
    config: Config
    forget: str | int
    owner: str
    shortened: int = 0

    @property
    def forgotten(self) -> Label:
        """The label to forget, with its task."""
        return Label(self.tasks.get(self.owner, ""), self.forget)


def workload(
    source: str = "cifar10",
    model: str = "vgg",
    *,
    partition: str = "overlapping",
    clients: int | Sequence[str] = 5,
    seed: int = 0,
    device: str = "cpu",
    folder: str | Path | None = None,
    rows: int | None = None,
    share: bool = False,
    forget: str | int | None = None,
    owner: str | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
    model_args: Mapping[str, Any] | None = None,
    cut: Mapping[str, Any] | None = None,
    tokenizer: str | Path | None = None,
) -> Workload:
    """Divide a data set over clients, and choose a network and settings that suit it.

    The data are those of `splitwiper_lab.datasets.divide.divided`, which says what its arguments mean. The seed, which
    determines the partition, is also the root seed of training.

    ``model`` is one of `MODELS`, or the import path of your own network, ``package.module:callable``; ``model_args``
    are its arguments, and both halves are trained on ``device``. Fields in ``server`` (`ServerConfig`), ``client``
    (`ClientConfig`) and ``cut`` (``at``, ``head``, ``inputs`` and ``shared`` of `ModelConfig`) override the network's
    recipe. ``tokenizer`` is a ``tokenizer.json`` for texts, fixed beforehand; by default, each word is hashed.

    Raises:
        ConfigError: there is no such network, it does not take such rows, or a setting is wrong.
        NotFoundError: the data set is unknown or missing.
        DataError: the data set is damaged, or cannot be divided like that.
    """
    network = _network(model)
    # before data is read, which may take long, so that wrong settings are reported at once
    serving, holding = _recipes(network, source, {"device": device}, server or {}, client or {})
    place: dict[str, Any] = {"forget": forget, "owner": owner, "share": share}
    found = divided(source, partition=partition, clients=clients, seed=seed, folder=folder, rows=rows, **place)
    args = dict(model_args or {})
    train, test, shortened = _encoded(found, args, tokenizer)
    tasks = {name: task for name, task in found.tasks.items() if task}
    chosen = _model(model, network, train, found, args, cut or {})
    config = Config(seed=seed, server=serving, client=holding, model=chosen)
    return Workload(train, test, tasks, config, found.forget, found.owner, shortened)


def _recipes(
    network: NetworkRecipe, source: str, both: Mapping[str, Any], server: Mapping[str, Any], client: Mapping[str, Any]
) -> tuple[ServerConfig, ClientConfig]:
    """Return the settings of both halves: the network's recipe, overridden by what the caller gives."""
    name = source.replace("-", "")
    epochs = {"epochs": EPOCHS[name]} if name in EPOCHS else {}
    serving = from_dict(ServerConfig, {**network.server, **epochs, **both, **server}, where="server.")
    holding = from_dict(ClientConfig, {**network.client, **both, "keys": "seeded", **client}, where="client.")
    if "keys" not in client and (holding.masking.is_on or holding.noise.is_on):
        holding = dataclasses.replace(holding, keys="random")  # a seeded key hides nothing
    return serving, holding


def known_name(model: str) -> str:
    """Return the short name of a network of ours, which may be given by its import path; any other path as it is."""
    short = model.removeprefix(f"{models.__name__}:").removeprefix(f"{splitwiper.models.__name__}:")
    return short if short in MODELS else model


def _network(model: str) -> NetworkRecipe:
    """Return what is known of a network: nothing where it is given by an import path."""
    module, _, short = model.rpartition(":")
    of_ours = module in (models.__name__, splitwiper.models.__name__)
    # a name in our modules that is no network there is a misspelling, and not a network of the caller's own
    if module and not (of_ours and not callable(getattr(models, short, None))):
        return NetworkRecipe("")
    if short not in MODELS or module:
        hint = nearest(short, MODELS) or f" Known are {', '.join(MODELS)}."
        where = f" in {module}" if module else ""
        raise ConfigError(
            f"there is no network {short!r}{where}.{hint} One of your own is named 'package.module:callable'."
        )
    return MODELS[short]


def _encoded(
    found: Divided, args: Mapping[str, Any], tokenizer: str | Path | None
) -> tuple[dict[str, Part], dict[str, Part], int]:
    """Encode texts as token ids; also return how many training and test texts were truncated."""
    sizes = {"length": args.get("length", LENGTH), "vocabulary": args.get("vocabulary", VOCABULARY)}
    shortened = 0
    parts: list[dict[str, Part]] = []
    for part in (found.train, found.test):
        encoded = dict(part)
        for name, (inputs, labels) in part.items():
            if isinstance(inputs, list):
                texts = encode(inputs, **sizes, tokenizer=tokenizer)
                encoded[name] = (texts.inputs, labels)
                shortened += texts.cut
        parts.append(encoded)
    return parts[0], parts[1], shortened


def _model(
    model: str,
    network: NetworkRecipe,
    train: Mapping[str, Part],
    found: Divided,
    args: Mapping[str, Any],
    cut: Mapping[str, Any],
) -> ModelConfig:
    """Return the network's settings for these rows; arguments given by the caller take precedence."""
    inputs = next(iter(train.values()))[0]
    named = inputs if isinstance(inputs, Mapping) else {"x": inputs}
    shape = next(iter(named.values())).shape[1:]
    kind = "texts" if isinstance(inputs, Mapping) else {3: "images", 1: "tables"}.get(len(shape), "")
    rows = {"inputs": {name: _described(array) for name, array in named.items()}}
    if not network.takes:
        return from_dict(ModelConfig, {"factory": model, "args": args, **rows, **cut}, where="model.")
    if kind != network.takes or (model == "digits_cnn" and shape != (1, 8, 8)):
        fitting = [name for name, other in MODELS.items() if other.takes == kind and name != "digits_cnn"]
        raise ConfigError(
            f"{model} does not take rows of {'+'.join(found.sources)} ({', '.join(rows['inputs'].values())}); "
            f"{' or '.join(fitting)} does."
        )
    own: dict[str, Any] = {"outputs": sum(map(len, found.labels.values()))}
    if kind == "tables":
        own["inputs"] = shape[0]
    elif kind == "texts":
        own |= {"vocabulary": VOCABULARY, "length": LENGTH}
    elif model != "digits_cnn":
        own |= {"augment": True} if set(found.sources) <= set(MIRRORED) else {}
        own |= {"channels": shape[0], "side": shape[1]} if shape != (3, 32, 32) else {}
    module = splitwiper.models if hasattr(splitwiper.models, model) else models
    values = {"factory": f"{module.__name__}:{model}", "args": {**own, **args}, "at": "stem", "head": "head", **rows}
    return from_dict(ModelConfig, {**values, "shared": network.shared, **cut}, where="model.")


def _described(array: Any) -> str:
    """Describe one row of an array in the form of `ModelConfig.inputs`.

    >>> import numpy as np
    >>> _described(np.zeros((7, 3, 32, 32), np.uint8))
    'uint8[3,32,32]'
    """
    return f"{array.dtype}[{','.join(map(str, array.shape[1:]))}]"
