"""What a launch left in its arrays against a reference, element by element."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..model.errors import WrongUsage

__all__ = ["Reference", "differences", "expected_of"]

Array = np.ndarray[Any, Any]
Reference = Callable[..., Mapping[str, Any]]
"""Gets a kernel's arguments by the names of its parameters, those that it takes, arrays as they were before the launch;
answers with what arrays hold afterwards, by name."""

_TOLERANCES = {8: (1e-10, 1e-12), 4: (1e-4, 1e-5), 2: (2e-2, 1e-2), 1: (0.13, 0.02)}
"""Relative and absolute, by bytes of an element."""


def expected_of(reference: Reference, kernel: str, arguments: Mapping[str, Any]) -> dict[str, Array]:
    """What the reference says of a launch. Raises ``WrongUsage`` where it cannot be asked or its answer is none."""
    parameters = inspect.signature(reference).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        taken = dict(arguments)
    else:
        taken = {name: arguments[name] for name in parameters if name in arguments}
        missing = [n for n, p in parameters.items() if n not in taken and p.default is inspect.Parameter.empty]
        if missing:
            raise WrongUsage(
                f"the reference of {kernel} takes {', '.join(missing)}, and the kernel's parameters are: "
                f"{', '.join(arguments)}"
            )
    answer = reference(**taken)
    if not isinstance(answer, Mapping):
        raise WrongUsage(
            f"the reference of {kernel} answers with {type(answer).__name__}; it has to be a dictionary from names of "
            "parameters to what those arrays hold afterwards"
        )
    return {name: np.asarray(_on_host(value)) for name, value in answer.items()}


def _on_host(value: Any) -> Any:
    return value.detach().cpu().double().numpy() if type(value).__module__.startswith("torch") else value


def differences(
    found: Mapping[str, Array],
    expected: Mapping[str, Array],
    unwritten: Mapping[str, Array],
    rtol: float | None,
    atol: float | None,
) -> list[str]:
    """A sentence for each array that is not as the reference has it.

    Raises ``WrongUsage`` where the reference speaks of what is not there.
    """
    sentences = []
    for name, wanted in expected.items():
        if name not in found:
            raise WrongUsage(f"the reference speaks of {name}, and the array arguments are: {', '.join(found)}")
        array = found[name]
        if wanted.shape != array.shape:
            raise WrongUsage(f"the reference has shape {wanted.shape} for {name}, which has {array.shape}")
        if name in unwritten:
            missing = unwritten[name]
            first = _position(np.argwhere(missing)[0])
            sentences.append(f"{name}: nothing was stored in {missing.sum()} of {array.size} elements, first {first}")
        elif sentence := _difference(name, array, wanted, rtol, atol):
            sentences.append(sentence)
    return sentences


def _difference(name: str, array: Array, wanted: Array, rtol: float | None, atol: float | None) -> str:
    if array.dtype.kind in "iub":
        wrong = array != wanted
        distance = np.abs(array.astype(np.float64) - wanted.astype(np.float64))
    else:
        relative, absolute = _TOLERANCES[array.itemsize]
        a, b = array.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(invalid="ignore"):
            distance = np.where(a == b, 0.0, np.abs(a - b))
            bound = (absolute if atol is None else atol) + (relative if rtol is None else rtol) * np.abs(b)
            wrong = ~((distance <= bound) | (np.isnan(a) & np.isnan(b))) | (np.isinf(a) != np.isinf(b))
    if not wrong.any():
        return ""
    at = np.unravel_index(int(np.argmax(np.where(wrong, np.nan_to_num(distance, nan=np.inf), -1.0))), array.shape)
    first = _position(np.argwhere(wrong)[0])
    return (
        f"{name}: {wrong.sum()} of {array.size} elements are not as the reference has them, first {first}, "
        f"worst {_position(at)}: {array[at]}, and the reference {wanted[at]:.8g}"
    )


def _position(index: Any) -> str:
    return "".join(f"[{int(i)}]" for i in index) or "[]"
