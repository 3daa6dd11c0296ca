"""Find the output layer of a model."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from splitwiper.splitting.trace import Seen, Trace
from splitwiper.splitting.trees import leaves


def find_head(trace: Trace, modules: Mapping[str, nn.Module]) -> str | None:
    """The linear layer that makes the output, or the last one whose result reaches it.

    Returns:
        Its name; None when there is none, or when several make parts of the output.
    """
    outputs = [(path, leaf.key) for path, leaf in leaves(trace.output) if isinstance(leaf, Seen)]
    logits = [key for path, key in outputs if path[-1:] == ("logits",)]
    targets = set(logits or [key for _, key in outputs])
    layers = [
        (call.name, call.output.key)
        for call in trace.calls
        if isinstance(modules[call.name], nn.Linear) and isinstance(call.output, Seen)
    ]
    direct = {name for name, key in layers if key in targets}
    if direct:
        return direct.pop() if len(direct) == 1 else None
    for op in reversed(trace.ops):
        if op.writes & targets:
            targets |= op.reads
    reaching = [name for name, key in layers if key in targets]
    return reaching[-1] if reaching else None
