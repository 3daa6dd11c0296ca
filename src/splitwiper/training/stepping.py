"""One step of training: decode a batch, forward, backward, update. On a GPU the whole step becomes one CUDA graph.

The graph replays exactly the kernels of the eager step, so both give the same bits. A step that cannot be captured
stays eager: a net that looks at its data from Python, or draws from a generator on the CPU. A net that counts its
steps in Python, or keeps tensors from one step to the next, cannot be detected: it belongs on the CPU.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from splitwiper.config import Recipe
from splitwiper.errors import ConfigError, DataError, ResourceError, TrainingError, UntrainableError
from splitwiper.seeding import Stream, cpu_generators, same_generators, set_cpu_generators
from splitwiper.training.cache import CODE, Parts
from splitwiper.training.lanes import Alone, Lanes, Team
from splitwiper.training.parts import kept_tensors, make_loss, make_optimizer

_log = logging.getLogger("splitwiper")
_lost = 0
"""Captures that failed. Each invalidates the GPU's generator for the graphs that were captured before."""
State = dict[str, Tensor]
"""Everything a training continues from: tensors of the net and of the optimiser, by stable names, on the CPU."""
_NET, _OPTIMIZER = "net/", "optimizer/"
_WARM = 2
"""Eager steps for each batch size before its graph is captured, in which libraries initialise themselves."""


def net_state(net: nn.Module) -> State:
    """Copy every parameter and buffer of a net to the CPU, including buffers that its state dict leaves out."""
    return {name: _on_cpu(tensor) for name, tensor in _tensors(net).items()}


def load_net(net: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load the net's tensors of a state into a net, in place."""
    own = _tensors(net)
    for name in sorted(own.keys() | state.keys()):
        if name in own and name in state:
            ours, given = own[name], state[name]
            if (ours.shape, ours.dtype) != (given.shape, given.dtype):
                raise DataError(
                    f"{name!r} is {given.dtype} {list(given.shape)}, the net's {ours.dtype} {list(ours.shape)}."
                )
        elif not name.startswith(_OPTIMIZER):
            who, whom = ("the net", "the state") if name in own else ("the state", "the net")
            raise DataError(f"{who} has {name!r}, and {whom} does not: it is the state of another net.")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])


def _tensors(net: nn.Module) -> dict[str, Tensor]:
    """Return a net's parameters and buffers by their names in a state."""
    return {f"{_NET}{name}": tensor for name, tensor in [*net.named_parameters(), *net.named_buffers()]}


