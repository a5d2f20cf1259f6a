"""Calls of classes that are ready, made by one function in C++ (launch.cpp): it is given here what it needs of a class.

What that function does is what `Function.__call__`, `Prepared.launch` and `ReadyPlan` do. They make every other call:
the first one of a class, one with arrays of which the function knows nothing, one on another device than the current.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..devices import ready
from ..model.calls import ArraySpec

try:
    from . import _launch
except ImportError:  # of a tree whose extensions were built before there was this one: calls take longer
    _launch = None  # type: ignore[assignment]

Recipe = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function that makes an array on the current device, and its arguments."""


def kind(
    exchange: Any = None,
    types: tuple[type, ...] = (),
    grad_enabled: Any = None,
    stream: Any = None,
    recorded: Any = None,
) -> partial[Any] | None:
    """What calls operations with arrays of a kind: None where there is no extension.

    Tensors are read through `exchange`, the capsule of DLPack's exchange in C, and have to be of these `types`. Where
    `grad_enabled` returns true and one needs a gradient, `recorded` is called with the same arguments. Arrays of CuPy
    are read by their attributes; `stream` returns the current stream of the current device, or is Cython's capsule of a
    function that does for a device. The result is called with a function, arrays, `out` and options, and returns None
    for a call that it does not make."""
    if _launch is None:
        return None
    return partial(_launch.call, _launch.kind(exchange, types, grad_enabled, stream, recorded))


def ready_class(
    called: partial[Any] | None,
    plan: Any,
    device: int,
    inputs: Sequence[int],
    results: Sequence[ArraySpec],
    makers: Sequence[Recipe],
    collect: Any,
    between: Any,
    bytes_recipe: Callable[[int, int], Recipe],
) -> Any:
    """What the function in C++ needs of a class, or None where it cannot make such calls.

    `inputs` are bytes that inputs span. `between` says which arrays there are beside those of the caller."""
    points = getattr(getattr(plan, "driver", None), "entry_points", None)
    if _launch is None or called is None or points is None:
        return None
    arrays = between.memory
    total = sum(-(-nbytes // 256) * 256 for nbytes, zero in arrays if not zero)
    steps = tuple(
        (
            *(each.kernel, each.function, each.grid, each.block, each.shared_bytes, each.programmatic),
            _arguments(plan, n),
        )
        for n, each in enumerate(plan.launches)
    )
    return _launch.ready(
        called.args[0],
        device,
        points,
        ready.MOST_MAPS,
        tuple(makers),
        tuple(inputs),
        tuple(spec.span for spec in results),
        collect,
        between.any,
        tuple(nbytes for nbytes, _ in arrays),
        tuple(int(zero) for _, zero in arrays),
        bytes_recipe(total, device) if total else (tuple, ()),
        plan.driver.enter,
        plan.driver.failed,
        steps,
    )


def _arguments(plan: Any, number: int) -> tuple[Any, ...]:
    """The arguments of a launch: the place of an address, the bytes of a scalar, or of a map the place, the
    offset, its bytes and the address that they are of."""
    found: list[Any] = []
    for place, argument in enumerate(plan.launches[number].args):
        if isinstance(argument, ready.Pointer):
            found.append(argument.index)
        elif isinstance(argument, ready.MapAt):
            maps = plan.maps[number, place]
            found.append((argument.index, argument.offset, maps.first, maps.begun))
        else:
            found.append(argument)
    return tuple(found)
