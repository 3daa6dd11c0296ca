"""Check that a model can be trained at all, by one backward pass before it is cut."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from splitwiper.errors import CutError
from splitwiper.splitting.trace import devices_of, isolated
from splitwiper.splitting.trees import Call, tensors, with_rows

_ROWS = 2
_IN_PLACE = re.compile(r"in-?place operation")


class _Versions:
    """Detects which module's output is changed in place, and after which module's return this shows."""

    def __init__(self, model: nn.Module) -> None:
        self._seen: list[tuple[str, Tensor, int, str]] = []  # module, output, its version, how it was computed
        self.changes: list[tuple[str, str, str]] = []  # changed output's module, how it was computed, next to return
        for name, module in model.named_modules():
            module.register_forward_hook(partial(self._returned, name))

    def _returned(self, name: str, _module: nn.Module, _given: Any, output: Any) -> None:
        for at, (earlier, tensor, version, how) in enumerate(self._seen):
            if tensor._version != version:
                self.changes.append((earlier, how, name))
                self._seen[at] = (earlier, tensor, tensor._version, how)
        for tensor in tensors(output):
            self._seen.append((name, tensor, tensor._version, type(tensor.grad_fn).__name__))


def check_trainable(model: nn.Module, calls: Sequence[Call]) -> None:
    """Try a backward pass through the whole model in training mode.

    Raises:
        CutError: the model changes an activation in place that its gradient needs: torch cannot train it, cut or not.
    """
    for call in calls:
        probe = copy.deepcopy(model).train()
        versions = _Versions(probe)
        args, kwargs = with_rows(call, _ROWS)
        with isolated(0, devices_of(probe, call)):
            outputs = tensors(probe(*args, **kwargs))
            try:
                for output in outputs:
                    if output.requires_grad:
                        output.float().sum().backward(retain_graph=True)
            except RuntimeError as problem:
                if _IN_PLACE.search(str(problem)):
                    raise CutError(_explained(versions, str(problem))) from problem


def check_hooks(model: nn.Module) -> None:
    """Refuse hooks on parameters: halves are copied for every training, and copies of a tensor lose its hooks.

    Raises:
        CutError: a parameter has a hook; the message names it.
    """
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise CutError(
                f"parameter {name!r} has a gradient hook, which a copy of it would not have: training would go on "
                "without it. Scale gradients in a module's hook (register_full_backward_hook), or in its forward"
            )


def _explained(versions: _Versions, problem: str) -> str:
    # torch names the operation whose output was changed, such as ReluBackward0
    named = [change for change in versions.changes if re.search(rf"\b{change[1]}\b", problem)]
    guilty = named or versions.changes
    where = "an activation is changed in place, though its gradient needs it"
    if guilty:
        whose, _, then = guilty[-1]
        where = f"what {whose or 'the model'!r} returns is changed in place in or before {then or 'the model'!r}"
        where += ", though its gradient needs it"
    return (
        f"the model cannot be trained, cut or not: {where}. Change a copy instead, say without inplace=True ({problem})"
    )
