"""``Halves``: the result of a cut, and how clients of different kinds share one server half."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from splitwiper.errors import CutError, nearest
from splitwiper.splitting.halves import ClientAdapter, ServerHalf
from splitwiper.splitting.specs import TensorSpec
from splitwiper.splitting.trace import devices_of, isolated
from splitwiper.splitting.trainable import check_hooks
from splitwiper.splitting.trees import as_call, call_with


@dataclass(frozen=True, eq=False, repr=False)
class Halves:
    """A model cut in two.

    Attributes:
        client: The half before the cut.
        server: The half after it.
        at: The module after which the model is cut.
        boundary: The tensors that cross, in order.
        clients: Individual client halves, by client name.
        warnings: Remarks that deserve attention.
        flops: Forward operations per row in the client half and in the server half.
    """

    client: nn.Module
    server: ServerHalf
    at: str
    boundary: tuple[TensorSpec, ...]
    clients: Mapping[str, nn.Module] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    flops: tuple[int, int] = (0, 0)

    def client_for(self, name: str) -> nn.Module:
        """Return the half of the named client: its own, or the common one."""
        return self.clients.get(name, self.client)

    def with_clients(
        self, clients: Mapping[str, Halves | nn.Module], *, examples: Mapping[str, Any] | None = None
    ) -> Halves:
        """Return the same server half, with clients that bring client halves of their own.

        Args:
            clients: By client name, the halves of another model with the same boundary, or any module that
                returns a dict of the boundary's tensors (or the tensor itself, if there is one). Copied.
            examples: By client name, inputs to try a module on.

        Raises:
            CutError: A client half does not return what the server half expects.
        """
        examples = examples or {}
        unknown = sorted(set(examples) - set(clients))
        if unknown:
            raise CutError(f"example for {unknown[0]!r}, who brings no client half.{nearest(unknown[0], clients)}")
        added = {}
        for name, half in clients.items():
            added[name] = self._adapted(name, half)
            if name in examples:
                self._try(name, added[name], examples[name])
        return replace(self, clients={**self.clients, **added})

    def _adapted(self, name: str, half: Halves | nn.Module) -> nn.Module:
        check_hooks(half.client if isinstance(half, Halves) else half)
        core, theirs = (half.client, half.boundary) if isinstance(half, Halves) else (half, self.boundary)
        if list(map(_content, theirs)) != list(map(_content, self.boundary)):
            raise CutError(
                f"client {name!r} sends {', '.join(map(str, theirs))}; the server half expects "
                f"{', '.join(map(str, self.boundary))}. Cut its model where the tensors agree"
            )
        names = {}
        for ours, other in zip(self.boundary, theirs, strict=True):
            names[ours.name] = other.name
        return ClientAdapter(copy.deepcopy(core), self.boundary, names)

    def _try(self, name: str, half: nn.Module, example: Any) -> None:
        probe = copy.deepcopy(half).eval()
        with torch.no_grad(), isolated(0, devices_of(probe, as_call(example))):
            sent: dict[str, Tensor] = call_with(probe, example)
        for spec in self.boundary:
            if sent[spec.name].dtype != spec.dtype:
                got = TensorSpec(spec.name, tuple(sent[spec.name].shape[1:]), sent[spec.name].dtype, spec.kind)
                raise CutError(f"client {name!r} sends {got}; the server half expects {spec}")

    def __str__(self) -> str:
        rows = [("half", "parameters", "FLOPs per row (forward)")]
        for name, half, flops in zip(("client", "server"), (self.client, self.server), self.flops, strict=True):
            parameters = sum(map(Tensor.numel, half.parameters()))
            rows.append((name, f"{parameters:,}", _amount(flops)))
        last = self.server.output_layer
        lines = [f"head {self.server.output_layer_name!r}: {last.in_features} -> {last.out_features}"]
        if self.clients:
            lines.append(f"clients with a half of their own: {', '.join(self.clients)}")
        lines += [f"warning: {note}" for note in self.warnings]
        return "\n\n".join((f"cut after {self.at!r}", _table(rows), _boundary_table(self.boundary), "\n".join(lines)))

    __repr__ = __str__


def _content(spec: TensorSpec) -> tuple[Any, ...]:
    """Return what two boundaries must have in common; names may differ."""
    return spec.shape, spec.dtype


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right."""
    aligned = []
    for number, column in enumerate(zip(*rows, strict=True)):
        width = max(map(len, column))
        aligned.append([cell.rjust(width) if number else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*aligned, strict=True))


def _amount(number: float) -> str:
    """Format a number with three digits and a unit.

    >>> _amount(1234567), _amount(12)
    ('1.23 M', '12')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def _boundary_table(boundary: Sequence[TensorSpec]) -> str:
    """Tabulate the tensors that cross the cut, with their bytes on the wire."""
    rows = [("crosses the cut", "kind", "per row", "dtype", "bytes per row")]
    for spec in boundary:
        shape = " x ".join(map(str, spec.shape)) or "scalar"
        dtype = str(spec.dtype).removeprefix("torch.")
        rows.append((spec.name, spec.kind, shape, dtype, f"{spec.bytes_per_row:,}"))
    if len(boundary) > 1:
        rows.append(("together", "", "", "", f"{sum(spec.bytes_per_row for spec in boundary):,}"))
    return _table(rows)
