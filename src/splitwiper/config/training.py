"""How halves are trained, and what only clients know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitwiper.config.hiding import Masking, Noise
from splitwiper.config.settings import ADDED_LATER, bounded, check_parts, choice, origins, part, part_args, typed
from splitwiper.errors import ConfigError
from splitwiper.numerics import NUMERICS

OPTIMIZERS = ("sgd", "adam", "adamw")
_LANE = 16
"""The smallest number of rows in a lane of a full batch."""
SCHEDULES = ("cosine", "constant", "onecycle")
LOSSES = ("cross_entropy",)
PRECISIONS = ("float32", "bfloat16")
CODECS = ("none", "float16", "bfloat16", "int8", "int4")
TRANSFERS = ("none", "zstd")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a half is trained. The same fields serve client and server."""

    epochs: int = 10
    """Passes over the rows."""
    batch: int = 64
    """Rows of one step, at most; batches differ in size by one row at most."""
    loss: str = part("splitwiper.losses", LOSSES, added_later=True)
    """'cross_entropy', or one of your own as ``package.module:name``."""
    loss_args: Mapping[str, Any] = part_args()
    """The settings of a loss of your own, by keyword."""
    optimizer: str = part("splitwiper.optimizers", OPTIMIZERS)
    """'sgd', 'adam' or 'adamw', or another class of optimisers as ``package.module:name``."""
    optimizer_args: Mapping[str, Any] = part_args()
    """The settings of another class of optimisers, besides `lr`; momentum and weight_decay belong in here then."""
    lr: float = 0.05
    """The highest learning rate."""
    momentum: float = 0.9
    """Nesterov's, of 'sgd'; the first beta of 'adam' and 'adamw'."""
    weight_decay: float = 5e-4
    """The L2 penalty on weights; 'adamw' applies it apart from the gradient."""
    schedule: str = part("splitwiper.schedules", SCHEDULES)
    """How the learning rate goes: 'constant', 'cosine' or 'onecycle', or one of your own as ``package.module:name``."""
    schedule_args: Mapping[str, Any] = part_args()
    """The settings of a schedule of your own, by keyword."""
    clip: float = 0.0
    """Largest gradient norm; 0 leaves gradients as they are."""
    precision: str = "float32"
    """What layers compute in. 'bfloat16' is for GPUs: weights, losses and sums stay in float32, all else is faster."""
    device: str = "cpu"
    """'cpu' or 'cuda'."""
    threads: int = 0
    """Threads torch computes with; 0 takes torch's setting, or the cores this process may use if they are fewer. The
    number is part of the fingerprint."""
    numerics: str = field(default="native", metadata=ADDED_LATER)
    """'native' computes as fast as this processor can, with bits of its own; 'portable' gives the same bits on every
    x86-64 processor with AVX2, on one thread of the CPU, so that others can verify on machines of theirs."""

    def __post_init__(self) -> None:
        typed(self)
        for name, low, high in (("epochs", 1, 10**6), ("batch", 1, 10**9), ("threads", 0, 1024)):
            bounded(self, name, low, high=high)
        bounded(self, "lr", 0, strict=True, high=1e38)
        bounded(self, "momentum", 0, high=1)
        bounded(self, "weight_decay", 0)
        bounded(self, "clip", 0)
        check_parts(self)
        if self.optimizer not in OPTIMIZERS:
            self._refuse_idle()
        choice(self, "precision", PRECISIONS)
        choice(self, "numerics", NUMERICS)
        if self.precision == "bfloat16" and not self.device.startswith("cuda"):
            raise ConfigError(
                "precision = 'bfloat16' is for a GPU (device = 'cuda'): CPUs are slower with it, or crash; drop it."
            )
        if self.numerics == "portable" and not (self.device == "cpu" and self.threads in (0, 1)):
            raise ConfigError(
                f"numerics = 'portable' computes on one thread of the CPU, not with device = {self.device!r} and "
                f"threads = {self.threads}; drop these two, or take numerics = 'native'."
            )

    def _refuse_idle(self) -> None:
        """Refuse settings that optimisers from outside are not given, as they may not have them."""
        for name in ("momentum", "weight_decay"):
            if getattr(self, name) != Recipe.__dataclass_fields__[name].default:
                raise ConfigError(
                    f"{name} is not for optimizer = {self.optimizer!r}: put it into optimizer_args, by the name it has "
                    "there."
                )


