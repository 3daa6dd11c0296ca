"""``split``: cut any module in two after a named submodule."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from splitwiper.certainty import Trial, certain
from splitwiper.errors import CutError, nearest
from splitwiper.splitting.halves import ClientHalf, ServerHalf, build
from splitwiper.splitting.pair import Halves
from splitwiper.splitting.plan import CutPlan
from splitwiper.splitting.specs import CutWarning
from splitwiper.splitting.workbench import Workbench
from splitwiper.switches import pinned, still_pinned

_T = TypeVar("_T")
# Times that a cut is tried while other threads run: a failed try takes long, since it looks for other cuts.
_TRIES = 4


def split(
    model: nn.Module,
    at: str,
    example: Any,
    *,
    head: str | None = None,
    shared: Iterable[str] = (),
    allow_data_dependent: bool = False,
) -> Halves:
    """Cut a model in two after one of its modules.

    The halves are copies: the model stays as it is. Together they compute what the model computes, bit for bit,
    in training and in evaluation mode; this is tried before they are returned. Print them for a preview.

    Args:
        model: Any module.
        at: The dotted name of the module after which to cut.
        example: Inputs for the model: a tensor, a tuple of positional arguments or a dict of keyword arguments,
            with rows in dimension 0; or a list of several such inputs, to take several paths.
        head: The dotted name of the output layer; needed where it cannot be found.
        shared: Names of inputs that the server may see, such as ``"attention_mask"``.
        allow_data_dependent: Accept a branch on data before the cut. Only the paths of the examples are tried.

    Raises:
        CutError: The model cannot be cut there; the message says why, and where it can.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> halves = split(net, at="1", example=torch.zeros(1, 4))
        >>> halves.boundary[0].shape
        (8,)
        >>> list(halves.client.state_dict()), halves.server.output_layer_name
        (['0.weight', '0.bias'], '2')
    """
    if not isinstance(model, nn.Module):
        raise CutError(f"the model is a {type(model).__name__}; give an nn.Module")
    if not isinstance(at, str):
        raise CutError(f"at={at!r} must be the dotted name of a module, such as 'layer1' or '0'")
    shared = shared if isinstance(shared, str) else list(shared)  # the cut may be tried several times

    def cut(_: Trial) -> tuple[Workbench, CutPlan, ClientHalf, ServerHalf]:
        bench = Workbench(model, example, shared=shared, allow_data_dependent=allow_data_dependent, head=head)
        plan = _planned(bench, at, head)
        return bench, plan, *build(model, plan)

    bench, plan, client, server = _surely(model, cut, None, f"cutting after {at!r}")
    notes = (*plan.notes, *bench.squashed())
    for note in notes:
        warnings.warn(note, CutWarning, stacklevel=2)
    return Halves(client, server, bench.canonical(at), plan.boundary, warnings=notes, flops=plan.flops)


def _planned(bench: Workbench, at: str, head: str | None) -> CutPlan:
    """Plan the cut and prove it by running.

    Raises:
        CutError: the cut is impossible.
    """
    if at not in bench.modules or not at:
        raise CutError(f"the model has no module {at!r}.{nearest(at, bench.modules)}{bench.suggest(at)}")
    at = bench.canonical(at)
    bench.check_trainable()
    _check_head(bench, head)
    try:
        plan = bench.plan(at)
        bench.prove(plan)
    except CutError as error:
        raise CutError(f"cannot cut after {at!r}: {error}.{bench.suggest(at)}") from error
    return plan


def _surely(model: nn.Module, compute: Callable[[Trial], _T], key: Callable[[_T], Hashable] | None, task: str) -> _T:
    """Run a computation with torch's switches pinned, and repeat it if other threads may have interfered."""
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    return certain(
        compute,
        partial(pinned, device),
        pinned=partial(still_pinned, device),
        key=key,
        what=task,
        faults=(Exception,),
        tries=_TRIES,
    )


def _check_head(bench: Workbench, head: str | None) -> None:
    linear = [name for name, module in bench.modules.items() if isinstance(module, nn.Linear)]
    if not linear:
        raise CutError("the model has no Linear layer; its output layer must be one: one score for each label")
    if bench.head is None:
        raise CutError(f"no single output layer was found; pass head= with one of {', '.join(linear)}")
    if bench.head not in linear:
        raise CutError(f"head={head!r} is not a Linear layer of the model.{nearest(bench.head, linear)}")


def legal_cuts(model: nn.Module, example: Any, shared: Iterable[str] = ()) -> list[str]:
    """List the modules after which a model can be cut, in the order of execution; each cut is tried.

    Args:
        model: Any module.
        example: As for :func:`split`.
        shared: Names of inputs that the server may see.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> legal_cuts(net, torch.zeros(1, 4))
        ['0', '1']
    """
    shared = shared if isinstance(shared, str) else list(shared)

    def legal(_: Trial) -> list[str]:
        bench = Workbench(model, example, shared=shared, allow_data_dependent=False)
        return list(bench.legal(bench.called))

    return _surely(model, legal, tuple, "cutting")
