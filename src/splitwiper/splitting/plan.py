"""From findings to a plan: which tensors cross, who owns which state, and what replaces the rest."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from splitwiper.errors import CutError
from splitwiper.splitting.legality import Findings, around, calls_of, names_of, returned_by
from splitwiper.splitting.specs import Ghost, Received, TensorSpec
from splitwiper.splitting.trace import Opaque, Trace, TracedTensor, states_of
from splitwiper.splitting.trees import Call, Path, bound, leaves, map_leaves


@dataclass(frozen=True)
class CutPlan:
    """Everything needed to build the two halves of one cut.

    Attributes:
        at: The cut module.
        head: The output layer.
        boundary: The tensors that cross, in order.
        inputs: The call's arguments as the server replays them.
        output: The output that the cut module replays on the server.
        picks: The path of each activation in the cut module's output, and its row dimension.
        sides: The input behind each side tensor.
        replies: The outputs that each module before the cut replays on the server, call by call.
        client: Names of the states that the client owns; the server owns the rest.
        copied: Constant buffers of the client that the server needs too.
        before: Names of the modules that run before the cut, including those around it.
        after: Names of the modules that run after the cut, including those around it.
        replaced: Boundary names that the server changes in place, so that it must work on a copy.
        dense: Whether ghosts need memory of their own, because something changes them in place.
        rewind: Whether random numbers drawn before the cut must be undone on the server.
        flops: Operations per row on the client and on the server.
        notes: Warnings.
    """

    at: str
    head: str
    boundary: tuple[TensorSpec, ...]
    inputs: Call
    output: Any
    picks: Mapping[str, tuple[Path, int]]
    sides: Mapping[str, str]
    replies: Mapping[str, tuple[Any, ...]]
    client: frozenset[str]
    copied: frozenset[str]
    before: frozenset[str]
    after: frozenset[str]
    replaced: frozenset[str]
    dense: bool
    rewind: bool
    flops: tuple[int, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TracePair:
    """The same run with ``rows`` and with ``rows + 1`` rows, which reveals the sizes that count rows."""

    low: Trace
    high: Trace

    def ghosts(self, low: Any, high: Any) -> Any:
        """Return a template of ghosts from one value as it was in both runs."""
        other = dict(leaves(high))

        def ghost(path: Path, leaf: Any) -> Any:
            twin = other.get(path)
            if not isinstance(leaf, TracedTensor):
                return leaf
            if not isinstance(twin, TracedTensor) or len(twin.shape) != len(leaf.shape):
                raise CutError("the model computes something else when the number of rows changes")
            return Ghost.between(leaf.shape, twin.shape, self.low.rows, leaf.dtype)

        return map_leaves(ghost, low)

    def calls(self, name: str) -> list[Any]:
        """Return the outputs of a module as ghosts, call by call."""
        ghosts = []
        for low, high in zip(calls_of(self.low, name), calls_of(self.high, name), strict=False):
            ghosts.append(self.ghosts(low.output, high.output))
        return ghosts


def make_plan(
    model: nn.Module, call: Call, pairs: Sequence[TracePair], at: str, head: str, findings: Findings
) -> CutPlan:
    """Turn legal findings into a plan.

    Raises:
        CutError: Something that must cross has no rows, or a module cannot be imitated.
    """
    first = pairs[0]
    activation = first.calls(at)[0]
    boundary, picks = _activations(activation, pairs, at, findings)
    places = {path: Received(name, row_dim) for name, (path, row_dim) in picks.items()}
    sides: dict[str, str] = {}
    for name in findings.sides:
        sides[name] = f"input.{name}" if name in picks else name  # an input may have the name of an activation
        seen = first.low.inputs[name]
        boundary.append(TensorSpec(sides[name], seen.shape[1:], seen.dtype, "side"))
    client, unused = _owners(model, findings)
    before, after = _called(pairs, at)
    replaced = set()
    for part in findings.replaced:
        replaced.add(_activation_name(part) if isinstance(part, tuple) else sides.get(part, part))
    return CutPlan(
        at=at,
        head=head,
        boundary=tuple(boundary),
        inputs=_replayed_inputs(model, call, first, sides),
        output=map_leaves(lambda path, leaf: places.get(path, leaf), activation),
        picks=picks,
        sides={key: name for name, key in sides.items()},
        replies=_replies(pairs, at),
        client=client,
        copied=frozenset((findings.glue | (findings.before & findings.after)) & client) - findings.variable,
        before=before,
        after=after,
        replaced=frozenset(replaced),
        dense=findings.dense,
        rewind=findings.rewind,
        flops=findings.flops,
        notes=_notes(model, pairs, at, findings, unused),
    )


def _activation_name(path: Path) -> str:
    return ".".join(("activation", *path))


def _activations(
    activation: Any, pairs: Sequence[TracePair], at: str, findings: Findings
) -> tuple[list[TensorSpec], dict[str, tuple[Path, int]]]:
    """Return the parts of the cut module's output that cross: their descriptions, paths and row dimensions."""
    low, high = pairs[0].low.rows, pairs[0].high.rows
    boundary: list[TensorSpec] = []
    picks: dict[str, tuple[Path, int]] = {}
    for path, leaf in leaves(activation):
        if path not in findings.used:  # what nothing after the cut reads stays at the client
            continue
        for pair in pairs:
            if dict(leaves(pair.calls(at)[0])).get(path) != leaf:
                raise CutError("the examples disagree in what crosses there; give all rows the same shape")
        name = _activation_name(path)
        if leaf.row_dim is None:  # a shard stores rows, and a batch gathers any of them: each needs its own entry
            raise CutError(
                f"{name} has no row dimension: its shape is {leaf.shape(low)} for {low} rows and {leaf.shape(high)} "
                f"for {high}; cut where every tensor has one entry per row"
            )
        picks[name] = (path, leaf.row_dim)
        shape = list(leaf.shape(low))  # only the row dimension depends on the number of rows
        del shape[leaf.row_dim]
        boundary.append(TensorSpec(name, tuple(shape), leaf.dtype, "activation"))
    return boundary, picks