@dataclass(frozen=True, kw_only=True)
class ServerConfig(Recipe):
    """What the server knows: M epochs over the cache, and where re-training starts from."""

    epochs: int = 30
    """M, the passes over the cache."""
    lanes: int = field(default=1, metadata=ADDED_LATER)
    """The parts of a batch, a power of two, that are computed one by one and added in one tree. As many processes can
    share the work, or fewer, which changes no bit; the number of lanes does. Batch norm sees one lane at a time."""
    start: str = "initial"
    """'initial' re-trains from the federation's first weights and is exact; 'warm' continues from the present
    model, and is reported as not exact."""
    transcript: bool = field(default=False, metadata=ADDED_LATER)
    """Commits training to the whole state after every epoch and keeps those states, so that an auditor can recompute
    single epochs. It costs disk: epochs × (weights + optimiser state), and as much again while the next model is
    trained; the states are erased with the model. A server's own configuration file has it on unless it says
    otherwise; in one process it is off. A 'warm' training has no transcript."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choice(self, "start", ("initial", "warm"))
        bounded(self, "lanes", 1, high=1024)
        if self.lanes & (self.lanes - 1):
            raise ConfigError(f"lanes = {self.lanes} is not a power of two: give 1, 2, 4, 8 and so on.")
        if self.lanes > 1 and self.batch < _LANE * self.lanes:
            raise ConfigError(
                f"lanes = {self.lanes} with batch = {self.batch} leaves fewer than {_LANE} rows to a lane: raise "
                "batch, or lower lanes."
            )


@dataclass(frozen=True, kw_only=True)
class ClientConfig(Recipe):
    """What only clients know: N epochs of pre-training, slices, and how the local head is built."""

    epochs: int = 10
    """N, the passes of pre-training over the client's rows."""
    init: str = "shared"
    """'shared': every client starts from the federation's first weights; 'independent': from its own stream."""
    slices: int = 1
    """Parts of the local data with a checkpoint after each; more slices forget faster and learn slower."""
    slice_epochs: int = 0
    """Epochs over the slices so far, after each slice is added; 0 takes round(2·epochs / (slices + 1)), which
    costs about as many row passes as `epochs` over everything."""
    head_width: int = 128
    """Hidden width of the throw-away local head; 0 makes it linear."""
    standardise: bool = False
    """Shift and scale each input feature by the mean and deviation of the client's own surviving rows."""
    codec: str = part("splitwiper.codecs", CODECS)
    """How activations are written down: 'none' as computed, 'float16', 'bfloat16', 'int8' or 'int4' with fewer bytes,
    or a codec of your own as ``package.module:name``. What a codec fits is fitted to the client's surviving rows."""
    codec_args: Mapping[str, Any] = part_args()
    """The settings of a codec of your own, by keyword."""
    transfer: str = "none"
    """'zstd' compresses uploads on their way, over a network if the server reads it; what arrives and is stored is the
    same file."""
    keys: str = "random"
    """'random': each client's key comes from the operating system; 'seeded': from the root seed and its name, so that
    an experiment can be repeated bit for bit. A seeded key is not secret: anyone who knows the seed can compute it."""
    labels: tuple[str | int, ...] = ()
    """The closed set of labels rows may carry; empty allows any."""
    masking: Masking = field(default_factory=Masking)
    """How labels are hidden from the server."""
    noise: Noise = field(default_factory=Noise)
    """Noise on what is sent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choice(self, "init", ("shared", "independent"))
        choice(self, "keys", ("random", "seeded"))
        choice(self, "transfer", TRANSFERS)
        bounded(self, "slices", 1, high=10_000)
        bounded(self, "slice_epochs", 0, high=10**6)
        bounded(self, "head_width", 0, high=10**5)
        if len(set(self.labels)) != len(self.labels):
            raise ConfigError(f"labels = {list(self.labels)} names a label twice; name each once.")

    @property
    def encoding(self) -> str:
        """What shards record of the codec: its name, or the origin of one from outside."""
        return codec_record(self)

    @property
    def stage_epochs(self) -> int:
        """Epochs of one stage of the slice schedule."""
        if self.slices == 1:
            return self.slice_epochs or self.epochs
        return self.slice_epochs or max(1, round(2 * self.epochs / (self.slices + 1)))


def codec_record(settings: Any) -> str:
    """Return what shards record of the codec that some settings name, with its code as it is now."""
    return str(origins(settings).get("codec", settings.codec))
