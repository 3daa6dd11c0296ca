"""``Halves``: the result of a cut, and how clients of different kinds share one server half."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from splitwiper.errors import CutError, nearest
from splitwiper.splitting.halves import ClientAdapter, ServerHalf
from splitwiper.splitting.preview import amount, boundary_table, table
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
        if not isinstance(half, Halves):
            return ClientAdapter(copy.deepcopy(half), self.boundary, {s.name: s.name for s in self.boundary})
        theirs = half.boundary
        if [(s.shape, s.dtype) for s in theirs] != [(s.shape, s.dtype) for s in self.boundary]:
            raise CutError(
                f"client {name!r} sends {', '.join(map(str, theirs))}; the server half expects "
                f"{', '.join(map(str, self.boundary))}. Cut its model where the tensors agree"
            )
        names = {ours.name: other.name for ours, other in zip(self.boundary, theirs, strict=True)}
        return ClientAdapter(copy.deepcopy(half.client), self.boundary, names)

    def _try(self, name: str, half: nn.Module, example: Any) -> None:
        probe = copy.deepcopy(half).eval()
        with torch.no_grad(), isolated(0, devices_of(probe, as_call(example))):
            sent: dict[str, Tensor] = call_with(probe, example)
        for spec in self.boundary:
            if sent[spec.name].dtype != spec.dtype:
                got = TensorSpec(spec.name, tuple(sent[spec.name].shape[1:]), sent[spec.name].dtype, spec.kind)
                raise CutError(f"client {name!r} sends {got}; the server half expects {spec}")

    def __str__(self) -> str:
        counts = [sum(p.numel() for p in half.parameters()) for half in (self.client, self.server)]
        rows = [("half", "parameters", "FLOPs per row (forward)")]
        for word, count, flops in zip(("client", "server"), counts, self.flops, strict=True):
            rows.append((word, f"{count:,}", amount(flops)))
        head = self.server.head
        parts = [
            f"cut after {self.at!r}",
            table(rows),
            boundary_table(self.boundary),
            f"head {self.server.head_name!r}: {head.in_features} -> {head.out_features}",
        ]
        if self.clients:
            parts.append(f"clients with a half of their own: {', '.join(self.clients)}")
        parts += [f"warning: {note}" for note in self.warnings]
        return "\n\n".join(parts[:3]) + "\n\n" + "\n".join(parts[3:])

    __repr__ = __str__
