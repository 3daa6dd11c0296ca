"""Proof by running: the two halves together must be the model, bit for bit, whatever the ghosts hold."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from splitwiper.errors import CutError
from splitwiper.splitting.halves import ClientHalf, ServerHalf
from splitwiper.splitting.trace import devices_of, isolated
from splitwiper.splitting.trees import Call, leaves, map_leaves, same, tensors, with_rows

# Training?, rows, the value in the ghosts. Each value is tried in both modes, and no number of rows is special.
_RUNS = (
    (False, 1, 0.0),
    (False, 2, 1.0),
    (False, 3, float("nan")),
    (True, 2, 0.0),
    (True, 3, 1.0),
    (True, 2, float("nan")),
)


class Reference:
    """The outputs of the whole model, to compare halves with."""

    def __init__(self, model: nn.Module, calls: Sequence[Call]) -> None:
        self._devices = devices_of(model, calls[0])
        self._runs: list[tuple[Call, bool, int, float, Any]] = []
        whole = copy.deepcopy(model)
        for call in calls:
            for training, rows, fill in _RUNS:
                whole.train(training)
                try:
                    result = self._once(whole, dict(whole.named_parameters()), call, training, rows)
                except Exception:  # noqa: S112
                    continue  # a model that cannot process a single row is not worse once it is cut
                self._runs.append((call, training, rows, fill, result))
        self._buffers = dict(whole.named_buffers())

    def _once(
        self, run: Callable[..., Any], parameters: Mapping[str, Tensor], call: Call, training: bool, rows: int
    ) -> Any:
        """Return every leaf of the output, and the parameters that gradients flow to."""
        args, kwargs = with_rows(call, rows)
        with isolated(rows, self._devices), torch.set_grad_enabled(training):
            output = run(*args, **kwargs)
        names = {id(parameter): name for name, parameter in parameters.items()}
        reached = {names.get(id(source)) for source in _sources(output)} - {None}
        return leaves(map_leaves(lambda _, leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, output)), reached

    def chances(self) -> bool:
        """Return whether the model's outputs were probabilities in every run: not negative, and 1 in sum."""
        for *_, (output, _) in self._runs:
            if not _are_chances(output):
                return False
        return bool(self._runs)

    def check(self, client: ClientHalf, server: ServerHalf) -> None:
        """Run the halves, which changes their buffers, and compare with the model.

        Raises:
            CutError: They fail, or differ from the model.
        """
        parameters = dict(client.named_parameters()) | dict(server.named_parameters())
        for call, training, rows, fill, (expected, reached) in self._runs:
            client.train(training)
            server.train(training)

            def halves(*args: Any, fill: float = fill, **kwargs: Any) -> Any:
                return server._replay(client._embed(args, kwargs, fill), fill)

            where = f"on {rows} rows in {'training' if training else 'evaluation'} mode"
            try:
                output, grads = self._once(halves, parameters, call, training, rows)
            except CutError:
                raise
            except Exception as error:
                raise CutError(
                    f"the server half cannot run {where} without what comes before the cut "
                    f"({type(error).__name__}: {error})"
                ) from error
            if not same(output, expected):
                raise CutError(
                    f"the two halves compute something else than the model {where}: something reaches the code "
                    "after the cut that no trace shows"
                )
            if grads != reached:
                raise CutError(f"gradients do not reach {sorted(reached - grads)[:3]} {where}")
        buffers = dict(client.named_buffers()) | dict(server.named_buffers())
        if not same({name: buffers.get(name) for name in self._buffers}, self._buffers):  # halves may have copies more
            raise CutError("the two halves do not update the model's buffers as the model does")


def _are_chances(output: Sequence[tuple[Any, Any]]) -> bool:
    """Return whether some output, or the one called logits, holds a row's probabilities."""
    candidates, logits = [], []
    for path, leaf in output:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            candidates.append(leaf)
            if path[-1:] == ("logits",):
                logits.append(leaf)
    for leaf in logits or candidates:
        if leaf.ndim == 2 and leaf.shape[1] > 1:
            # as near to 1 as rounding allows: scores before training are often small, and may add up to about 1
            rounding = 8 * torch.finfo(leaf.dtype).eps
            off = (leaf.double().sum(dim=1) - 1).abs()
            if bool((leaf >= 0).all() and (off < rounding).all()):
                return True
    return False


def _sources(output: Any) -> Iterator[Tensor]:
    """Yield the tensors at the ends of an output's autograd graph, found without computing a gradient."""
    # A walk over all nodes: a model has as many as operations, and a backward pass would cost the gradients, too.
    stack: list[Any] = [tensor.grad_fn for tensor in tensors(output)]
    seen: set[Any] = {None}
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        stack += [following for following, _ in node.next_functions]
