"""The two halves of a cut model, as ordinary modules."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from splitwiper.errors import CutError, DataError
from splitwiper.splitting.ghosts import RUN, ClientRun, Reached, Running, ServerRun, haunt
from splitwiper.splitting.output_layer import empty_linear
from splitwiper.splitting.plan import CutPlan
from splitwiper.splitting.specs import Ghost, TensorSpec
from splitwiper.splitting.trace import states_of
from splitwiper.splitting.trees import leaves, named_inputs, tensors


class Facade(nn.Module):
    """Wraps a core module with another ``forward``; parameters keep their names in the core."""

    _core: nn.Module

    def __init__(self, core: nn.Module) -> None:
        super().__init__()
        # The same dictionaries, not a child: a child would put its own name before every key.
        for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[name] = core.__dict__[name]
        self.__dict__["_core"] = core
        self.training = core.training

    def train(self, mode: bool = True) -> Facade:
        """Set training or evaluation mode, in the core too."""
        self.training = mode
        self._core.train(mode)
        return self


class _Planned(Facade):
    """A half made by a plan."""

    _plan: CutPlan

    def __init__(self, core: nn.Module, plan: CutPlan) -> None:
        super().__init__(core)
        self.__dict__["_plan"] = plan

    @property
    def boundary(self) -> tuple[TensorSpec, ...]:
        """The tensors that cross the cut."""
        return self._plan.boundary


class ClientHalf(_Planned):
    """The model up to the cut: from the model's inputs to the tensors that cross.

    Calling it with the model's own arguments returns a dict of tensors by boundary name, in boundary order, with
    rows in dimension 0.
    """

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of one row of each input tensor, as in the example."""
        return tuple(leaf.shape(1)[1:] for _, leaf in leaves(self._plan.inputs) if isinstance(leaf, Ghost))

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Compute the tensors that cross the cut."""
        return self._embed(args, kwargs, 0.0)

    def _embed(self, args: tuple[Any, ...], kwargs: dict[str, Any], fill: float) -> dict[str, Tensor]:
        plan = self._plan
        given = tensors((args, kwargs))
        device = given[0].device if given else torch.device("cpu")
        try:
            _run(ClientRun(device, fill), self._core, args, kwargs)
        except Reached as reached:
            parts = dict(leaves(reached.output))
        else:
            raise CutError(f"the model finished without calling {plan.at!r}; these inputs take another path")
        inputs = dict(named_inputs(self._core, (args, kwargs))) if plan.sides else {}
        sent: dict[str, Tensor] = {}
        for spec in plan.boundary:
            path, row_dim = plan.picks.get(spec.name, ((), 0))
            tensor = parts.get(path) if spec.kind == "activation" else inputs.get(plan.sides[spec.name])
            if tensor is None:
                raise DataError(f"these inputs give no {spec.name!r}, which the server half needs")
            sent[spec.name] = tensor.movedim(row_dim, 0) if row_dim else tensor
        return sent


class ServerHalf(_Planned):
    """The model after the cut: from the tensors that crossed to the model's output."""

    @property
    def output_layer_name(self) -> str:
        """The dotted name of the output layer."""
        return self._plan.head

    @property
    def output_layer(self) -> nn.Linear:
        """The output layer."""
        layer = self._core.get_submodule(self.output_layer_name)
        if not isinstance(layer, nn.Linear):
            raise CutError(f"the head {self.output_layer_name!r} is a {type(layer).__name__}, not a Linear layer")
        return layer

    def set_output_layer(self, linear: nn.Linear) -> None:
        """Replace the output layer, for example by one with another number of outputs.

        Raises:
            CutError: It does not take as many features as the present one.
        """
        if not isinstance(linear, nn.Linear) or linear.in_features != self.output_layer.in_features:
            raise CutError(f"the head must be a Linear layer of {self.output_layer.in_features} features, not {linear}")
        owner, _, leaf = self.output_layer_name.rpartition(".")
        self._core.get_submodule(owner)._modules[leaf] = linear.train(self.output_layer.training)

    def without_output_layer(self) -> ServerHalf:
        """Return a copy without the output layer: its `logits` are the features that the layer takes."""
        half = copy.deepcopy(self)
        owner, _, leaf = self.output_layer_name.rpartition(".")
        half._core.get_submodule(owner)._modules[leaf] = nn.Identity()
        return half

    def loaded(self, state: Mapping[str, Tensor]) -> ServerHalf:
        """Return a copy with trained weights, with as many outputs as they have, ready to predict."""
        half, old = copy.deepcopy(self), self.output_layer
        outputs = len(state[f"{self.output_layer_name}.weight"])
        half.set_output_layer(empty_linear(old.in_features, outputs, bias=old.bias is not None, dtype=old.weight.dtype))
        half.load_state_dict(dict(state))
        return half.eval().requires_grad_(False)

    def forward(self, boundary: Mapping[str, Tensor]) -> Any:
        """Compute the model's output from the tensors that the client half sent."""
        return self._replay(boundary, 0.0)

    def logits(self, boundary: Mapping[str, Tensor]) -> Tensor:
        """Return the output as one matrix: the output itself, or its ``logits``.

        Raises:
            CutError: The output is neither, or has more than two dimensions.
        """
        output = self(boundary)
        logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
        if not isinstance(logits, Tensor):
            raise CutError(
                f"the model returns a {type(output).__name__}, neither a tensor nor something with logits; "
                "wrap it in a module that returns the logits"
            )
        if logits.ndim != 2:
            raise CutError(f"the logits have shape {tuple(logits.shape)}; one row of scores per sample is needed")
        return logits

    def _replay(self, boundary: Mapping[str, Tensor], fill: float) -> Any:
        plan = self._plan
        rows = self._check(boundary)
        received: dict[str, Tensor] = {}
        for spec in plan.boundary:
            tensor = boundary[spec.name]
            row_dim = plan.picks[spec.name][1] if spec.kind == "activation" else 0
            if row_dim:
                tensor = tensor.movedim(0, row_dim).contiguous()
            received[spec.name] = tensor.clone() if spec.name in plan.replaced else tensor
        first = plan.boundary[0]
        run = ServerRun(
            received,
            plan.output,
            rows=rows,
            fill=fill,
            dense=plan.dense,
            rewind=plan.rewind,
            cast={first.dtype: received[first.name].dtype},
        )
        args, kwargs = run.filled(plan.inputs)
        output = _run(run, self._core, args, kwargs)
        if not run.past:
            raise CutError(f"the model finished without calling {plan.at!r}; its path depends on the data")
        return output

    def _check(self, boundary: Mapping[str, Tensor]) -> int:
        """Refuse tensors that are not those of the boundary, and return their number of rows."""
        rows = set()
        for spec in self.boundary:
            if spec.name not in boundary:
                raise DataError(f"the boundary lacks {spec}; it has {', '.join(boundary) or 'nothing'}")
            shape = tuple(boundary[spec.name].shape)
            rows.add(shape[:1])
            if shape[1:] != spec.shape or len(rows) != 1:
                raise DataError(f"boundary tensor {spec} arrived with shape {shape}; rows must agree")
        return math.prod(rows.pop())


