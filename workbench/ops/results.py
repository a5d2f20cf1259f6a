"""What a caller gets of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..model import calls
from ..model.calls import ArraySpec, Call


def results_of(
    name: str, call: Call, device: int
) -> tuple[tuple[ArraySpec, ...], Callable[[Sequence[Any]], Any] | None]:
    """The arrays that a caller gets, and what puts several of them together; None where it is one alone.

    Raises TypeError for results that are none of the outputs."""
    outputs = {
        output: ArraySpec(
            array.shape,
            tuple(step * array.dtype.itemsize for step in array.element_strides),
            array.dtype.numpy,
            device,
            output,
        )
        for output, array in call.problem.arrays().items()
        if array.output
    }
    found = calls.results(call, name, outputs)
    several = found if isinstance(found, tuple) else (found,)
    sources = [spec.source for spec in several if isinstance(spec, ArraySpec)]
    if len(set(sources)) < len(several) or not outputs.keys() >= set(sources):
        raise TypeError(f"{name}: the function has to return outputs, each once, and returns {found}")
    if found is not several:
        return several, None
    return several, tuple if type(found) is tuple else type(found)._make  # type: ignore[attr-defined]
