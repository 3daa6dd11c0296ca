"""A client half with its throw-away local head, for pre-training (Algorithm 1, lines 4 to 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from splitwiper.data.rows import pack
from splitwiper.errors import DataError
from splitwiper.seeding import Stream
from splitwiper.splitting import call_with
from splitwiper.training.output_layer import linear, output_layer_for, rows_of
from splitwiper.wire import Label

_SIDE = 8  # feature maps are pooled to at most this many pixels a side


class Normaliser(nn.Module):
    """Shift and scale of every float input, fitted to the client's surviving rows; without statistics, the identity."""

    def __init__(self, statistics: Mapping[str, tuple[Tensor, ...]]) -> None:
        super().__init__()
        self._names = tuple(statistics)
        for number, (mean, scale) in enumerate(statistics.values()):
            self.register_buffer(f"mean{number}", mean)
            self.register_buffer(f"scale{number}", scale)

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the inputs by name, normalised."""
        out = dict(inputs)
        for number, name in enumerate(self._names):
            out[name] = (out[name] - self.get_buffer(f"mean{number}")) / self.get_buffer(f"scale{number}")
        return out


class Embedder(nn.Module):
    """The client half applied to rows as stored: normalise, call the half, return the tensors that cross the cut."""

    def __init__(self, half: nn.Module, call: str, normaliser: Normaliser) -> None:
        super().__init__()
        self.body = half
        self.normaliser = normaliser
        self._call = call

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the cut's tensors by name."""
        out: dict[str, Tensor] = call_with(self.body, pack(self.normaliser(inputs), self._call))
        return out


class LocalNet(nn.Module):
    """An embedder and a local head over the labels the client holds.

    The head's inputs have the width and dtype of ``like`` (… × features). It continues the head of ``before``, the net
    of the stage before.
    """

    def __init__(
        self,
        embedder: Embedder,
        labels: Sequence[Label],
        *,
        like: Tensor,
        width: int,
        seed: int,
        client: str,
        before: LocalNet | None = None,
    ) -> None:
        super().__init__()
        self.embedder = embedder
        self.labels = tuple(labels)
        features, dtype = like.shape[1], like.dtype
        self.hidden: nn.Module
        if before is not None:
            self.hidden = before.hidden
        else:
            drawn = Stream(seed, "local-head", client).generator()
            self.hidden = nn.Sequential(linear(features, width, drawn, dtype), nn.ReLU()) if width else nn.Identity()
        self.out: nn.Linear = output_layer_for(
            labels,
            inputs=width or features,
            seed=seed,
            purpose=f"local-head/{client}",
            dtype=dtype,
            known=rows_of(before.out, before.labels) if before else None,
        )

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return logits over the client's labels."""
        logits: Tensor = self.out(self.hidden(features_of(self.embedder(inputs))))
        return logits


def features_of(boundary: Mapping[str, Tensor]) -> Tensor:
    """Flatten the cut's float tensors to one feature vector per row; maps are pooled and sequences averaged."""
    parts = []
    for tensor in boundary.values():
        if not tensor.is_floating_point():
            continue
        if tensor.ndim == 4:  # rows × channels × height × width
            kernel = [max(1, -(-side // _SIDE)) for side in tensor.shape[2:]]
            tensor = functional.avg_pool2d(tensor, kernel, ceil_mode=True)
        elif tensor.ndim == 3:  # rows × positions × channels
            tensor = tensor.mean(dim=1)
        parts.append(tensor.reshape(len(tensor), -1))
    if not parts:
        raise DataError("nothing but integers crosses the cut, which no client half can be trained by; cut elsewhere.")
    return torch.cat(parts, dim=1)