def _on_cpu(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, in the layout of files."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


class Step:
    """Trains on one batch at a time, and sums the loss."""

    def __init__(
        self,
        net: nn.Module,
        decode: Callable[[Parts], dict[str, Tensor]],
        recipe: Recipe,
        device: torch.device,
        *,
        what: str,
        graphs: bool,
        lanes: int = 1,
        team: Team | None = None,
    ) -> None:
        self._net, self._decode, self._recipe, self._device, self._what = net, decode, recipe, device, what
        self._layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        net.to(memory_format=self._layout)  # type: ignore[call-overload]
        # the names of the tensors that the optimiser keeps; None for one from outside, which therefore runs eagerly:
        # a graph would replay its kernels, and not what it does in Python between them
        self._keeps = kept_tensors(recipe)
        # lanes have random streams of their own, which Python starts: nothing that a graph could replay
        graphs = graphs and device.type == "cuda" and self._keeps is not None and lanes == 1
        self._rate = torch.zeros((), device=device) if device.type == "cuda" and self._keeps is not None else None
        self._loss = make_loss(recipe, device)
        self._optimizer = make_optimizer(net, recipe, rate=self._rate)
        self._groups = self._constants()
        self._lanes = Lanes(net, lanes, team or Alone()) if lanes > 1 else None
        # eager steps of a capturable optimiser are intended; torch would warn about them
        self._optimizer._warned_capturable_if_run_uncaptured = True
        self.total = torch.zeros((), dtype=torch.float32, device=device)  # the sum of the rows' losses
        self._graphs: dict[int, torch.cuda.CUDAGraph] | None = {} if graphs else None
        self._seen: dict[int, int] = {}
        self._lost = _lost
        self._proven = self._layout is torch.contiguous_format  # whether the net is known to accept this layout

    # --- the state between steps ---------------------------------------------------------------------------

    def state(self) -> State:
        """Copy everything that the next step depends on, besides its batch and learning rate, to the CPU.

        Parameters and buffers are named ``net/NAME``, the optimiser's tensors ``optimizer/PARAMETER/KEY``.

        Raises:
            ConfigError: an optimiser from outside keeps something that is not in the state.
        """
        if self._groups != self._constants():
            raise ConfigError(f"{self._recipe.optimizer} changes its settings while it trains: keep that in its state.")
        out = net_state(self._net)
        for name, parameter in self._net.named_parameters():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if not isinstance(value, Tensor):
                    raise ConfigError(
                        f"{self._recipe.optimizer} keeps {key} as {type(value).__name__}, not as a tensor."
                    )
                out[f"{_OPTIMIZER}{name}/{key}"] = _on_cpu(value)
        return out

    def _constants(self) -> list[dict[str, str]]:
        """Return the optimiser's settings, which must stay as they are; the learning rate is set before every step."""
        constants: list[dict[str, str]] = []
        for group in self._optimizer.param_groups:
            constants.append({key: repr(group[key]) for key in group.keys() - {"params", "lr"}})
        return constants

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load a state that `state` returned, on this or another device."""
        load_net(self._net, state)
        moments = self._moments(state)
        self._optimizer.state.clear()
        for parameter, tensors in moments.items():
            for key, value in tensors.items():
                if value.shape == parameter.shape:  # same layout as its parameter: fused kernels require it
                    self._optimizer.state[parameter][key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
                else:
                    self._optimizer.state[parameter][key] = value.to(parameter.device, copy=True)

    def _moments(self, state: Mapping[str, Tensor]) -> dict[nn.Parameter, dict[str, Tensor]]:
        """Return a state's optimiser tensors, checked: each parameter has all its tensors, or none."""
        # Whatever no parameter takes is left over, and refused: training from a state that silently lost a moment would
        # lead to other weights.
        left = sorted(name for name in state if name.startswith(_OPTIMIZER))
        moments: dict[nn.Parameter, dict[str, Tensor]] = {}
        for name, parameter in self._net.named_parameters():
            prefix, own = f"{_OPTIMIZER}{name}/", dict[str, Tensor]()
            for full in list(left):
                key = full.removeprefix(prefix)
                if not full.startswith(prefix) or (self._keeps is not None and key not in self._keeps):
                    continue
                value = state[full].detach()
                wanted = (torch.Size(), torch.float32) if key == "step" else (parameter.shape, parameter.dtype)
                if self._keeps is not None and (value.shape, value.dtype) != wanted:
                    raise DataError(
                        f"{full!r} is {value.dtype} {list(value.shape)}, not {wanted[1]} {list(wanted[0])}."
                    )
                own[key] = value
                left.remove(full)
            if own and self._keeps is not None and len(own) < len(self._keeps):
                raise DataError(
                    f"the state of the optimiser lacks a part for {name!r}; it keeps {sorted(self._keeps)}."
                )
            if own:
                moments[parameter] = own
        if left:
            raise DataError(f"the state has {left[0]!r}, which {self._recipe.optimizer} keeps of no parameter here.")
        return moments

    # --- one step ------------------------------------------------------------------------------------------

    def __call__(self, parts: Parts, rate: float, noise: Stream) -> None:
        """Train on a batch with a learning rate. ``noise`` names the randomness of its lanes, if there are several."""
        if self._rate is None:
            for group in self._optimizer.param_groups:
                group["lr"] = rate
        else:
            self._rate.fill_(rate)
        size = len(parts[CODE])
        # A capture that failed anywhere in this process replaced the GPU's generator, which older graphs refer to.
        if self._graphs and self._lost != _lost:
            self._graphs, self._lost = {}, _lost
        if self._graphs is not None and size not in self._graphs:
            self._seen[size] = self._seen.get(size, 0) + 1
            if self._seen[size] > _WARM:
                self._capture(parts, size)
        if self._graphs is not None and size in self._graphs:
            self._graphs[size].replay()
        else:
            self._eager(parts, noise)

    def _eager(self, parts: Parts, noise: Stream | None = None) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        lanes = self._lanes
        loss = lanes.backward(parts, self._backward, noise) if lanes and noise else self._backward(parts)
        if self._recipe.clip:
            nn.utils.clip_grad_norm_(self._net.parameters(), self._recipe.clip)
        self._optimizer.step()
        self.total += loss

    def _backward(self, parts: Parts, share: float = 1.0) -> Tensor:
        """Compute the gradients for some rows, which are this share of their batch; return the sum of their losses."""
        codes, half = parts[CODE], self._recipe.precision == "bfloat16"
        # no cache of casts: it would outlive the step, and keep casts of old weights
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=half, cache_enabled=False):
            logits = self._logits(self._decode(parts), len(codes))
            loss = self._loss(logits.float(), codes)
        with self._explaining(len(codes)):
            (loss if share == 1 else loss * share).backward()
        return loss.detach() * len(codes)

    def _logits(self, tensors: dict[str, Tensor], rows: int) -> Tensor:
        """Return the net's outputs. On a GPU, maps have channels innermost, unless the net requires another layout."""
        # The first forward pass on a GPU may show that the net cannot take channels-last maps (`view` fails). Then
        # everything that the pass has changed is undone, and the net stays in the ordinary layout.
        undo = None if self._proven else self._undoing()
        with self._explaining(rows):
            try:
                logits: Tensor = self._net(laid_out(tensors, self._layout))
                self._proven = True
                return logits
            except Exception as problem:
                if self._layout is torch.contiguous_format or "view" not in str(problem):
                    raise
                if undo is not None:
                    undo()
        kept = self.state()
        self._layout, self._proven = torch.contiguous_format, True
        self._net.to(memory_format=self._layout)  # type: ignore[call-overload]
        self.load(kept)  # the optimiser's tensors follow the layout
        return self._logits(tensors, rows)

    @contextmanager
    def _explaining(self, rows: int) -> Iterator[None]:
        """Turn whatever a net raises for some rows, an assertion for example, into an error that says what to do."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:
            raise _explained(self._what, rows, problem) from problem

    def _undoing(self) -> Callable[[], None]:
        """Return a function that undoes the effects of a forward pass that failed: on buffers, and on generators.

        Without it, the first epoch of a training would differ from the same epoch computed elsewhere.
        """
        buffers = [(buffer, buffer.clone()) for buffer in self._net.buffers()]
        noise, drawn = torch.cuda.get_rng_state(self._device), cpu_generators()

        def undo() -> None:
            for buffer, before in buffers:
                buffer.copy_(before)
            torch.cuda.set_rng_state(noise, self._device)
            set_cpu_generators(drawn)

        return undo

    def _capture(self, parts: Parts, size: int) -> None:
        """Record the step for batches of one size; nothing is computed."""
        graphs = self._graphs or {}
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(graphs.values())).pool() if graphs else None
        global _lost
        noise, drawn = torch.cuda.get_rng_state(self._device), cpu_generators()
        try:
            # only this thread is recorded: the reading thread continues to copy
            with torch.cuda.graph(
                graph, pool=pool, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
            ):
                self._eager(parts)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TrainingError) as problem:
            _restore(self._device, noise)
            _lost += 1
            _log.warning("%s: the step cannot be captured in a CUDA graph, and runs eagerly (%s).", self._what, problem)
            self._graphs = None
            return
        if not same_generators(drawn, cpu_generators()):  # the graph would repeat the same draw in every replay
            set_cpu_generators(drawn)
            _log.warning("%s: the net draws random numbers on the CPU, so steps run eagerly.", self._what)
            self._graphs = None
            return
        self._graphs, self._lost = {**graphs, size: graph}, _lost


def _explained(what: str, rows: int, problem: Exception) -> TrainingError:
    """Return the error for a batch that could not be computed: lack of memory, or a permanent failure."""
    if isinstance(problem, MemoryError) or re.search(r"alloc\w* memory|not enough memory|out of memory", str(problem)):
        return ResourceError(
            f"{what}: there is not enough memory ({problem}). Free some, and call learn or settle again."
        )
    reason = str(problem) if isinstance(problem, RuntimeError | ValueError) else f"{type(problem).__name__}: {problem}"
    return UntrainableError(f"{what}: a batch of {rows} rows could not be computed ({reason}).")


def laid_out(tensors: Mapping[str, Tensor], layout: torch.memory_format) -> dict[str, Tensor]:
    """Return tensors in the memory layout that a net prefers: maps in a given layout, all others row by row."""
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        out[name] = _strided(tensor, layout) if tensor.ndim == 4 else tensor.contiguous()
    return out


def _strided(maps: Tensor, layout: torch.memory_format) -> Tensor:
    """Return maps in a layout, with exactly its strides: torch keeps arbitrary strides for dimensions of size one."""
    _, channels, height, width = maps.shape
    row = channels * height * width
    strides = (row, 1, width * channels, channels)
    if layout is torch.contiguous_format:
        strides = (row, height * width, width, 1)
    return maps.contiguous(memory_format=layout).as_strided(maps.shape, strides)


def _restore(device: torch.device, noise: Tensor) -> None:
    """Give the GPU's generator a fresh state: after a failed capture it still counts as being captured."""
    fresh = torch.Generator(device)
    fresh.set_state(noise)
    number = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.default_generators[number].graphsafe_set_state(fresh.graphsafe_get_state())