def _replayed_inputs(model: nn.Module, call: Call, pair: TracePair, sides: Mapping[str, str]) -> Call:
    """Return the arguments with shared tensors marked as received and all others as ghosts."""
    arguments = bound(model, call)

    def replay(path: Path, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        keyword = arguments.signature.parameters[path[0]].kind is inspect.Parameter.VAR_KEYWORD
        name = ".".join(path[1:] if keyword else path)
        if name in sides:
            return Received(sides[name], 0)
        return pair.ghosts(pair.low.inputs[name], pair.high.inputs[name])

    arguments.arguments = map_leaves(replay, dict(arguments.arguments))
    return arguments.args, dict(arguments.kwargs)


def _replies(pairs: Sequence[TracePair], at: str) -> dict[str, tuple[Any, ...]]:
    """Return ghosts for the modules that the code around the cut calls before it."""
    replies: dict[str, tuple[Any, ...]] = {}
    for pair in pairs:
        cut = calls_of(pair.low, at)[0]
        enclosing = around(pair.low, cut)
        names = {call.name for call in returned_by(pair.low, cut) if call.parent in enclosing}
        for name in names - {at} - set(replies):
            outputs = tuple(pair.calls(name))
            for _, leaf in leaves(outputs):
                if isinstance(leaf, Opaque):
                    raise CutError(f"module {name!r} before it returns {leaf.kind}, which cannot be imitated")
            replies[name] = outputs
    return replies


def _called(pairs: Sequence[TracePair], at: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the modules that run before and after the cut; those around it are in both."""
    before, after = set[str](), set[str]()
    for pair in pairs:
        trace = pair.low
        cut = calls_of(trace, at)[0]
        returned = returned_by(trace, cut)
        before |= names_of(returned).union(around(trace, cut).values())
        after |= names_of(trace.calls[len(returned) :])
    return frozenset(before), frozenset(after)


def _owners(model: nn.Module, findings: Findings) -> tuple[frozenset[str], list[str]]:
    """Return the client's states, by first use, and unused states, which go with the state registered before them."""
    client, unused, is_client = set(), [], True
    for name in states_of(model):
        if name in findings.before or name in findings.after:
            is_client = name in findings.before
        else:
            unused.append(name)
        if is_client:
            client.add(name)
    return frozenset(client), unused


def _notes(
    model: nn.Module, pairs: Sequence[TracePair], at: str, findings: Findings, unused: list[str]
) -> tuple[str, ...]:
    """Return warnings about a cut that is legal: what would belong on the other side, and what training loses."""
    early: set[str] = set()
    unsaved: set[str] = set()
    for pair in pairs:
        early |= names_of(returned_by(pair.low, calls_of(pair.low, at)[0]))
        if pair.low.training:
            unsaved |= pair.low.unsaved
    dropout, norms = [], []
    for name, module in model.named_modules():
        if name in early and isinstance(module, nn.modules.dropout._DropoutNd):
            dropout.append(name)
        elif name in early and isinstance(module, nn.modules.batchnorm._BatchNorm):
            norms.append(name)
    notes = []
    if dropout:
        notes.append(_misplaced("dropout", dropout, "chance", "move it behind the cut"))
    if norms:
        notes.append(_misplaced("batch normalisation", norms, "the other rows of its batch", "use group norm"))
    if findings.draws and not notes:
        notes.append("the client half draws random numbers in training mode; that belongs on the server half")
    parameters = dict(model.named_parameters(remove_duplicate=False))
    idle = [name for name in unused if name in parameters]
    if idle:
        notes.append(
            f"the example never uses {_some(idle)}: given to a half by the "
            "order of registration; pass more examples to take every path"
        )
    if unsaved:
        notes.append(
            f"training changes {_some(sorted(unsaved))}, which no state dict has: it "
            "is dropped after training, and predictions come from another network than was trained. Make it a "
            "persistent buffer (register_buffer)"
        )
    return tuple(notes)


def _misplaced(kind: str, names: Sequence[str], cause: str, remedy: str) -> str:
    return (
        f"the client half has {kind} ({_some(names)}): in training mode a row's activation depends on {cause}; it "
        f"belongs on the server half. Unlearning stays exact; to avoid this, cut earlier or {remedy}"
    )


def _some(names: Sequence[str]) -> str:
    """Return the first names as a list, and dots if there are more."""
    return ", ".join(names[:3]) + (", ..." if names[3:] else "")
