"""Find the output layer of a model, and make another one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from splitwiper.splitting.trace import Trace, TracedTensor
from splitwiper.splitting.trees import leaves

_SQUASHING = {"_softmax": "softmax", "softmax": "softmax", "sigmoid": "sigmoid", "hardsigmoid": "sigmoid"}
"""Operations that never return raw scores. After a logarithm of softmax, softmax changes nothing."""


def _outputs(trace: Trace) -> set[int]:
    """Return the storages of the model's logits: of its outputs named so, or of all its outputs."""
    outputs, logits = set(), set()
    for path, leaf in leaves(trace.output):
        if isinstance(leaf, TracedTensor):
            outputs.add(leaf.key)
            if path[-1:] == ("logits",):
                logits.add(leaf.key)
    return logits or outputs


def squashing(trace: Trace, modules: Mapping[str, nn.Module]) -> set[tuple[str, str]]:
    """Return the softmax or sigmoid that the model ends in, if any: its kind, and the module that computes it."""
    targets = _outputs(trace)
    endings = set()
    for op in trace.ops:
        kind = _SQUASHING.get(op.name.removeprefix("aten::").rstrip("_"))
        if kind and op.writes & targets:
            name = trace.module_of(op.frame)
            endings.add((kind, f"module {name!r}" if name else f"in {type(modules['']).__name__}.forward"))
    return endings


def find_output_layer(trace: Trace, modules: Mapping[str, nn.Module]) -> str | None:
    """Find the linear layer that computes the output, or the last one whose result reaches it.

    Returns:
        Its name; None if there is none, or if several compute parts of the output.
    """
    targets = _outputs(trace)
    layers = []
    for call in trace.calls:
        if isinstance(modules[call.name], nn.Linear) and isinstance(call.output, TracedTensor):
            layers.append((call.name, call.output.key))
    direct = {name for name, key in layers if key in targets}
    if direct:
        return direct.pop() if len(direct) == 1 else None
    # no layer's output is returned as it is: follow the operations back from the output
    for op in reversed(trace.ops):
        if op.writes & targets:
            targets |= op.reads
    reaching = [name for name, key in layers if key in targets]
    return reaching[-1] if reaching else None


def empty_linear(inputs: int, outputs: int, *, bias: bool, dtype: torch.dtype) -> nn.Linear:
    """Return a linear layer without values; no random generator is used."""
    return nn.Linear(inputs, outputs, bias=bias, device="meta", dtype=dtype).to_empty(device="cpu")
