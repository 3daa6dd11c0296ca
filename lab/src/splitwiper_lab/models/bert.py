"""A small BERT for texts (Appendix, AG-News): Hugging Face's layers, trained from scratch."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from splitwiper.errors import ConfigError, DataError


class NoDropout(nn.Identity):
    """Replaces a dropout layer; it has the rate ``p`` that attention reads."""

    p = 0.0


class TextStem(nn.Module):
    """The client half: embeddings and the first block, without dropout, which belongs behind the cut.

    Outputs at padding are zeros, so that means over a text do not depend on them.
    """

    def __init__(self, embeddings: nn.Module, block: nn.Module, *, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embeddings, self.block = embeddings, block
        self._vocabulary, self._length = vocabulary, length
        # random numbers before the cut would give a row other activations each time; they are sent only once
        for owner in list(self.modules()):
            for name, module in owner.named_children():
                if isinstance(module, nn.Dropout):
                    setattr(owner, name, NoDropout())

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return one vector per token: ``[n, length, hidden]``."""
        self._check(input_ids, attention_mask)
        hidden = self.embeddings(input_ids=input_ids)
        hidden = _first(self.block(hidden, _additive(attention_mask, hidden)))
        return hidden * _real(attention_mask, hidden)

    def _check(self, ids: Tensor, mask: Tensor) -> None:
        if ids.ndim != 2 or ids.shape != mask.shape:
            raise DataError(
                f"input_ids have shape {list(ids.shape)} and attention_mask {list(mask.shape)}; both must be "
                "[rows, tokens]"
            )
        if ids.shape[1] > self._length:
            raise DataError(
                f"texts have {ids.shape[1]} tokens, the model takes {self._length}: encode them with "
                f"length={self._length}, or build the model with a larger length"
            )
        # Reading values waits for the device, so check on the CPU only; rows are probed there before they are stored.
        if ids.device.type == "cpu" and ids.numel():
            low, high = int(ids.min()), int(ids.max())
            if low < 0 or high >= self._vocabulary:
                raise DataError(
                    f"token id {low if low < 0 else high} is outside the model's vocabulary of {self._vocabulary}: "
                    f"encode texts with vocabulary={self._vocabulary}, or build the model with a larger one"
                )


class TextBody(nn.Module):
    """The server half without its head: the other blocks, and the mean over a text's tokens."""

    def __init__(self, blocks: list[nn.Module], *, dropout: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return one vector per text: ``[n, hidden]``."""
        hidden = self.dropout(hidden)
        mask, real = _additive(attention_mask, hidden), _real(attention_mask, hidden)
        for block in self.blocks:
            hidden = _first(block(hidden, mask))
        pooled: Tensor = self.dropout((hidden * real).sum(dim=1) / real.sum(dim=1).clamp(min=1))
        return pooled


class MiniBert(nn.Module):
    """Takes token ids and a mask, returns logits: cut it after ``stem``, with ``shared=["attention_mask"]``."""

    def __init__(self, stem: TextStem, body: TextBody, head: nn.Linear) -> None:
        super().__init__()
        self.stem, self.body, self.head = stem, body, head

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits. The mask may have any type: non-zero is a token, zero is padding; ``bool`` is smallest."""
        logits: Tensor = self.head(self.body(self.stem(input_ids, attention_mask), attention_mask))
        return logits


def mini_bert(
    outputs: int = 4,
    *,
    vocabulary: int = 8192,
    length: int = 64,
    hidden: int = 128,
    layers: int = 4,
    heads: int = 4,
    dropout: float = 0.1,
) -> MiniBert:
    """Build a BERT from scratch: cut it after ``stem``, its embeddings and first block. Needs ``splitwiper[text]``.

    Nothing is downloaded. Attention is computed step by step (``eager``), by the same operations everywhere, and no
    code reads values on a GPU, so that training can be captured in a CUDA graph. A federation makes its own head, with
    one output per label present, instead of the one with ``outputs`` classes.

    Token ids are below ``vocabulary``, a text has at most ``length`` tokens, and ``length × hidden`` numbers cross the
    cut. ``layers`` includes the client's block; ``heads`` must divide ``hidden``; ``dropout`` is behind the cut.

    Raises:
        ConfigError: transformers is missing, or the sizes do not fit.
    """
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as problem:
        raise ConfigError(
            f"mini_bert needs the package transformers ({problem}): pip install 'splitwiper[text]'."
        ) from problem
    if layers < 2 or heads < 1 or hidden % heads:
        raise ConfigError(
            f"layers = {layers}, hidden = {hidden}, heads = {heads}: there must be two layers or more, and hidden a "
            "multiple of heads."
        )
    sizes = {"vocab_size": vocabulary, "max_position_embeddings": length, "hidden_size": hidden}
    blocks = {"num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": 4 * hidden}
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = transformers.BertConfig(**sizes, **blocks, **drops, attn_implementation="eager")
    base = transformers.BertModel(config, add_pooling_layer=False)
    first, *rest = base.encoder.layer
    stem = TextStem(base.embeddings, first, vocabulary=vocabulary, length=length)
    return MiniBert(stem, TextBody(rest, dropout=dropout), nn.Linear(hidden, outputs)).train()


def _first(output: Any) -> Tensor:
    """Return the hidden states from a block's output, which is a tuple in older releases."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def _real(mask: Tensor, like: Tensor) -> Tensor:
    """Return one at tokens, and zero at padding: ``[n, length, 1]``."""
    return (mask != 0).to(like.dtype)[..., None]


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """Return the term added to attention scores: zero, or the lowest number at padding; ``[n, 1, 1, length]``."""
    return (mask == 0).to(like.dtype)[:, None, None, :] * torch.finfo(like.dtype).min
