"""Somebody else's implementation of an operation, declared beside it: what the stages are measured against."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from .origin import BadOperation
from .problem import P

KINDS = ("numpy", "cupy", "torch", "cublas")
"""What the arrays are that a baseline gets: of NumPy on the CPU, of CuPy, tensors of PyTorch, matrices for cuBLAS."""


@dataclass(frozen=True)
class Baseline(Generic[P]):
    """A callable that solves the problems of an operation.

    `call` gets the problem, and the arrays that its other parameters name: `lambda p, x, w: ...`. It returns the
    output, a tuple of the outputs in the order in which they are declared, or a dict; or nothing, where it has written
    to the outputs, which it names among its parameters then. `requires` has what the arrays are, one of `KINDS`, and
    the modules beside that which have to be installed.

    One that is `vendor` is timed interleaved with every stage; the others once a problem. One that does not `solve` the
    problem is a yardstick (a plain copy): its output is not looked at. With `prepares` the callable is asked once a
    problem and returns a function without arguments, which is what is timed, and which returns the outputs unless the
    callable names one of them to write to; with `compiled` PyTorch compiles it. `refuses` says why a problem cannot be
    taken, or None. `version` is for the record, where it is more than that of what is required; None where the baseline
    cannot run.
    """

    name: str
    call: Callable[..., Any]
    requires: tuple[str, ...]
    vendor: bool = False
    solves: bool = True
    prepares: bool = False
    compiled: bool = False
    refuses: Callable[[P], str | None] = lambda problem: None
    version: Callable[[], str | None] | None = None

    def __post_init__(self) -> None:
        if not self.requires or self.requires[0] not in KINDS:
            raise ValueError(f"the baseline {self.name!r} has to require one of {', '.join(KINDS)} first")
        if self.compiled and self.kind != "torch":
            raise ValueError(f"the baseline {self.name!r} requires {self.kind}: only PyTorch compiles a call")

    @property
    def kind(self) -> str:
        """What the arrays are: one of `KINDS`."""
        return self.requires[0]

    def arguments(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the arrays that the callable names. Raises BadOperation for a name that there is not."""
        parameters = list(inspect.signature(self.call).parameters.values())[1:]
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            return dict(arrays)
        names = [p.name for p in parameters]
        if unknown := [name for name in names if name not in arrays]:
            raise BadOperation(
                f"the baseline {self.name!r} asks for {', '.join(unknown)}; the arrays are {', '.join(arrays)}"
            )
        return {name: arrays[name] for name in names}

    def outputs(self, returned: Any, names: Sequence[str]) -> dict[str, Any]:
        """What the callable has returned, by output; nothing where it has written to them. Raises BadOperation."""
        if returned is None:
            return {}
        if isinstance(returned, dict):
            found = returned
        elif isinstance(returned, tuple | list):
            found = dict(zip(names, returned, strict=False)) if len(returned) == len(names) else {}
        else:
            found = {names[0]: returned} if len(names) == 1 else {}
        if set(found) != set(names):
            count = "one output" if len(names) == 1 else f"{len(names)} outputs"
            raise BadOperation(f"the baseline {self.name!r} has to return {count}: {', '.join(names)}")
        return found