def _run(run: Running, core: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    token = RUN.set(run)
    try:
        return core(*args, **kwargs)
    finally:
        RUN.reset(token)


def build(model: nn.Module, plan: CutPlan) -> tuple[ClientHalf, ServerHalf]:
    """Build both halves of ``model``, which share nothing with it."""
    client = haunt(model, at=plan.at, absent=states_of(model).keys() - plan.client)
    absent = plan.client - plan.copied
    server = haunt(model, at=plan.at, absent=absent, constant=plan.copied, replies=plan.replies)
    return ClientHalf(client, plan), ServerHalf(server, plan)


class ClientAdapter(Facade):
    """A client half of another model, whose outputs are renamed to this boundary's names."""

    _boundary: tuple[TensorSpec, ...]
    _names: dict[str, str]

    def __init__(self, core: nn.Module, boundary: tuple[TensorSpec, ...], names: Mapping[str, str]) -> None:
        super().__init__(core)
        self.__dict__["_boundary"] = boundary
        self.__dict__["_names"] = dict(names)

    @property
    def boundary(self) -> tuple[TensorSpec, ...]:
        """The tensors that cross the cut."""
        return self._boundary

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Compute the tensors that cross the cut."""
        output = self._core(*args, **kwargs)
        specs = self.boundary
        if isinstance(output, Tensor) and len(specs) == 1:
            output = {specs[0].name: output}
        names = self._names
        if not isinstance(output, Mapping) or not output.keys() >= set(names.values()):
            got = ", ".join(map(str, output)) if isinstance(output, Mapping) else f"a {type(output).__name__}"
            raise CutError(f"the client half must return {', '.join(names)}; it returned {got}")
        sent = {}
        for spec in specs:
            sent[spec.name] = output[names[spec.name]]
            shape = tuple(sent[spec.name].shape[1:])
            if shape != spec.shape:
                raise CutError(f"the server half expects {spec}; the client half returned rows of shape {shape}")
        return sent
